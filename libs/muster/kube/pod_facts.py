"""Converts pods to facts."""

from collections.abc import Collection, Iterable, Mapping
from sys import intern
from typing import Final

from msgspec import Struct

from muster.dialects import eviction_order, muster_annotations
from muster.dialects.registry import wanted_rank
from muster.gangs.facts import PodFacts, PodPhase
from muster.kube.objects import Pod, PodSpec, PriorityClass
from muster.kube.pod_class import ReadClass, read_class
from muster.kube.timestamps import BadTimestamp, parse_timestamp

DEFAULT_SCHEDULER: Final = "default-scheduler"
"""Default of spec.schedulerName."""

_PHASES: Final[Mapping[str | None, PodPhase]] = {
    "Pending": PodPhase.PENDING,
    "Running": PodPhase.RUNNING,
    "Succeeded": PodPhase.SUCCEEDED,
    "Failed": PodPhase.FAILED,
}
_PENDING: Final = PodPhase.PENDING
_BUILT_IN_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NEVER: Final = "Never"


class Priorities(Struct, frozen=True):
    """Priority classes: values by name, and the default; `never_preempt`: names of classes with that policy."""

    values: Mapping[str, int] = {}
    default: int = 0
    never_preempt: frozenset[str] = frozenset()
    default_never_preempts: bool = False

    @classmethod
    def of(cls, classes: Iterable[PriorityClass]) -> "Priorities":
        """The classes of a cluster; of several global defaults the lowest value applies, as in Kubernetes."""
        known = list(classes)
        default = min((each for each in known if each.global_default), key=_rank, default=PriorityClass())
        return cls(
            {each.metadata.name: each.value for each in known},
            default.value,
            frozenset(each.metadata.name for each in known if each.preemption_policy == _NEVER),
            default.preemption_policy == _NEVER,
        )

    @property
    def by_name(self) -> Mapping[str, int]:
        """Values by name, built-in classes included."""
        return {**_BUILT_IN_PRIORITIES, **self.values}

    def of_pod(self, spec: PodSpec) -> int:
        """The pod's priority, as set by admission or as admission would set it."""
        if spec.priority is not None:
            return spec.priority
        name = spec.priority_class_name
        if not name:
            return self.default
        value = self.values.get(name)
        return _BUILT_IN_PRIORITIES.get(name, self.default) if value is None else value

    def never_preempts(self, spec: PodSpec) -> bool:
        """Whether the pod's preemption policy, as set by admission or as admission would set it, is Never."""
        if spec.preemption_policy is not None:
            return spec.preemption_policy == _NEVER
        if spec.priority_class_name:
            return spec.priority_class_name in self.never_preempt
        return spec.priority is None and self.default_never_preempts

    @staticmethod
    def are_relevant_to(spec: PodSpec) -> bool:
        """Whether the pod depends on the classes, because admission did not set everything."""
        return spec.priority is None or (spec.preemption_policy is None and bool(spec.priority_class_name))


def pod_facts(
    pod: Pod,
    scheduler_names: Collection[str],
    priorities: Priorities,
    gang: str = "",
    problem: str = "",
    *,
    timed_out: bool = False,
    budgets: tuple[str, ...] = (),
    label_set: str = "",
) -> tuple[PodFacts, ReadClass]:
    """The facts of a pod as far as they follow from the pod alone, and its class.

    `gang`, `problem` and `timed_out` are results of the dialects, `budgets` the ids of the budgets that cover the pod,
    `label_set` the id of its label set. Further problems of the pod are added to `problem`. Raises BadResourceVersion.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    scheduler_name = spec.scheduler_name or DEFAULT_SCHEDULER
    ours = scheduler_name in scheduler_names
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
        # Pods get a start time while pending; it is published with the change to Running, not by itself.
        if status.start_time and phase is not _PENDING:
            started = parse_timestamp(status.start_time)
    except BadTimestamp as error:
        problems.append(f"status.startTime: {error}")
    deadline, member = spec.active_deadline_seconds, bool(gang) and ours
    annotated = muster_annotations.expected_seconds(metadata.annotations) if ours and metadata.annotations else 0.0
    facts = PodFacts(  # positional: Python builds a dictionary for more than 15 keyword arguments
        metadata.uid,
        intern(metadata.namespace),  # one string for all pods of a namespace
        metadata.name,
        read.pod_class.id,
        metadata.revision,
        node=intern(spec.node_name) if spec.node_name else "",  # likewise of a node, and of a gang
        label_set=label_set,
        phase=phase,
        priority=priorities.of_pod(spec),
        created_seconds=created,
        ours=ours,
        gang=intern(gang) if ours else "",
        deleting=metadata.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        problem="; ".join(problems),
        timed_out=timed_out and ours,
        never_preempts=priorities.never_preempts(spec),
        expected_seconds=_shorter(annotated, deadline) if deadline else annotated,
        started_seconds=started,
        budgets=budgets,
        wanted_rank=wanted_rank(gang, metadata.annotations, metadata.labels) if member else -1,
        scheduler_name="" if ours else intern(scheduler_name),
        deletion_cost=eviction_order.deletion_cost(metadata.annotations, metadata.labels) if member else 0,
        ordinal=eviction_order.ordinal(metadata.annotations, metadata.labels) if member else 0,
        uncontrolled=member and not metadata.controller,
        nominated_node=status.nominated_node_name or "" if ours and not spec.node_name else "",
    )
    return facts, read


def _shorter(annotated: float, deadline: int) -> float:
    """The shorter time in seconds; an annotation of 0 and a negative deadline count as absent."""
    if deadline < 0:
        return annotated
    return min(annotated, float(deadline)) if annotated else float(deadline)


def _rank(each: PriorityClass) -> tuple[int, str]:
    return each.value, each.metadata.name
