"""ResourceClaims of pods: validation of spec.resourceClaims, and the names of the claims that a pod uses."""

from collections.abc import Iterator
from typing import Any, Final

from muster.localcluster.apiserver.metadata import label_problems, subdomain_problems
from muster.localcluster.apiserver.status import Cause, duplicate, invalid_value, not_found_value, required
from muster.localcluster.apiserver.store import Object

_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_CONTAINERS: Final = ("initContainers", "containers")


def pod_claims_causes(spec: Object, field: str) -> Iterator[Cause]:
    """Problems of the resourceClaims of a pod spec, and of the references of its containers."""
    names: set[str] = set()
    for index, entry in enumerate(spec.get("resourceClaims") or ()):
        yield from _entry_causes(entry, f"{field}.resourceClaims[{index}]", names)
    for listed in _CONTAINERS:
        for index, container in enumerate(spec.get(listed) or ()):
            at = f"{field}.{listed}[{index}].resources.claims"
            yield from _reference_causes((container.get("resources") or {}).get("claims") or (), at, names)


def claim_name(pod: Object, entry: Object) -> str | None:
    """Name of the ResourceClaim for an entry of spec.resourceClaims; None: not created yet, "": not needed."""
    if entry.get("resourceClaimName"):
        return str(entry["resourceClaimName"])
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses")
    for status in statuses if isinstance(statuses, list) else ():  # types of a status are not checked
        if isinstance(status, dict) and status.get("name") == entry["name"]:
            return str(status.get("resourceClaimName") or "")
    return None


def claim_names(pod: Object) -> list[str]:
    """Names of all ResourceClaims that the pod uses, as far as they are known."""
    names = [claim_name(pod, entry) for entry in pod["spec"].get("resourceClaims") or ()]
    return [name for name in (*names, extended_claim_name(pod)) if name]


def uses_claims(pod: Object) -> bool:
    """Whether the pod uses ResourceClaims."""
    return bool(pod["spec"].get("resourceClaims") or extended_claim_name(pod))


def extended_claim_name(pod: Object) -> str:
    """Name of the claim that a scheduler created for the pod's extended resources; "": none."""
    entry = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return str(entry.get("resourceClaimName") or "") if isinstance(entry, dict) else ""


def _entry_causes(entry: Object, field: str, names: set[str]) -> Iterator[Cause]:
    name = entry.get("name") or ""
    if not name:
        yield required(f"{field}.name")
    elif name in names:
        yield duplicate(f"{field}.name", name)
    else:
        for problem in label_problems(name):
            yield invalid_value(f"{field}.name", name, problem)
    names.add(name)
    sources = [source for source in _SOURCES if entry.get(source) is not None]
    if not sources:
        yield invalid_value(field, None, f"must specify one of: `{_SOURCES[0]}`, `{_SOURCES[1]}`")
    elif len(sources) > 1:
        yield invalid_value(field, None, f"at most one of `{_SOURCES[0]}` or `{_SOURCES[1]}` may be specified")
    for source in sources:
        for problem in subdomain_problems(entry[source]):
            yield invalid_value(f"{field}.{source}", entry[source], problem)


def _reference_causes(references: Any, field: str, names: set[str]) -> Iterator[Cause]:
    """Problems of a container's references: each request of a claim at most once, and not beside the whole claim."""
    seen: set[tuple[str, str]] = set()
    for index, reference in enumerate(references):
        name, request = reference.get("name") or "", reference.get("request") or ""
        if not name:
            yield required(f"{field}[{index}].name")
        elif name not in names:
            yield not_found_value(f"{field}[{index}].name", name)
        elif (name, request) in seen or (name, "") in seen:
            yield duplicate(f"{field}[{index}]", f"{name}/{request}" if request else name)
        seen.add((name, request))
