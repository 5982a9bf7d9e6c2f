"""Pods off the wire become facts; equal pods share one class, which is computed once per template.

What decides a pod's class is taken from the pod as raw JSON and looked up whole: pods made from one template differ in
names, volumes and status, which are no part of it, so all but the first cost only the look-up.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from muster.dialects import own_marks
from muster.gangs.facts import PodClass, PodFacts, PodPhase
from muster.kube.objects import Container, Pod, PodSpec, PodStatus, PriorityClass
from muster.kube.requests import ContainerNeeds, PodNeeds, effective_requests
from muster.kube.selection import selection
from muster.kube.timestamps import BadTimestamp, parse_timestamp

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""What spec.schedulerName is when nobody set it."""

_PHASES: Final[Mapping[str | None, PodPhase]] = {
    "Pending": PodPhase.PENDING,
    "Running": PodPhase.RUNNING,
    "Succeeded": PodPhase.SUCCEEDED,
    "Failed": PodPhase.FAILED,
}
_PENDING: Final = PodPhase.PENDING
_BUILT_IN_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NEVER: Final = "Never"
_CLASSES_KEPT: Final = 16384
_LARGEST_KEPT_BYTES: Final = 16384  # of one cache key, so that odd pods cannot fill the memory

_ContainerKey = tuple[str, bytes, str | None]
_StatusKey = tuple[str, bytes, bytes]
_ClassKey = tuple[
    tuple[_ContainerKey, ...],  # containers
    tuple[_ContainerKey, ...],  # init containers
    bytes,  # overhead
    bytes,  # pod-level resources
    bytes,  # node selector
    bytes,  # affinity
    bytes,  # tolerations
    tuple[tuple[_StatusKey, ...], bytes, bytes, bytes] | None,  # what a bound pod's status says of resizes
]


class Priorities(Struct, frozen=True):
    """Priority classes: values by name, and what pods without one get; `never_preempt` are names of classes."""

    values: Mapping[str, int] = {}
    default: int = 0
    never_preempt: frozenset[str] = frozenset()
    default_never_preempts: bool = False

    @classmethod
    def of(cls, classes: Iterable[PriorityClass]) -> "Priorities":
        """The classes of a cluster; if several claim to be the default, the lowest is, as in Kubernetes."""
        known = list(classes)
        default = min((each for each in known if each.global_default), key=_rank, default=PriorityClass())
        return cls(
            {each.metadata.name: each.value for each in known},
            default.value,
            frozenset(each.metadata.name for each in known if each.preemption_policy == _NEVER),
            default.preemption_policy == _NEVER,
        )

    def of_pod(self, spec: PodSpec) -> int:
        """The priority that admission gave the pod, or would have given it."""
        if spec.priority is not None:
            return spec.priority
        name = spec.priority_class_name
        if not name:
            return self.default
        value = self.values.get(name)
        return _BUILT_IN_PRIORITIES.get(name, self.default) if value is None else value

    def never_preempts(self, spec: PodSpec) -> bool:
        """The preemption policy that admission gave the pod, or would have given it, is Never."""
        if spec.preemption_policy is not None:
            return spec.preemption_policy == _NEVER
        if spec.priority_class_name:
            return spec.priority_class_name in self.never_preempt
        return spec.priority is None and self.default_never_preempts

    @staticmethod
    def are_open(spec: PodSpec) -> bool:
        """The classes have a say in this pod: admission did not settle everything."""
        return spec.priority is None or (spec.preemption_policy is None and bool(spec.priority_class_name))


class ReadClass(Struct, frozen=True):
    """A pod's class, and what of the pod could not be read; empty if all could."""

    pod_class: PodClass
    problem: str = ""


def pod_facts(
    pod: Pod,
    scheduler_names: Collection[str],
    priorities: Priorities,
    gang: str = "",
    problem: str = "",
    *,
    timed_out: bool = False,
    budgets: tuple[str, ...] = (),
) -> tuple[PodFacts, PodClass]:
    """What Muster knows of a pod, and the class that the facts name.

    `gang`, `problem` and `timed_out` are what the dialects found, `budgets` are those that cover the pod. Anything else
    that is wrong with the pod is added to `problem`. Raises BadResourceVersion.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    ours = (spec.scheduler_name or DEFAULT_SCHEDULER) in scheduler_names
    read = read_class(pod, ours=ours)
    problems = [each for each in (problem, pod.problem, read.problem) if each]
    phase = _PHASES.get(status.phase, _PENDING)
    created = started = 0
    try:
        if metadata.creation_timestamp:
            created = parse_timestamp(metadata.creation_timestamp)
    except BadTimestamp as error:
        problems.append(f"metadata.creationTimestamp: {error}")
    try:
        # Pods get a start time while they are pending; it is told with what makes them run, not by itself.
        if status.start_time and phase is not _PENDING:
            started = parse_timestamp(status.start_time)
    except BadTimestamp as error:
        problems.append(f"status.startTime: {error}")
    deadline = spec.active_deadline_seconds
    annotated = own_marks.expected_seconds(metadata.annotations) if ours and metadata.annotations else 0.0
    facts = PodFacts(  # of more than 15 arguments by name Python would make a dictionary first
        metadata.uid,
        metadata.namespace,
        metadata.name,
        read.pod_class.id,
        metadata.revision,
        node=spec.node_name or "",
        phase=phase,
        priority=priorities.of_pod(spec),
        created_seconds=created,
        ours=ours,
        gang=gang if ours else "",
        deleting=metadata.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        problem="; ".join(problems),
        timed_out=timed_out and ours,
        never_preempts=priorities.never_preempts(spec),
        expected_seconds=_shorter(annotated, deadline) if deadline else annotated,
        started_seconds=started,
        budgets=budgets,
    )
    return facts, read.pod_class


def _shorter(annotated: float, deadline: int) -> float:
    """The shorter of both times in seconds; 0 of the one, or less of the other, says nothing."""
    if deadline < 0:
        return annotated
    return min(annotated, float(deadline)) if annotated else float(deadline)


def _rank(each: PriorityClass) -> tuple[int, str]:
    return each.value, each.metadata.name


def pod_class(pod: Pod) -> PodClass:
    """Everything about the pod that matters to placement; equal pods get the same object while it is cached."""
    return read_class(pod).pod_class


def read_class(pod: Pod, *, ours: bool = True) -> ReadClass:
    """The class of a pod. Of a pod that is not `ours` it has the requests alone: nothing else of it matters."""
    spec = pod.spec
    key = (
        _container_keys(spec.containers),
        _container_keys(spec.init_containers) if spec.init_containers else (),
        bytes(spec.overhead),
        bytes(spec.resources),
        bytes(spec.node_selector) if ours else b"",
        bytes(spec.affinity) if ours else b"",
        bytes(spec.tolerations) if ours else b"",
        _status_key(pod.status) if spec.node_name else None,
    )
    if len(key[4]) + len(key[5]) + len(key[6]) > _LARGEST_KEPT_BYTES or len(key[0]) > 100 or len(key[1]) > 100:
        return _computed_class(key)
    return _cached_class(key)


def _container_keys(containers: list[Container] | None) -> tuple[_ContainerKey, ...]:
    return tuple([(each.name, bytes(each.resources), each.restart_policy) for each in containers or ()])


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


def _computed_class(key: _ClassKey) -> ReadClass:
    containers, init_containers, overhead, resources, node_selector, affinity, tolerations, status = key
    statuses, allocated, actual, conditions = status or ((), b"", b"", b"")
    by_name = {name: (one, other) for name, one, other in reversed(statuses)}
    problems: list[str] = []
    needs = PodNeeds(
        containers=tuple(_needs(each, by_name) for each in containers),
        init_containers=tuple(_needs(each, by_name) for each in init_containers),
        overhead=overhead,
        resources=resources,
        allocated=allocated,
        actual=actual,
        conditions=conditions,
    )
    requests = effective_requests(needs, problems)
    chosen = selection(node_selector, affinity, tolerations, problems)
    content = PodClass(
        "",
        requests,
        chosen.node_selector,
        chosen.required_node_affinity,
        chosen.preferred_node_affinity,
        chosen.tolerations,
    )
    return ReadClass(_shared(msgspec.json.encode(content)), "; ".join(problems))


_cached_class = lru_cache(maxsize=_CLASSES_KEPT)(_computed_class)


@lru_cache(maxsize=_CLASSES_KEPT)
def _shared(content: bytes) -> PodClass:
    """The class with this content (canonical JSON of a PodClass without id)."""
    return msgspec.structs.replace(
        msgspec.json.decode(content, type=PodClass), id=blake2b(content, digest_size=16).hexdigest()
    )


def _needs(container: _ContainerKey, statuses: Mapping[str, tuple[bytes, bytes]]) -> ContainerNeeds:
    name, resources, restart_policy = container
    allocated, actual = statuses.get(name, (b"", b""))
    return ContainerNeeds(name, resources, allocated, actual, restarts=restart_policy == "Always")
