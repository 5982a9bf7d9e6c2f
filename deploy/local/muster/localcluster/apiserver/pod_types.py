"""JSON types of a pod's fields; a request with other types is rejected before validation."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.localcluster.apiserver.quantity_format import quantities
from muster.localcluster.apiserver.status import bad_request
from muster.localcluster.apiserver.store import Object

_Strings = dict[str, str | None] | None
_Quantities = dict[str, str | int | float] | None


class _ClaimReference(Struct):
    name: str | None = None
    request: str | None = None


class _Resources(Struct):
    requests: _Quantities = None
    limits: _Quantities = None
    claims: list[_ClaimReference] | None = None


class _Port(Struct):
    containerPort: int | None = None  # noqa: N815
    hostPort: int | None = None  # noqa: N815
    name: str | None = None
    protocol: str | None = None


class _Container(Struct):
    name: str | None = None
    image: str | None = None
    imagePullPolicy: str | None = None  # noqa: N815
    restartPolicy: str | None = None  # noqa: N815
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[dict[str, Any]] | None = None
    ports: list[_Port] | None = None
    resources: _Resources | None = None
    volumeMounts: list[dict[str, Any]] | None = None  # noqa: N815


class _Requirement(Struct):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Term(Struct):
    matchExpressions: list[_Requirement] | None = None  # noqa: N815
    matchFields: list[_Requirement] | None = None  # noqa: N815


class NodeSelector(Struct):
    """A node selector, of a pod or of devices."""

    nodeSelectorTerms: list[_Term] | None = None  # noqa: N815


class _PreferredTerm(Struct):
    weight: int | None = None
    preference: _Term | None = None


class _NodeAffinity(Struct):
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None  # noqa: N815
    preferredDuringSchedulingIgnoredDuringExecution: list[_PreferredTerm] | None = None  # noqa: N815


class _Affinity(Struct):
    nodeAffinity: _NodeAffinity | None = None  # noqa: N815
    podAffinity: dict[str, Any] | None = None  # noqa: N815
    podAntiAffinity: dict[str, Any] | None = None  # noqa: N815


class _Toleration(Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    tolerationSeconds: int | None = None  # noqa: N815


class _Gate(Struct):
    name: str | None = None


class _SchedulingGroup(Struct):
    podGroupName: str | None = None  # noqa: N815


class _ResourceClaim(Struct):
    name: str | None = None
    resourceClaimName: str | None = None  # noqa: N815
    resourceClaimTemplateName: str | None = None  # noqa: N815


class _PodSpec(Struct):
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815
    nodeName: str | None = None  # noqa: N815
    nodeSelector: _Strings = None  # noqa: N815
    affinity: _Affinity | None = None
    tolerations: list[_Toleration] | None = None
    schedulerName: str | None = None  # noqa: N815
    priorityClassName: str | None = None  # noqa: N815
    priority: int | None = None
    preemptionPolicy: str | None = None  # noqa: N815
    restartPolicy: str | None = None  # noqa: N815
    terminationGracePeriodSeconds: int | None = None  # noqa: N815
    activeDeadlineSeconds: int | None = None  # noqa: N815
    schedulingGates: list[_Gate] | None = None  # noqa: N815
    schedulingGroup: _SchedulingGroup | None = None  # noqa: N815
    overhead: _Quantities = None
    resources: _Resources | None = None
    resourceClaims: list[_ResourceClaim] | None = None  # noqa: N815
    volumes: list[dict[str, Any]] | None = None
    topologySpreadConstraints: list[dict[str, Any]] | None = None  # noqa: N815
    hostNetwork: bool | None = None  # noqa: N815


_LISTS: Final = ("containers", "initContainers")


def check_pod_types(pod: Object) -> None:
    """Check the types of the spec and make quantities canonical. Raises StatusError 400."""
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    try:
        msgspec.convert(spec, _PodSpec)
    except msgspec.ValidationError as error:
        raise _unreadable(f"json: {error}".replace("$.", "spec.").replace("$", "spec")) from error
    for name in [name for name, value in spec.items() if value is None]:
        del spec[name]
    try:
        for field in _LISTS:
            for container in spec.get(field) or ():
                _make_canonical(container)
        _make_canonical(spec)
        if "overhead" in spec:
            spec["overhead"] = quantities(spec["overhead"])
    except ValueError as error:
        raise _unreadable(str(error)) from error


def _make_canonical(holder: Object) -> None:
    resources = holder.get("resources")
    if not resources:
        return
    for field in ("requests", "limits"):
        amounts = resources.get(field)
        if amounts is not None:
            resources[field] = quantities(amounts)
        else:
            resources.pop(field, None)


def _unreadable(detail: str) -> Exception:
    return bad_request(f'Pod in version "v1" cannot be handled as a Pod: {detail}')
