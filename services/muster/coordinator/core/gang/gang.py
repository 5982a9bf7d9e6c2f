"""Gangs and gang groups: declaration, members, state, and what follows from them."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from muster.coordinator.core.effects import Phase
from muster.coordinator.core.events import Now, Record
from muster.coordinator.core.gang.members import Members
from muster.coordinator.core.gang.state import Attempts, BindTrouble, Growth, PermitState, RunTime, Timing
from muster.coordinator.core.gang.verdicts import Verdicts
from muster.coordinator.core.report.waits import Wait
from muster.coordinator.core.term_state import PreemptingGroup, monotonic_time
from muster.gangs.facts import GangFacts, LevelConstraint, MatchPolicy, ObjectReference, PodFacts
from muster.gangs.solve import Explanation, PodsOnNode

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
    run_time: RunTime = field(default_factory=RunTime)
    growth: Growth = field(default_factory=Growth)
    trusts_declarations: bool = False
    """The declared priority counts as a right to preempt, too (a setting for trusted clusters)."""

    # -- transitions that concern several values

    def restore(self, record: Record) -> None:
        """Take up what an earlier leader recorded."""
        self.permit.restore(record)
        self.attempts.restore(record)
        self.eviction.restore(record)

    def restart(self) -> None:
        """The gang loses its permit and returns to the queue, to start anew as a whole."""
        if self.run_ended and self.permit.fulfilled:  # a new run
            self.attempts = Attempts()
        else:
            self.attempts.restart()
        self.permit.revoke()
        self.growth = Growth()
        self.forget_lost()
        self.timing.restart()

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
        """As many members as must start together run without a permit: another scheduler bound them. Of a gang with
        subgroups these count, too: see `subgroups.is_bound_by_others`.
        """
        facts = self.facts
        if not self.bound or self.permit.granted or self.group.busy or self.eviction.whole:
            return False
        return facts is not None and not facts.blocked and len(self.bound) >= self.required

    @property
    def places(self) -> int:
        """Members that hold a place: they run, or have a seat."""
        return len(self.bound) + len(self.seats) + len(self.acknowledged) + len(self.eviction.pods)

    @property
    def has_begun(self) -> bool:
        """A member was bound: it is, or it is still there and has ended or is being deleted."""
        return bool(self.places) or any(pod.node for pod in self.pods.values())

    @property
    def run_ended(self) -> bool:
        """The gang was permitted, none of its members holds a place or has succeeded, and others wait: they belong to
        the next run, which starts whole (I1).
        """
        return self.permit.granted and bool(self.pending) and not self.places and not self.succeeded_to_stay

    @property
    def resumes(self) -> bool:
        """The gang has run whole, none of its members holds a place, and some have succeeded: those that wait start
        together, as many as the minimum lacks besides these (I1).
        """
        if not (self.succeeded and self.pending and self.permit.fulfilled) or self.places or self.facts is None:
            return False
        counts = self.facts.match_policy is not MatchPolicy.ONLY_WAITING
        return counts and 0 < self.succeeded_to_stay < self.facts.minimum

    @property
    def below_minimum(self) -> bool:
        """The gang runs with fewer members than its minimum; those that have succeeded count."""
        if not self.permit.granted or self.facts is None or not (places := self.places):
            return False
        return places + self.succeeded_to_stay < self.facts.minimum

    @property
    def met_minimum(self) -> int:
        """The last minimum that the run had: an edit that raises it does not make the gang one to be repaired."""
        if self.facts is None or not self.permit.granted:
            return 0
        return self.growth.met_minimum if self.below_minimum else self.facts.minimum

    @property
    def broken(self) -> bool:
        """The gang runs with fewer members than its minimum, and has lost some of those it had."""
        if not self.below_minimum or self.facts is None:
            return False
        return not self.growth.met_minimum or self.places + self.succeeded_to_stay < self.growth.met_minimum

    @property
    def raised_from(self) -> int:
        """The minimum that the run had before it was raised above what runs; 0: it was not, or the gang is broken."""
        met, facts = self.growth.met_minimum, self.facts
        if facts is None or not 0 < met < facts.minimum:  # the rest is not computed for each gang that runs
            return 0
        return met if self.below_minimum and not self.broken else 0

    @property
    def has_minimum(self) -> bool:
        """The gang has started and keeps its minimum without its pending members: they are surplus."""
        facts = self.facts
        if not self.permit.fulfilled or not self.permit.granted or facts is None or self.lost or facts.independent:
            return False
        if facts.match_policy is MatchPolicy.ONLY_WAITING:
            return False
        places = len(self.bound) + len(self.seats) + len(self.acknowledged)
        return places > 0 and places + self.succeeded_to_stay >= facts.minimum

    @property
    def succeeded_to_stay(self) -> int:
        """Members that have succeeded and are not being deleted."""
        return sum(not self.pods[uid].deleting for uid in self.succeeded)

    @property
    def member_count(self) -> int:
        """Pods that exist and may run: not ended, not being deleted, not gated, without a problem of their own."""
        return len(self.pending) + len(self.seats) + len(self.acknowledged) + len(self.bound)

    @property
    def placed_singly(self) -> bool:
        """Pending members are placed one by one: the gang is being repaired, or has started under match policy
        once-satisfied.
        """
        if not self.permit.granted or self.facts is None or self.resumes:
            return False
        return self.facts.match_policy is MatchPolicy.ONCE_SATISFIED or bool(self.lost) or not self.permit.fulfilled

    @property
    def counted(self) -> int:
        """Members that count toward the minimum."""
        facts, waiting = self.facts, len(self.pending) + len(self.seats)
        if facts is not None and facts.match_policy is MatchPolicy.ONLY_WAITING:
            return waiting
        return waiting + len(self.acknowledged) + len(self.bound)

    @property
    def required(self) -> int:
        """Members that must run at the same time. Succeeded members reduce it where the declaration counts them, or no
        other holds a place, and the rest cannot reach the minimum alone.
        """
        facts = self.facts
        if facts is None:
            return 1
        if not self.succeeded or self.counted >= facts.minimum or not (facts.counts_succeeded or self.resumes):
            return facts.minimum
        return max(1, facts.minimum - len(self.succeeded))

    @property
    def minimum_known(self) -> bool:
        """The declaration says how many members the gang needs; while it cannot be read, it needs all that it has."""
        return self.facts is not None and self.facts.minimum > 0

    @property
    def must_place(self) -> int:
        """The number of pending members that an attempt must place, at least."""
        if self.facts is None or self.placed_singly:
            return 1
        return max(1, self.missing)

    @property
    def must_place_to_run(self) -> int:
        """The number of pending members that must be placed for the minimum to run: pods are evicted for no fewer."""
        return max(1, self.missing) if self.lost or self.broken else self.must_place

    @property
    def batch(self) -> int:
        """Pending members that a request asks for at least: all surplus until the time of its batch is over, or as many
        as pods are being evicted for.
        """
        pending = len(self.pending)
        if not (self.permit.fulfilled and not self.growth.in_part(self.id) and self.has_minimum):
            return min(self.must_place, pending)
        return min(sum(each.count for each in self.nominated) or pending, pending)

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
        if self.permit.granted or self.facts is None or not (self.hold.marked or self.hold.marking):
            return False
        return self.counted < max(1, self.required)

    # -- for users

    @property
    def priority(self) -> int:
        """The declared priority, else the highest of the pods'."""
        if self.facts is not None and self.facts.priority is not None:
            return self.facts.priority
        return max(self.priorities, default=0)

    @property
    def preempting_priority(self) -> int:
        """The priority below which pods are evicted for the gang: the lowest that admission gave to one of its pods,
        so that none of them profits from the quota of another. Gated pods count: they may be placed next.
        """
        declared = self.facts.priority if self.trusts_declarations and self.facts is not None else None
        return declared if declared is not None else min(self.live_priorities, default=0)

    @property
    def protection(self) -> int:
        """The priority that a preemptor's must exceed to evict the gang: the highest of its pods'."""
        declared = self.facts.priority if self.trusts_declarations and self.facts is not None else None
        highest = max(self.live_priorities, default=0)
        return highest if declared is None else max(declared, highest)

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
            if self.seats or not self.permit.fulfilled:
                return Phase.BINDING
            return self._phase_of_run
        return Phase.TIMED_OUT if self.timed_out else self.group.phase

    @property
    def _phase_of_run(self) -> Phase:
        """Phase of a gang whose permit is fulfilled."""
        if not (self.places or self.pending):
            return Phase.ENDED
        minimum = self.facts.minimum if self.facts is not None else 0
        return Phase.SATISFIED if self.places + self.succeeded_to_stay >= minimum else Phase.REPAIRING


SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
"""Pods of system-cluster-critical and system-node-critical have at least this priority: they are never evicted."""

QueueKey = tuple[int, int, int, str, str]

SURPLUS = 2
"""First part of the position of groups whose pending members are surplus: behind all groups that lack their minimum."""

EquivalenceKey = Hashable
"""Solve request of a group without its names: groups with equal keys fit where the others do."""


class SolveState(Struct, gc=False):
    """The solve request under way for a group, and what placement said last."""

    solve_id: int | None = None
    alone: bool = False
    """Placement refused a request with several groups: this group is sent alone until it has an answer."""
    slow: bool = False
    """Placement ran out of time for the group: it is sent alone and in its turn until placement has a result."""
    borrows: bool = False
    """The group had no place without reserved capacity, and is tried with what may be lent to it."""
    yields: int = 0
    """Places in a row that were left to earlier groups of other namespaces."""
    explanation: Explanation | None = None
    """Why the group has no place, with the pods named."""
    solver_explanation: Explanation | None = None
    """The same as placement wrote it."""
    proved: bool = False
    """Placement proved that the group has no place; else it may only not have found one."""

    def begin(self, solve_id: int) -> None:
        self.solve_id = solve_id

    def end(self) -> None:
        self.solve_id = None

    def isolate(self) -> None:
        self.alone = True

    def answered(self, *, out_of_time: bool) -> None:
        self.alone, self.slow, self.yields = False, out_of_time, 0

    def slow_down(self) -> None:
        self.slow = True

    def borrow(self, *, now: bool) -> None:
        self.borrows = now

    def leave_place(self) -> None:
        """An earlier group of another namespace that was not in the request may have the place."""
        self.yields += 1

    def explain(self, solver_explanation: Explanation, explanation: Explanation) -> None:
        self.solver_explanation, self.explanation = solver_explanation, explanation

    def prove(self, *, proved: bool) -> None:
        self.proved = proved

    def placed(self) -> None:
        self.explanation = self.solver_explanation = None


class QueueState(Struct, gc=False):
    """How a group waits in the queue."""

    equivalence_key: EquivalenceKey | None = None
    """Key of a group that was proved to have no place; None: it was not, or asks for something else by now."""
    backoffs: int = 0
    """Attempts in a row whose outcome could not be used."""
    failure: str = ""
    """Why the last attempt failed, other than for lack of capacity; empty: it did not."""
    surplus: bool = False
    """The group had its last place in the queue as surplus."""

    def classify(self, key: EquivalenceKey | None) -> None:
        self.equivalence_key = key

    def back_off(self) -> None:
        self.backoffs += 1

    def reset_backoff(self) -> None:
        self.backoffs = 0

    def restore(self, backoffs: int) -> None:
        self.backoffs = backoffs

    def fail(self, message: str) -> None:
        self.failure = message

    def rank(self, *, surplus: bool) -> None:
        self.surplus = surplus


@dataclass(slots=True)
class PreemptionState:
    """Results of preemption and of backfill reservations for a group, and the group that it yields to."""

    not_before: float = 0.0
    """Monotonic time before which no preemption is tried."""
    plans_in_vain: int = 0
    """Plans in a row whose evictions had begun and whose capacity the group did not get, or lost at once."""
    gained_at: float | None = None
    """Monotonic time at which the group got seats for which pods were evicted; None: settled, or it never did."""
    gained: dict[str, int] = field(default_factory=dict)
    """Places that its gangs had then, by id."""
    reservations_in_vain: int = 0
    """Backfill reservations in a row that ended before the group could start."""
    no_reservation_before: float = 0.0
    """Monotonic time before which no capacity is reserved for the group, since a reservation for it expired."""
    yields_to: "Group | None" = None
    """The group for which this group gave up its reservations: it is not tried before that has started or timed out."""

    def postpone(self, until: float) -> None:
        self.not_before = max(self.not_before, until)

    def restore(self, state: PreemptingGroup, now: Now) -> None:
        self.not_before = monotonic_time(state.not_before, now)
        self.plans_in_vain, self.reservations_in_vain = state.plans_in_vain, state.reservations_in_vain
        self.no_reservation_before = monotonic_time(state.no_reservation_before, now)
        self.gained_at = monotonic_time(state.gained_at, now) if state.gained_at is not None else None
        self.gained = dict(state.gained)

    def fail(self) -> None:
        self.plans_in_vain += 1

    def fail_reservation(self) -> None:
        self.reservations_in_vain += 1

    def postpone_reservation(self, until: float) -> None:
        self.no_reservation_before = max(self.no_reservation_before, until)

    def inherit(self, earlier: "PreemptionState", gang_id: str) -> None:
        """A gang of the group comes from another one: an edit of its group does not end a pause."""
        self.postpone(earlier.not_before)
        self.postpone_reservation(earlier.no_reservation_before)
        self.plans_in_vain = max(self.plans_in_vain, earlier.plans_in_vain)
        self.reservations_in_vain = max(self.reservations_in_vain, earlier.reservations_in_vain)
        if earlier.gained_at is not None:
            self.gained_at = max(earlier.gained_at, self.gained_at or earlier.gained_at)
            self.gained[gang_id] = earlier.gained.get(gang_id, 0)

    def succeed(self) -> None:
        """The group got its seats."""
        self.reservations_in_vain, self.no_reservation_before = 0, 0.0
        self.settle_gain(kept=True)

    def gain(self, gained_at: float, places: dict[str, int]) -> None:
        """The same, but pods were evicted for them: the group may still lose them."""
        self.reservations_in_vain, self.no_reservation_before = 0, 0.0
        self.gained_at, self.gained = gained_at, places

    def settle_gain(self, *, kept: bool) -> None:
        """The group kept the seats for which pods were evicted, or lost them at once."""
        self.gained_at, self.gained = None, {}
        self.plans_in_vain = 0 if kept else self.plans_in_vain + 1

    def yield_to(self, group: "Group | None") -> None:
        self.yields_to = group


@dataclass(slots=True, eq=False)
class Group:
    """Gangs that are placed together: the gangs of one gang group that have no permit yet, or one gang alone."""

    id: str
    gangs: list[Gang] = field(default_factory=list)
    not_ready: str | None = None
    """Why the group fails the pre-enqueue check; None: it passes."""
    not_ready_wait: Wait | None = None
    """The wait that `not_ready` stands for."""
    persist_id: int | None = None
    """The write of its permit, while that is not durable."""
    edited: bool = False
    """The group changed while a solve or a write was under way, whose outcome may be out of date."""
    solve: SolveState = field(default_factory=SolveState)
    queueing: QueueState = field(default_factory=QueueState)
    preemption: PreemptionState = field(default_factory=PreemptionState)
    verdicts: Verdicts = field(default_factory=Verdicts)

    def inherit_pause(self, gang: Gang) -> None:
        """Note the pause of the group that the gang is in, which it leaves for this one."""
        self.preemption.inherit(gang.group.preemption, gang.id)

    @property
    def key(self) -> QueueKey:
        """Position in the queue: started gangs under repair first (I6), surplus last, then priority, age, name."""
        return (self._order, -self.priority, *self._age)

    @property
    def _order(self) -> int:
        repairing = any(gang.lost for gang in self.gangs)
        return 0 if repairing else SURPLUS if self.surplus else 1

    @property
    def _age(self) -> tuple[int, str, str]:
        return _age(self.gangs[0]) if len(self.gangs) == 1 else min(map(_age, self.gangs))

    @property
    def surplus(self) -> bool:
        """The pending members are above the minimum of their gang, which runs."""
        return len(self.gangs) == 1 and self.gangs[0].has_minimum

    @property
    def admitted_key(self) -> QueueKey:
        """Position among groups that block each other, by repairs or by reservations, of which the first keeps its
        places: as `key`, but by the priority that admission gave to all of its pods. A declared one would let a tenant
        never yield (I13).
        """
        return (self._order, -min([gang.preempting_priority for gang in self.gangs]), *self._age)

    @property
    def priority(self) -> int:
        """The highest priority of its gangs."""
        return max([gang.priority for gang in self.gangs])

    @property
    def preempting_priority(self) -> int:
        """The priority below which pods are evicted for the group: the lowest of its gangs to place."""
        return lowest_preempting_priority(self.gangs_to_place)

    @property
    def busy(self) -> bool:
        """A solve or the write of its permit is under way; the group keeps its gangs meanwhile."""
        return self.solve.solve_id is not None or self.persist_id is not None

    @property
    def non_strict(self) -> bool:
        """The group's gangs hold reservations until all have their minimum (NonStrict). The strictest gang decides."""
        gangs = self.gangs
        return _is_non_strict(gangs[0]) if len(gangs) == 1 else all(map(_is_non_strict, gangs))

    @property
    def holds(self) -> bool:
        """Gangs of it have reservations without a permit."""
        return any(map(_holds, self.gangs))

    @property
    def holds_minimum(self) -> bool:
        """The group non_strict, and every gang has its minimum."""
        return self.non_strict and all(gang.missing <= 0 for gang in self.gangs)

    @property
    def gangs_to_place(self) -> list[Gang]:
        """Gangs with pending members. Members of accumulating gangs beyond the minimum are placed after the start."""
        waiting = [gang for gang in self.gangs if gang.pending]
        return [gang for gang in waiting if gang.missing > 0] if waiting and self.non_strict else waiting

    @property
    def wants_seats(self) -> bool:
        """There are members to place, and no solve or write is under way."""
        return not self.busy and self.not_ready is None and bool(self.gangs_to_place)

    @property
    def phase(self) -> Phase:
        """Phase of its gangs while they have no permit."""
        if self.persist_id is not None:
            return Phase.PERMITTED
        if self.holds:
            return Phase.WAITING
        if self.solve.solve_id is not None:
            return Phase.SOLVING
        queued = self.not_ready is None or self.preemption.yields_to is not None
        return Phase.QUEUED if queued else Phase.GATHERING


def lowest_preempting_priority(gangs: Iterable[Gang]) -> int:
    """0 if there are none."""
    return min([gang.preempting_priority for gang in gangs], default=0)


def _is_non_strict(gang: Gang) -> bool:
    facts = gang.facts
    return facts is not None and not facts.starts_whole and not gang.permit.granted


def _holds(gang: Gang) -> bool:
    return bool(gang.seats) and not gang.permit.granted


def _age(gang: Gang) -> tuple[int, str, str]:
    facts = gang.facts
    return (facts.created_seconds, facts.namespace, facts.name) if facts is not None else (0, "", gang.id)


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
