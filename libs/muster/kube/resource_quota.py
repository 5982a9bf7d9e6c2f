"""ResourceQuota as Kubernetes counts it: usage of pods, scopes, and formatting of amounts.

Amounts are exact, in billionths, by the names that quotas use: "cpu" and "requests.cpu" are the same, "limits.cpu" is
not.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.byte_cache import cached_by_bytes
from muster.gangs.quantity import NANOS_PER_UNIT, BadQuantity, parse_quantity
from muster.kube.objects import UNREADABLE, Container, Encoded, ObjectMeta, Pod, PodStatus, salvage
from muster.kube.pod_requests import ContainerRequestFields, Nanos, PodRequestFields, exact_requests, quantity_text

COUNTED_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a quota can limit both requests and limits."""

_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_HUGE_PAGES: Final = "hugepages-"
_BYTES: Final = ("memory", "ephemeral-storage", "storage")
_ENDED: Final = ("Succeeded", "Failed")
_CACHE_BYTES: Final = 8 * 1024 * 1024
_BINARY: Final = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
_DECIMAL: Final = (("E", 27), ("P", 24), ("T", 21), ("G", 18), ("M", 15), ("k", 12), ("", 9), ("m", 6), ("u", 3))


class ScopeRequirement(Struct, rename="camel", frozen=True):
    """An entry of a quota's scopeSelector."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(Struct, rename="camel", frozen=True):
    """spec.scopeSelector of a quota."""

    match_expressions: list[ScopeRequirement] | None = None


class QuotaSpec(Struct, rename="camel", frozen=True):
    """spec of a ResourceQuota."""

    hard: dict[str, Raw] | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(Struct, rename="camel", frozen=True):
    """status of a ResourceQuota."""

    used: dict[str, Raw] | None = None


class ResourceQuota(Struct, rename="camel", frozen=True):
    """A ResourceQuota."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: QuotaSpec = field(default_factory=QuotaSpec)
    status: QuotaStatus = field(default_factory=QuotaStatus)

    @property
    def hard(self) -> Nanos:
        """The limits; malformed ones are skipped."""
        return _parsed(self.spec.hard)

    @property
    def used(self) -> Nanos:
        """Usage as last counted by the API server."""
        return _parsed(self.status.used)

    @property
    def requirements(self) -> tuple[ScopeRequirement, ...]:
        """Scopes and scope selector terms; the quota applies to pods that match all of them."""
        selector = self.spec.scope_selector
        scopes = (ScopeRequirement(each, "Exists") for each in self.spec.scopes or ())
        return (*scopes, *((selector.match_expressions or ()) if selector is not None else ()))


class PodTraits(Struct, frozen=True):
    """The properties of a pod by which scopes select it."""

    priority_class: str = ""
    terminating: bool = False
    best_effort: bool = False
    cross_namespace: bool = False

    def meets(self, requirements: Iterable[ScopeRequirement]) -> bool:
        """Whether the pod matches all requirements; unknown scopes match no pod."""
        return all(self._meets(each) for each in requirements)

    def _meets(self, requirement: ScopeRequirement) -> bool:
        match requirement.scope_name:
            case "Terminating":
                return self.terminating
            case "NotTerminating":
                return not self.terminating
            case "BestEffort":
                return self.best_effort
            case "NotBestEffort":
                return not self.best_effort
            case "CrossNamespacePodAffinity":
                return self.cross_namespace
            case "PriorityClass":
                return _selects(requirement, self.priority_class)
        return False


class PodUsage(Struct, frozen=True):
    """Usage of a pod; `amounts` by quota names, sorted."""

    amounts: tuple[tuple[str, int], ...]
    traits: PodTraits


_quota: Final = msgspec.json.Decoder(ResourceQuota)


def decode_quota(data: Encoded) -> ResourceQuota:
    """Decode a quota; fields with wrong types keep their defaults. Raises BadObject."""
    try:
        return _quota.decode(data)
    except UNREADABLE:
        return ResourceQuota(**salvage(ResourceQuota, data)[0])


def pod_usage(pod: Pod) -> PodUsage:
    """The usage of a pod that has not ended. Malformed quantities count as zero."""
    spec = pod.spec
    containers, init_containers = _containers(spec.containers, pod.status), _containers(spec.init_containers, None)
    amounts, best_effort = _amounts(
        PodRequestFields(containers, init_containers, overhead=bytes(spec.overhead), resources=bytes(spec.resources))
    )
    deadline = spec.active_deadline_seconds
    return PodUsage(
        amounts,
        PodTraits(
            priority_class=spec.priority_class_name or "",
            terminating=deadline is not None and deadline >= 0,
            best_effort=best_effort,
            cross_namespace=_refers_to_other_namespaces(bytes(spec.affinity)),
        ),
    )


def has_ended(pod: Pod) -> bool:
    """Whether the pod has ended and so uses nothing."""
    return pod.status.phase in _ENDED


def quota_names(resource: str) -> tuple[str, ...]:
    """The quota names for requests of a resource, as named by a PodGroup or container."""
    if resource in ("pods", "count/pods"):
        return ("pods", "count/pods")
    if resource.startswith((_LIMITS, "count/")):
        return (resource,)
    plain = resource.removeprefix(_REQUESTS)
    if plain in COUNTED_COMPUTE or plain.startswith(_HUGE_PAGES):
        return (plain, _REQUESTS + plain)
    return (_REQUESTS + plain,)


def by_quota_names(amounts: Mapping[str, int]) -> Nanos:
    """Convert amounts by resource to amounts by all their quota names; of several the largest."""
    found: Nanos = {}
    for resource, nanos in amounts.items():
        for name in quota_names(resource):
            found[name] = max(nanos, found.get(name, 0))
    return found


def shown_amounts(amounts: Mapping[str, int]) -> str:
    """Format like Kubernetes: "limits.cpu=2,memory=1536Mi"."""
    return ",".join(f"{name}={shown_amount(name, nanos)}" for name, nanos in sorted(amounts.items()))


def shown_amount(name: str, nanos: int) -> str:
    """Format without fractions, with the largest suffix that fits; binary suffixes for bytes."""
    if nanos == 0:
        return "0"
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    plain = name.removeprefix(_REQUESTS).removeprefix(_LIMITS)
    if (plain in _BYTES or plain.startswith(_HUGE_PAGES)) and nanos % NANOS_PER_UNIT == 0:
        units = nanos // NANOS_PER_UNIT
        for suffix, shift in _BINARY:
            if units % (1 << shift) == 0:
                return f"{sign}{units >> shift}{suffix}"
        return f"{sign}{units}"
    for suffix, power in _DECIMAL:
        if nanos % 10**power == 0:
            return f"{sign}{nanos // 10**power}{suffix}"
    return f"{sign}{nanos}n"


def _parsed(amounts: Mapping[str, Raw] | None) -> Nanos:
    parsed: Nanos = {}
    for name, raw in (amounts or {}).items():
        try:
            parsed[name] = parse_quantity(quantity_text(raw))
        except BadQuantity:
            continue
    return parsed


def _selects(requirement: ScopeRequirement, priority_class: str) -> bool:
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return priority_class in values
        case "NotIn":
            return priority_class not in values
        case "Exists":
            return bool(priority_class)
        case "DoesNotExist":
            return not priority_class
    return False


def _containers(containers: list[Container] | None, status: PodStatus | None) -> tuple[ContainerRequestFields, ...]:
    statuses = {each.name: each for each in (status.container_statuses or ())} if status is not None else {}
    found = []
    for each in containers or ():
        current = statuses.get(each.name)
        allocated, actual = (bytes(current.allocated_resources), bytes(current.resources)) if current else (b"", b"")
        found.append(
            ContainerRequestFields(each.name, bytes(each.resources), allocated, actual, each.restart_policy == "Always")
        )
    return tuple(found)


@cached_by_bytes(_CACHE_BYTES)
def _amounts(fields: PodRequestFields) -> tuple[tuple[tuple[str, int], ...], bool]:
    """Amounts by quota names, and whether the pod is best-effort: no cpu or memory requested."""
    requests = exact_requests(fields, [])
    limits = exact_requests(_of_limits(fields), [])
    overhead = exact_requests(PodRequestFields(overhead=fields.overhead), [])
    amounts = by_quota_names({name: nanos for name, nanos in requests.items() if nanos > 0})
    for name in COUNTED_COMPUTE:
        if limits.get(name, 0) > 0:
            amounts[_LIMITS + name] = limits[name] + overhead.get(name, 0)
    amounts |= dict.fromkeys(quota_names("pods"), NANOS_PER_UNIT)
    without_overhead = exact_requests(
        PodRequestFields(fields.containers, fields.init_containers, resources=fields.resources), []
    )
    requested = any(each.get(name, 0) > 0 for each in (without_overhead, limits) for name in ("cpu", "memory"))
    return tuple(sorted(amounts.items())), not requested


def _of_limits(fields: PodRequestFields) -> PodRequestFields:
    """The fields with limits in place of requests, and without overhead, which is added to limits separately."""
    return PodRequestFields(
        containers=tuple(_limited(each) for each in fields.containers),
        init_containers=tuple(_limited(each) for each in fields.init_containers),
        resources=_limits_as_requests(fields.resources),
    )


def _limited(container: ContainerRequestFields) -> ContainerRequestFields:
    return ContainerRequestFields(container.name, _limits_as_requests(container.resources), restarts=container.restarts)


def _limits_as_requests(resources: bytes) -> bytes:
    limits = _object(resources).get("limits")
    return msgspec.json.encode({"requests": limits}) if isinstance(limits, dict) else b""


def _refers_to_other_namespaces(affinity: bytes) -> bool:
    """Whether its pod affinity or anti-affinity refers to other namespaces."""
    if b'"namespace' not in affinity:
        return False
    found = _object(affinity)
    terms: list[Any] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        of_kind = found.get(kind)
        if isinstance(of_kind, dict):
            terms += of_kind.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
            preferred = of_kind.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
            terms += (each.get("podAffinityTerm") for each in preferred if isinstance(each, dict))
    return any(isinstance(each, dict) and (each.get("namespaces") or "namespaceSelector" in each) for each in terms)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw) if raw else {}
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}
