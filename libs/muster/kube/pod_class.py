"""Pod classes: the fields of pods that placement needs. Equal pods share a class, computed once per template.

The fields that determine the class are looked up in a cache as raw JSON: pods of one template differ in name, volumes
and status, which are not part of the key, so all but the first cost only the look-up.

`volumes`, which depend on the rest of the cluster, are set by cluster-state.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.devices.extended_resources import is_extended
from muster.gangs.byte_cache import ByteCache, cached_by_bytes
from muster.gangs.facts import Amounts, ExtendedRequest, HostPort, PodClass
from muster.gangs.quoting import listed, quoted
from muster.gangs.selectors import PodSelector
from muster.kube.inter_pod_rules import InterPodRules, inter_pod_rules, may_have_pod_terms, shared_label_keys
from muster.kube.node_selection import node_selection
from muster.kube.objects import NOTHING, UNREADABLE, Container, Pod, PodStatus
from muster.kube.pod_requests import (
    MAX_NAMES,
    ContainerRequestFields,
    PodRequestFields,
    container_requests,
    effective_requests,
)

_CACHE_BYTES: Final = 24 * 1024 * 1024
"""Limit of each of the two caches: 20,000 usual templates."""
MAX_FIELD_BYTES: Final = 128 * 1024
"""Bytes of JSON of each field that selects nodes or pods; longer ones are not read: reading them, and evaluating what
they say, takes longer than anything else about a pod. A list of 5,000 host names fits.
"""
MAX_CONTAINERS: Final = 500
"""Containers of a pod, init containers included, whose requests are added up."""
MAX_AMOUNTS: Final = 3000
"""Amounts in the resources of a pod's containers together: two requests and two limits of each of that many."""
MAX_EXTENDED_REQUESTS: Final = 100
"""Requests of containers for extended resources that a pod may have, as many as resources."""
MAX_HOST_PORTS: Final = 500
"""Host ports of a pod: they are compared with those of each class that has any."""

_NO_LABELS: Final[Mapping[str, str]] = {}
_OMITTED_IF_EMPTY: Final = (
    "required_pod_affinity",
    "required_pod_anti_affinity",
    "preferred_pod_affinity",
    "spread",
    "host_ports",
    "volumes",
    "label_set",
    "extended",
    "shared_claims",
)
"""Fields that are not part of the hashed content when they are empty, so that ids of older versions stay the same."""

_ContainerKey = tuple[str, bytes, str | None, bytes]
_StatusKey = tuple[str, bytes, bytes]
_InterPodKey = tuple[bytes, bytes, str, tuple[tuple[str, str], ...], bool]
_ClassKey = tuple[
    tuple[_ContainerKey, ...],  # containers
    tuple[_ContainerKey, ...],  # init containers
    bytes,  # overhead
    bytes,  # pod-level resources
    bytes,  # node selector
    bytes,  # affinity, of which the node affinity is read
    bytes,  # tolerations
    tuple[tuple[_StatusKey, ...], bytes, bytes, bytes] | None,  # status of resizes of a bound pod
    _InterPodKey | None,  # inter-pod rules: affinity, spread, namespace, labels, whether the pod is ours
]


class ReadClass(Struct, frozen=True):
    """A pod's class as far as it follows from the pod alone, and a description of malformed fields; empty if none.

    `selectors` are the pod selectors to which the class refers.
    """

    pod_class: PodClass
    problem: str = ""
    selectors: tuple[PodSelector, ...] = ()


class _Port(Struct, frozen=True, rename={"host_port": "hostPort", "host_ip": "hostIP"}):
    host_port: int | None = None
    host_ip: str | None = None
    protocol: str | None = None


def pod_class(pod: Pod) -> PodClass:
    """The class of a pod; equal pods share the object while it is cached."""
    return read_class(pod).pod_class


def read_class(pod: Pod, *, ours: bool = True) -> ReadClass:
    """The class of a pod.

    For a pod that is not `ours` only what affects other pods: requests, host ports and required anti-affinity.
    """
    spec = pod.spec
    affinity = bytes(spec.affinity)
    spread = bytes(spec.topology_spread_constraints) if ours else b""
    node_selector = bytes(spec.node_selector) if ours else b""
    tolerations = bytes(spec.tolerations) if ours else b""
    too_long = ""
    if max(len(affinity), len(spread), len(node_selector), len(tolerations)) > MAX_FIELD_BYTES:
        problems: list[str] = []
        affinity = _readable(affinity, "affinity", problems)
        spread = _readable(spread, "topologySpreadConstraints", problems)
        node_selector = _readable(node_selector, "nodeSelector", problems)
        tolerations = _readable(tolerations, "tolerations", problems)
        too_long = "; ".join(problems)
    containers, init_containers = spec.containers, spec.init_containers
    if len(containers or ()) + len(init_containers or ()) > MAX_CONTAINERS:
        containers, init_containers, problem = _few(containers or [], init_containers or [])
        too_long = f"{too_long}; {problem}" if too_long else problem
    key = (
        _container_keys(containers),
        _container_keys(init_containers) if init_containers else (),
        bytes(spec.overhead),
        bytes(spec.resources),
        node_selector,
        affinity if ours else b"",
        tolerations,
        _status_key(pod.status) if spec.node_name else None,
        _inter_pod_key(pod, affinity, spread, ours=ours) if affinity or spread else None,
    )
    read = _cached_class(key)
    if too_long:
        return replace(read, problem=f"{too_long}; {read.problem}" if read.problem else too_long)
    return read


def identified(content: PodClass) -> PodClass:
    """The class with this content and its content hash as id."""
    return _shared(msgspec.json.encode(replace(content, id="")))


def _readable(field: bytes, name: str, problems: list[str]) -> bytes:
    """The field, or nothing, and a problem, if it is too long."""
    if len(field) <= MAX_FIELD_BYTES:
        return field
    problems.append(f"{name} has {len(field)} bytes: at most {MAX_FIELD_BYTES} are read")
    return b""


def _few(containers: list[Container], init_containers: list[Container]) -> tuple[list[Container], list[Container], str]:
    """The first of too many containers, which count on the node of a bound pod, and a problem."""
    count = len(containers) + len(init_containers)
    containers = containers[:MAX_CONTAINERS]
    problem = f"it has {count} containers: at most {MAX_CONTAINERS} are supported"
    return containers, init_containers[: MAX_CONTAINERS - len(containers)], problem


def _container_keys(containers: list[Container] | None) -> tuple[_ContainerKey, ...]:
    return tuple(
        [
            (each.name, bytes(each.resources), each.restart_policy, _ports_key(each))
            if each.ports is not NOTHING
            else (each.name, bytes(each.resources), each.restart_policy, b"")
            for each in containers or ()
        ]
    )


def _ports_key(container: Container) -> bytes:
    ports = bytes(container.ports)
    return ports if b'"hostPort"' in ports else b""


def _status_key(status: PodStatus) -> tuple[tuple[_StatusKey, ...], bytes, bytes, bytes] | None:
    containers = status.container_statuses
    if not containers:
        return None
    if status.init_container_statuses:
        containers = containers + status.init_container_statuses
    conditions = bytes(status.conditions)
    return (
        tuple([(each.name, bytes(each.allocated_resources), bytes(each.resources)) for each in containers]),
        bytes(status.allocated_resources),
        bytes(status.resources),
        conditions if b'"PodResizePending"' in conditions else b"",
    )


def _inter_pod_key(pod: Pod, affinity: bytes, spread: bytes, *, ours: bool) -> _InterPodKey | None:
    if not may_have_pod_terms(affinity):
        affinity = b""
    if not affinity and spread in (b"", b"null", b"[]"):
        return None
    labels = pod.metadata.labels or _NO_LABELS
    shared = tuple([(key, labels[key]) for key in shared_label_keys(affinity, spread) if key in labels])
    return affinity, spread, pod.metadata.namespace, shared, ours


def _computed_class(key: _ClassKey) -> ReadClass:
    containers, init_containers, overhead, resources, node_selector, affinity, tolerations, status, inter_pod = key
    statuses, allocated, actual, conditions = status or ((), b"", b"", b"")
    by_name = {name: (one, other) for name, one, other in reversed(statuses)}
    problems: list[str] = []
    containers, init_containers = _readable_resources(containers, init_containers, problems)
    fields = PodRequestFields(
        containers=tuple(_request_fields(each, by_name) for each in containers),
        init_containers=tuple(_request_fields(each, by_name) for each in init_containers),
        overhead=overhead,
        resources=resources,
        allocated=allocated,
        actual=actual,
        conditions=conditions,
    )
    requests = effective_requests(fields, problems)
    nodes = node_selection(node_selector, affinity, tolerations, problems)
    terms = InterPodRules() if inter_pod is None else _terms(inter_pod, problems)
    content = PodClass(
        "",
        requests,
        nodes.node_selector,
        nodes.required_node_affinity,
        nodes.preferred_node_affinity,
        nodes.tolerations,
        terms.required_affinity,
        terms.required_anti_affinity,
        terms.preferred,
        terms.spread,
        _host_ports((*containers, *(each for each in init_containers if _is_sidecar(each))), problems),
        extended=_extended(fields, requests, problems) if any(is_extended(name) for name, _ in requests) else (),
    )
    return ReadClass(identified(content), listed(list(dict.fromkeys(problems))), terms.selectors)


def _readable_resources(
    containers: tuple[_ContainerKey, ...], init_containers: tuple[_ContainerKey, ...], problems: list[str]
) -> tuple[tuple[_ContainerKey, ...], tuple[_ContainerKey, ...]]:
    """The containers; the resources only of the first of them, and a problem, if these have too many amounts."""
    both = (*containers, *init_containers)
    counts = [min(resources.count(b":"), MAX_NAMES) for _, resources, _, _ in both]  # those of JSON, 3 or fewer, too
    if sum(counts) <= MAX_AMOUNTS:
        return containers, init_containers
    problems.append(f"resources of its containers have {sum(counts)} amounts: at most {MAX_AMOUNTS} are read")
    left, read = MAX_AMOUNTS, []
    for (name, resources, restart_policy, ports), count in zip(both, counts, strict=True):
        left -= count
        read.append((name, resources if left >= 0 else b"", restart_policy, ports))
    return tuple(read[: len(containers)]), tuple(read[len(containers) :])


_cached_class: Final = ByteCache(_computed_class, _CACHE_BYTES)


@cached_by_bytes(_CACHE_BYTES)
def _shared(content: bytes) -> PodClass:
    """The class for a content (canonical JSON of a PodClass without id)."""
    hashed = msgspec.json.decode(content)
    for name in _OMITTED_IF_EMPTY:
        if not hashed[name]:
            del hashed[name]
    id_ = blake2b(msgspec.json.encode(hashed), digest_size=16).hexdigest()
    return replace(msgspec.json.decode(content, type=PodClass), id=id_)


def _request_fields(container: _ContainerKey, statuses: Mapping[str, tuple[bytes, bytes]]) -> ContainerRequestFields:
    name, resources, _, _ = container
    allocated, actual = statuses.get(name, (b"", b""))
    return ContainerRequestFields(name, resources, allocated, actual, restarts=_is_sidecar(container))


def _extended(fields: PodRequestFields, considered: Amounts, problems: list[str]) -> tuple[ExtendedRequest, ...]:
    """Requests of all containers for the extended resources that are considered. kube-scheduler, too, names them by the
    position among the sorted names of all resources of the container.
    """
    names = {name for name, _ in considered if is_extended(name)}
    found = []
    for index, container in enumerate((*fields.init_containers, *fields.containers)):
        starts = index < len(fields.init_containers) and not container.restarts
        for position, (resource, amount) in enumerate(container_requests(container)):
            if amount > 0 and resource in names:
                request = f"container-{index}-request-{position}"
                found.append(ExtendedRequest(container.name, resource, request, index, amount, starts))
    if len(found) > MAX_EXTENDED_REQUESTS:
        problems.append(
            f"its containers have {len(found)} requests for extended resources, but at most {MAX_EXTENDED_REQUESTS} "
            "are considered"
        )
    return tuple(found[:MAX_EXTENDED_REQUESTS])


def _is_sidecar(container: _ContainerKey) -> bool:
    return container[2] == "Always"


def _terms(inter_pod: _InterPodKey, problems: list[str]) -> InterPodRules:
    affinity, spread, namespace, labels, ours = inter_pod
    return inter_pod_rules(affinity, spread, namespace, dict(labels), problems, ours=ours)


def _host_ports(containers: Iterable[_ContainerKey], problems: list[str]) -> tuple[HostPort, ...]:
    found: set[HostPort] = set()
    for name, _, _, raw in containers:
        if not raw:
            continue
        try:
            ports = msgspec.json.decode(raw, type=list[_Port])
        except UNREADABLE as error:
            shown = quoted(raw[:256].decode(errors="replace"))
            problems.append(f"containers {quoted(name)} ports is {shown}: {error}")
            continue
        for each in ports:
            if not each.host_port:
                continue
            if not 1 <= each.host_port <= 65535:
                problems.append(f"containers {quoted(name)} has hostPort {each.host_port}: it must be from 1 to 65535")
                continue
            found.add(HostPort(each.protocol or "TCP", each.host_ip or "0.0.0.0", each.host_port))  # noqa: S104
    if len(found) > MAX_HOST_PORTS:
        problems.append(f"it has {len(found)} host ports: at most {MAX_HOST_PORTS} are supported")
        return ()
    return tuple(sorted(found, key=lambda port: (port.port, port.protocol, port.ip)))
