"""A gang: its declaration, its members and its state, and what follows from them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.coordinator.core.effects import Phase
from muster.coordinator.core.events import Record
from muster.coordinator.core.gang.members import Members
from muster.coordinator.core.gang.state import Attempts, BindTrouble, PermitState, Timing
from muster.gangs.facts import GangFacts, LevelConstraint, MatchPolicy, ObjectReference, PodFacts
from muster.gangs.solve import PodsOnNode

if TYPE_CHECKING:
    from muster.coordinator.core.gang.group import Group

PLAIN = "plain"
"""The dialect of pods without any mark: gangs of one."""


@dataclass(slots=True, eq=False)
class Gang(Members):
    """One gang. Its phase is derived, never stored."""

    id: str
    group: "Group"
    facts: GangFacts | None = None
    """The gang's declaration; None while its definition has not been observed."""
    constraints: tuple[LevelConstraint, ...] = ()
    """The declared topology constraints, on the levels of the gang's tree."""
    nominated: tuple[PodsOnNode, ...] = ()
    """Capacity nominated for its group, recorded with the first gang of the group."""
    attempts: Attempts = field(default_factory=Attempts)
    permit: PermitState = field(default_factory=PermitState)
    bind: BindTrouble = field(default_factory=BindTrouble)
    timing: Timing = field(default_factory=Timing)

    # -- transitions that concern several values

    def restore(self, record: Record) -> None:
        """Take up what an earlier leader recorded."""
        self.permit.restore(record)
        self.attempts.restore(record)
        self.eviction.restore(record)

    def restart(self) -> None:
        """The gang loses its permit and returns to the queue, to start anew as a whole."""
        self.permit.revoke()
        self.forget_lost()
        self.timing.restart()
        self.attempts.restart()

    # -- counting members

    @property
    def plain(self) -> bool:
        """A single pod without marks."""
        return self.facts is not None and self.facts.dialect == PLAIN

    @property
    def permitted(self) -> bool:
        return self.permit.granted

    @property
    def started(self) -> bool:
        """All pods of the first permit were bound once."""
        return self.permit.fulfilled

    @property
    def bound_by_others(self) -> bool:
        """As many members as must start together run without a permit: another scheduler bound them."""
        facts = self.facts
        if self.permit.granted or self.group.busy or self.eviction.whole or facts is None or facts.blocked:
            return False
        return len(self.bound) >= max(1, self.required)

    @property
    def run_ended(self) -> bool:
        """The gang was permitted, no member of that run is left, and its dialect starts it anew then."""
        left = self.member_count or self.eviction.pods or self.succeeded or self.hold.marked or self.hold.timing_out
        return self.permit.granted and self.facts is not None and self.facts.starts_anew and not left

    @property
    def member_count(self) -> int:
        """Pods that exist and may run: not ended, not being deleted, not gated, without a problem of their own."""
        return len(self.pending) + len(self.seats) + len(self.acknowledged) + len(self.bound)

    @property
    def placed_singly(self) -> bool:
        """Pending members are placed one by one: the gang is being repaired, or has started under match policy
        once-satisfied.
        """
        if not self.permit.granted or self.facts is None:
            return False
        return self.facts.match_policy is MatchPolicy.ONCE_SATISFIED or bool(self.lost) or not self.permit.fulfilled

    @property
    def counted(self) -> int:
        """Members that count toward the minimum."""
        only_waiting = self.facts is not None and self.facts.match_policy is MatchPolicy.ONLY_WAITING
        return len(self.pending) + len(self.seats) if only_waiting else self.member_count

    @property
    def required(self) -> int:
        """Members that must run at the same time. Succeeded members reduce it where the declaration counts them and the
        rest cannot reach the minimum alone.
        """
        facts = self.facts
        if facts is None:
            return 1
        if not facts.counts_succeeded or not self.succeeded or self.counted >= facts.minimum:
            return facts.minimum
        return max(1, facts.minimum - len(self.succeeded))

    @property
    def minimum(self) -> int:
        """Pending members that an attempt must place."""
        if self.facts is None or self.placed_singly:
            return 1
        return max(1, self.missing)

    @property
    def missing(self) -> int:
        """Further members that must have a seat before the gang may start; none if 0 or less."""
        return self.required - (self.counted - len(self.pending))

    @property
    def all_present(self) -> bool:
        """The gang is declared, and all members that must start together exist."""
        facts = self.facts
        return facts is not None and not facts.blocked and self.counted >= max(1, self.required)

    @property
    def timed_out(self) -> bool:
        """The gang waited too long, and so many pods are or will be marked for that that it cannot be tried."""
        if self.permit.granted or self.facts is None or not (self.hold.marked or self.hold.timing_out):
            return False
        return self.counted < max(1, self.required)

    # -- for users

    @property
    def priority(self) -> int:
        """The declared priority, else the highest of the pods'."""
        if self.facts is not None and self.facts.priority is not None:
            return self.facts.priority
        return max((priority for priority, count in self.priorities.items() if count > 0), default=0)

    @property
    def label(self) -> str:
        """namespace/name."""
        return f"{self.facts.namespace}/{self.facts.name}" if self.facts is not None else self.id

    @property
    def reference(self) -> ObjectReference | None:
        """The object on which users look for the gang: its definition, else its first pod."""
        if self.facts is not None and self.facts.definition is not None:
            return self.facts.definition
        if not self.pods:
            return None
        pod = min(self.pods.values(), key=lambda pod: (pod.created_seconds, pod.name))
        return pod_reference(pod)

    @property
    def phase(self) -> Phase:
        if self.permit.granted:
            if self.lost:
                return Phase.REPAIRING
            return Phase.BINDING if self.seats or not self.permit.fulfilled else Phase.SATISFIED
        return Phase.TIMED_OUT if self.timed_out else self.group.phase


def pod_reference(pod: PodFacts) -> ObjectReference:
    """The pod as the object of an event."""
    return ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid)


def plain_facts(pod: PodFacts) -> GangFacts:
    """A pod without marks as a gang of one."""
    return GangFacts(
        id=f"{PLAIN}/{pod.namespace}/{pod.name}",
        dialect=PLAIN,
        namespace=pod.namespace,
        name=pod.name,
        incarnation=pod.uid,
        minimum=1,
        total=1,
        created_seconds=pod.created_seconds,
    )
