"""A gang as the coordinator sees it, with its phase derived from what is known."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.coordinator.core.effects import Phase
from muster.coordinator.core.events import Record
from muster.coordinator.core.gang.members import Members
from muster.coordinator.core.gang.schedule_cycle import ScheduleCycle
from muster.gangs.facts import GangFacts, LevelConstraint, MatchPolicy, ObjectReference, PodFacts
from muster.gangs.solve import PodsOnNode

if TYPE_CHECKING:
    from muster.coordinator.core.gang.group import Group

PLAIN = "plain"
"""The dialect of pods without any mark: gangs of one."""


@dataclass(slots=True, eq=False)
class Gang(Members):
    """One gang: what it declares, how it has fared, and what follows for the members that it has."""

    id: str
    group: "Group"
    facts: GangFacts | None = None
    constraints: tuple[LevelConstraint, ...] = ()
    """Those that it declares, on the levels of its tree."""
    timed_out_declaration: str = ""
    """What it declared when it had waited too long; a gang that declares something else by now is tried again."""
    repairing_since: float | None = None
    kept_room: tuple[PodsOnNode, ...] = ()
    """Room that is kept for its group, kept with the first gang of it."""
    bind_trouble: str = ""
    """What kept binding, at the last failure, from binding some of `seats`; empty: nothing."""
    avoided: set[str] = field(default_factory=set)
    """Nodes on which pods could not be bound, as long as there is trouble."""
    permitted: bool = False
    started: bool = False
    """All of the first permit's pods were seen bound once."""
    record: Record | None = None
    """What is, or is about to be, in etcd."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Ranks by uid, as they are known to be durable."""
    cycle: ScheduleCycle = field(default_factory=ScheduleCycle)
    attempts: int = 0
    """Tries so far in this term."""
    earlier_tries: int = 0
    """Tries in earlier terms, as far as they were recorded."""
    permitted_tries: int = 0
    """Tries until its last permit, as they are known to be durable."""
    began_unix: float = 0.0
    """When all that must start together was there for the first time since it was last taken back; 0: never, or not
    known. So is `ended_unix`: when all of that was bound.
    """
    ended_unix: float = 0.0
    solver_seconds: float = 0.0
    """For so long placement had questions of its group, in this term."""
    preempted_by: str = ""
    """Id of the gang that the whole of it was evicted for, until it could start again."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Answers of placement that were not taken, in this term, by reason."""
    first_seen: float | None = None
    start_seconds: float | None = None
    """From when it was first seen to the last bind, in this term; None if it came to its end before the term looked."""

    @property
    def plain(self) -> bool:
        """A single pod without marks."""
        return self.facts is not None and self.facts.dialect == PLAIN

    @property
    def started_by_others(self) -> bool:
        """As many members as must start together run without a permit: somebody else bound them."""
        facts = self.facts
        if self.permitted or self.group.busy or self.leaves_whole or facts is None or facts.blocked:
            return False
        return len(self.bound) >= max(1, self.needed)

    @property
    def run_is_over(self) -> bool:
        """It was permitted, nothing is left of that, and it is one that starts anew then."""
        left = self.members or self.leaving or self.succeeded or self.marked or self.timing_out
        return self.permitted and self.facts is not None and self.facts.starts_anew and not left

    @property
    def members(self) -> int:
        """Pods that exist and may run: not ended, not being deleted, not gated, nothing wrong with them."""
        return len(self.waiting) + len(self.seats) + len(self.acked) + len(self.bound)

    @property
    def single(self) -> bool:
        """Its waiting members go one by one: it is being repaired, or has started and its match policy asks no more."""
        if not self.permitted or self.facts is None:
            return False
        return self.facts.match_policy is MatchPolicy.ONCE_SATISFIED or bool(self.lost) or not self.started

    @property
    def counted(self) -> int:
        """Members that count toward the minimum."""
        only_waiting = self.facts is not None and self.facts.match_policy is MatchPolicy.ONLY_WAITING
        return len(self.waiting) + len(self.seats) if only_waiting else self.members

    @property
    def needed(self) -> int:
        """How many members must run at the same time. Where those count that succeeded, and those that are left cannot
        reach the minimum alone, they need not.
        """
        facts = self.facts
        if facts is None:
            return 1
        if not facts.counts_succeeded or not self.succeeded or self.counted >= facts.minimum:
            return facts.minimum
        return max(1, facts.minimum - len(self.succeeded))

    @property
    def minimum(self) -> int:
        """How many waiting members a try must place."""
        if self.facts is None or self.single:
            return 1
        return max(1, self.lacking)

    @property
    def lacking(self) -> int:
        """How many more members must have a seat before it may start; none if 0 or less."""
        return self.needed - (self.counted - len(self.waiting))

    @property
    def tries(self) -> int:
        """How often it was tried."""
        return self.earlier_tries + self.attempts

    @property
    def all_there(self) -> bool:
        """It is declared, and all that must start together is there."""
        facts = self.facts
        return facts is not None and not facts.blocked and self.counted >= max(1, self.needed)

    @property
    def timed_out(self) -> bool:
        """It waited too long, and so many pods bear the mark of that, or are about to, that it cannot be tried."""
        if self.permitted or self.facts is None or not (self.marked or self.timing_out):
            return False
        return self.counted < max(1, self.needed)

    @property
    def priority(self) -> int:
        """The declared priority, else the highest of the pods'."""
        if self.facts is not None and self.facts.priority is not None:
            return self.facts.priority
        return max((priority for priority, count in self.priorities.items() if count > 0), default=0)

    @property
    def label(self) -> str:
        """Name for people: namespace/name."""
        return f"{self.facts.namespace}/{self.facts.name}" if self.facts is not None else self.id

    @property
    def reference(self) -> ObjectReference | None:
        """The object on which the user looks for the gang: its definition, else its first pod."""
        if self.facts is not None and self.facts.definition is not None:
            return self.facts.definition
        if not self.pods:
            return None
        pod = min(self.pods.values(), key=lambda pod: (pod.created_seconds, pod.name))
        return pod_reference(pod)

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        if self.permitted:
            if self.lost:
                return Phase.REPAIRING
            return Phase.BINDING if self.seats or not self.started else Phase.SATISFIED
        return Phase.TIMED_OUT if self.timed_out else self.group.phase


def pod_reference(pod: PodFacts) -> ObjectReference:
    """The pod as an object of events."""
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
