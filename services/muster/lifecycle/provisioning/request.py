"""Builds the ProvisioningRequest of a gang and its PodTemplates, and reads what the autoscaler answered.

A template has what matters to placement: other fields differ between members that are equal otherwise. Its name is a
digest of its content, so that requests for equal members are equal.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.kube.objects import NOTHING, UNREADABLE, Container, Pod, PodGroup
from muster.lifecycle.object_client import Object

API_VERSION: Final = "autoscaling.x-k8s.io/v1"
PLURAL: Final = "provisioningrequests"
CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CONSUMES_FORMERLY: Final = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
"""A deprecated name of the same annotation."""
CLASS_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
GANG: Final = "muster.dev/gang"
"""Annotation of a request with the id of its gang."""
MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "muster-lifecycle"}
MAX_POD_SETS: Final = 32
"""Limit of the API."""
MAX_OWNERS: Final = 16
_IMAGE: Final = "registry.k8s.io/pause:3.10"
"""A template needs one; no pod is created from it."""
_PER_POD_LABELS: Final = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
)


class Waiting(Struct, frozen=True):
    """A member that waits for a node."""

    uid: str
    name: str
    template: str
    """The JSON of its template's spec."""


class State(Struct, frozen=True):
    """The conditions of a request, as far as they matter."""

    provisioned: bool = False
    ended: str = ""
    """Why it will not be provisioned any more; empty: it may be."""
    ended_at: str = ""
    message: str = ""
    """Why it is not provisioned; empty: not known."""


def request_name(gang_id: str) -> str:
    """The name of the gang's request: its pods refer to it before it exists."""
    return f"muster-{hashlib.blake2b(gang_id.encode(), digest_size=10).hexdigest()}"


def template_of(pod: Pod) -> str:
    """The JSON of a template for pods like this one; equal for members that are equal to placement."""
    spec, labels = pod.spec, pod.metadata.labels or {}
    content: dict[str, Any] = {
        "schedulerName": spec.scheduler_name,
        "priorityClassName": spec.priority_class_name,
        "containers": [_container(each) for each in spec.containers or ()],
        "initContainers": [_container(each) for each in spec.init_containers or ()],
        "volumes": _claims(spec.volumes),
    }
    for name, value in (
        ("overhead", spec.overhead),
        ("resources", spec.resources),
        ("resourceClaims", spec.resource_claims),
        ("nodeSelector", spec.node_selector),
        ("affinity", spec.affinity),
        ("tolerations", spec.tolerations),
        ("topologySpreadConstraints", spec.topology_spread_constraints),
    ):
        content[name] = _read(value)
    template = {
        "metadata": {"labels": {key: value for key, value in sorted(labels.items()) if key not in _PER_POD_LABELS}},
        "spec": {key: value for key, value in content.items() if value},
    }
    return msgspec.json.encode(template, order="deterministic").decode()


def _container(container: Container) -> Object:
    fields = {
        "name": container.name,
        "image": _IMAGE,
        "resources": _read(container.resources),
        "ports": _read(container.ports),
        "restartPolicy": container.restart_policy,
    }
    return {key: value for key, value in fields.items() if value}


def _claims(volumes: msgspec.Raw) -> list[Object]:
    """Volumes with claims: they may keep the pod to a zone."""
    read = _read(volumes)
    each = read if isinstance(read, list) else []
    return [volume for volume in each if isinstance(volume, dict) and "persistentVolumeClaim" in volume]


def _read(value: msgspec.Raw) -> Any:
    if value is NOTHING:
        return None
    try:
        return msgspec.json.decode(value)
    except UNREADABLE:
        return None


def template_name(request: str, template: str) -> str:
    """The name of the PodTemplate with this content."""
    return f"{request}-{hashlib.blake2b(template.encode(), digest_size=6).hexdigest()}"


def templates_of(waiting: Iterable[Waiting]) -> list[str]:
    """The different templates."""
    return list(dict.fromkeys(member.template for member in waiting))


def pod_template(request: str, template: str, waiting: Iterable[Waiting]) -> Object:
    """The PodTemplate with this content, owned by some members."""
    metadata = {"name": template_name(request, template), "labels": MANAGED_BY, "ownerReferences": owners(waiting)}
    content = {"template": msgspec.json.decode(template), "metadata": metadata}
    return {"apiVersion": "v1", "kind": "PodTemplate", **content}


def pod_sets(request: str, waiting: Iterable[Waiting]) -> list[Object]:
    """spec.podSets of the request: a template and a count for each role, in a fixed order."""
    counts = Counter(member.template for member in waiting)
    named = sorted((template_name(request, template), count) for template, count in counts.items())
    return [{"podTemplateRef": {"name": name}, "count": count} for name, count in named]


def owners(waiting: Iterable[Waiting]) -> list[Object]:
    """Owner references to some members: the API server removes the object when all of them are gone."""
    first = sorted(waiting, key=lambda member: member.name)[:MAX_OWNERS]
    return [{"apiVersion": "v1", "kind": "Pod", "name": member.name, "uid": member.uid} for member in first]


def provisioning_request(name: str, namespace: str, gang_id: str, waiting: list[Waiting]) -> Object:
    """The request for nodes of all waiting members, in one node group or not at all."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": MANAGED_BY,
            "annotations": {GANG: gang_id},
            "ownerReferences": owners(waiting),
        },
        "spec": {"provisioningClassName": CLASS, "podSets": pod_sets(name, waiting)},
    }


def asks_for(request: PodGroup) -> list[Object]:
    """spec.podSets of an existing request, in the order of `pod_sets`."""
    spec = _read(request.spec)
    found = spec.get("podSets") if isinstance(spec, dict) else None
    sets = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    plain = [{"podTemplateRef": each.get("podTemplateRef"), "count": each.get("count")} for each in sets]
    return sorted(plain, key=lambda each: str(each["podTemplateRef"]))


def shares_template(request: PodGroup, sets: Iterable[Object]) -> bool:
    """An existing request is for some pods like those of `sets`."""
    refs = [each["podTemplateRef"] for each in asks_for(request)]
    return any(each["podTemplateRef"] in refs for each in sets)


_ENDS: Final = ("Failed", "BookingExpired", "CapacityRevoked")


def state_of(request: PodGroup) -> State:
    """The autoscaler's answer, from the conditions."""
    status = _read(request.status)
    listed = status.get("conditions") if isinstance(status, dict) else None
    conditions: Mapping[str, Object] = {
        each["type"]: each for each in listed or () if isinstance(each, dict) and isinstance(each.get("type"), str)
    }
    provisioned = conditions.get("Provisioned", {})
    end = next((conditions[name] for name in _ENDS if conditions.get(name, {}).get("status") == "True"), None)
    message = "" if provisioned.get("status") == "True" else str(provisioned.get("message") or "")
    if end is None:
        return State(provisioned.get("status") == "True", message=message)
    why = str(end.get("message") or end["type"])
    return State(ended=str(end["type"]), ended_at=str(end.get("lastTransitionTime") or ""), message=why)
