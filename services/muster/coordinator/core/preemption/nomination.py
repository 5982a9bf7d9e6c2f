"""Nominations: capacity of nodes that is withheld from other groups until one group can use it.

As nodes with `nominatedNodeName` in kube-scheduler, the nodes are chosen before their capacity is free: a preemptor
waits until its victims have left (`preemption/plan`), a starving group until running pods have ended
(`backfill/reservation`, with `Nomination.backfill`). Unlike there, a nomination is for all members of a group, by node
and class, and it is binding: solve requests of other groups carry it as capacity that they may not use, except those
that may go first, end in time, or give it back (`open_to`, `elastic/loans`). The group itself is solved again when the
capacity is free; it may then start anywhere. A preemptor's nomination is recorded in etcd with its plan.

`Plan` and `Victims` name the pods that a preemption evicts. The events that report all this are at the end.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.effects import Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import Now, Seat
from muster.coordinator.core.gang.gang import SYSTEM_CRITICAL_PRIORITY, Gang, Group
from muster.coordinator.core.term_state import (
    NominatedGroup,
    monotonic_time_or_never,
    unix_time,
    unix_time_if_finite,
)
from muster.gangs.capacity import Int64
from muster.gangs.facts import PodFacts
from muster.gangs.solve import NominatedCapacity, PodsOnNode

MAX_TAKERS = 5


@dataclass(slots=True, eq=False)
class Nomination:
    """Where a group is to start, and which pods have to leave before."""

    group: Group
    owner: str
    """Id of the gang of the group in whose record it is."""
    capacity: Counter[tuple[str, str]]
    """Members by node and class."""
    leaving: set[str] = field(default_factory=set)
    """Uids of pods that are to leave: victims, or pods that are expected to end."""
    victims: list[Gang] = field(default_factory=list)
    """Gangs of which pods are evicted for it."""
    evictions_begun: bool = False
    """Evictions have begun."""
    backfill: bool = False
    """A backfill reservation: pods end by themselves, and groups that end in time may use the capacity until then."""
    lends: bool = False
    """Surplus of others may use the capacity until the group needs it (`elastic/loans`)."""
    lent: set[str] = field(default_factory=set)
    """Uids of surplus pods that were placed on the capacity, some of `leaving`. The list ends with the nomination."""
    recalled: frozenset[str] = frozenset()
    """Pods of `lent` that ran when only they were left, and the group was activated to have them evicted."""
    revoked_from: set[Gang] = field(default_factory=set)
    """Gangs of `victims` that lose pods because the capacity was lent to them, whatever their priority."""
    starts_at: float = math.inf
    """Monotonic time at which the last of `leaving` is expected to have ended; infinite: not known."""
    held_before: frozenset[str] = frozenset()
    """Uids of members that had a seat before: the nomination is not for them."""
    namespace: str = ""
    """The namespace of the group, which may be gone when the nomination ends."""
    served: bool = False
    """The group got its seats."""
    used: bool = False
    """The same, and the rest of the capacity is not needed any more."""
    overtaken: bool = False
    """An earlier group in the queue took some of the capacity."""
    topology: tuple[object, ...] = ()
    """Topology trees and constraints by which it was chosen."""
    begun_at: float = 0.0
    """Monotonic time since which the capacity is withheld."""
    expires_at: float = math.inf
    """Monotonic time at which it ends if the group did not get its seats, whoever is to blame (I13)."""
    expired: bool = False
    takers: list[str] = field(default_factory=list)
    """Pods of others that arrived on its nodes since evictions began, in words; at most MAX_TAKERS."""
    ready: bool = False
    """All victims are gone, and the group was activated."""

    def open_to(self, group: Group, now: float) -> bool:
        """The group may use the capacity: the nomination is its own; or is a backfill reservation, and the group is
        earlier in the queue, ends in time or can be evicted at once.
        """
        if group is self.group or not self.group.gangs:
            return True
        if not self.backfill:
            return False
        return group.admitted_key < self.group.admitted_key or self.outlasts(group, now) or self.lends_to(group)

    def lends_to(self, group: Group) -> bool:
        """The group's members may be placed on the capacity until it is needed: they have no other place."""
        return self.lends and group.solve.borrows and may_borrow(group)

    def outlasts(self, group: Group, now: float) -> bool:
        """The group, started now, ends before the capacity is needed. An accumulating group may not start now."""
        return not group.non_strict and now + longest_run(group) <= self.starts_at < math.inf

    def vectors(self, ledger: Ledger) -> dict[str, Int64]:
        """Capacity withheld from others, int64[resources] by node: less what leaving pods hold there, and what the
        group holds there already.
        """
        vectors = self._needed(ledger)
        for node, amounts in _held(self._leaving_or_arrived(), ledger):
            if node in vectors:
                vectors[node] = vectors[node] - amounts
        return {node: np.maximum(vector, 0) for node, vector in vectors.items()}

    def feasible(self, ledger: Ledger) -> bool:
        """The nodes exist, pass the filters, and will have the capacity when the leaving pods are gone."""
        for node, class_id in self.capacity:
            if node not in ledger.nodes or ledger.why_unfit(node, class_id) is not None:
                return False
        leaving = {node: -amounts for node, amounts in _held(self._leaving_or_arrived(), ledger)}
        return ledger.refusal(self.capacity, leaving) is None

    def lend(self, seats: Sequence[Seat], ledger: Ledger) -> None:
        """Note which of the seats of a group use capacity of the nomination."""
        again = self.lent.intersection(seat.uid for seat in seats)
        self.lent -= again
        self.leaving -= again
        leaving = {node: -amounts for node, amounts in _held(self._leaving_or_arrived(), ledger)}
        on_node: dict[str, Counter[tuple[str, str]]] = {}
        for (node, class_id), count in self.capacity.items():
            on_node.setdefault(node, Counter())[node, class_id] = count
        short = {node for node, part in on_node.items() if ledger.refusal(part, leaving) is not None}
        lent = [seat.uid for seat in seats if seat.node in short]
        self.lent.update(lent)
        self.leaving.update(lent)

    @property
    def arrived(self) -> list[Seat]:
        """Seats that the group holds in the nominated capacity already."""
        seats = (held.seat for gang in self.group.gangs if not gang.permit.granted for held in gang.seats.values())
        return [
            seat for seat in seats if seat.uid not in self.held_before and (seat.node, seat.class_id) in self.capacity
        ]

    def _leaving_or_arrived(self) -> list[str]:
        return [*self.leaving, *(seat.uid for seat in self.arrived)]

    def _needed(self, ledger: Ledger) -> dict[str, Int64]:
        capacity = ledger.capacity
        needed: dict[str, Int64] = {}
        for (node, class_id), count in self.capacity.items():
            amounts = capacity.vectors[capacity.classes[class_id]] * count
            needed[node] = needed[node] + amounts if node in needed else amounts
        return needed

    def all_left(self, ledger: Ledger) -> bool:
        """No leaving pod holds capacity any more."""
        return not self.remaining(ledger)

    def remaining(self, ledger: Ledger) -> list[str]:
        """Uids of leaving pods that still hold capacity."""
        return [uid for uid in self.leaving if ledger.capacity.seated_on(uid) is not None]

    def note_arrivals(self, pods: Sequence[PodFacts]) -> None:
        """Other pods than were expected arrived on nodes: they may take what was freed for the group."""
        nodes = {node for node, _ in self.capacity}
        for pod in pods:
            if pod.node in nodes and len(self.takers) < MAX_TAKERS:
                scheduler = "" if pod.ours else f" of scheduler {pod.scheduler_name}"
                self.takers.append(f"pod {pod.namespace}/{pod.name}{scheduler} on node {pod.node}")

    def share(self, ledger: Ledger) -> tuple[float, str]:
        """The largest share of a resource of the cluster that it withholds, and which resource that is."""
        capacity = ledger.capacity
        names = {column: name for name, column in capacity.resources.items()}
        needed = sum(self._needed(ledger).values(), np.zeros(capacity.allocatable.shape[1], np.int64))
        in_all = capacity.allocatable.sum(axis=0, dtype=np.float64)
        shares = [(float(needed[c] / in_all[c]), names[c]) for c in np.flatnonzero(needed).tolist() if in_all[c] > 0]
        return max(shares, default=(0.0, ""))

    @property
    def members(self) -> Counter[str]:
        """Members that the capacity is for, by class."""
        members: Counter[str] = Counter()
        for (_, class_id), count in self.capacity.items():
            members[class_id] += count
        return members

    @property
    def recorded(self) -> tuple[PodsOnNode, ...]:
        """The capacity as it is recorded in etcd."""
        return tuple(PodsOnNode(node, class_id, count) for (node, class_id), count in sorted(self.capacity.items()))


def remembered(nomination: Nomination, now: Now) -> NominatedGroup:
    """The nomination as a value."""
    return NominatedGroup(
        nomination.group.id,
        nomination.owner,
        tuple((node, class_id, count) for (node, class_id), count in nomination.capacity.items()),
        tuple(sorted(nomination.leaving)),
        tuple(gang.id for gang in nomination.victims),
        nomination.evictions_begun,
        nomination.backfill,
        nomination.lends,
        tuple(sorted(nomination.lent)),
        tuple(sorted(nomination.recalled)),
        tuple(sorted(gang.id for gang in nomination.revoked_from)),
        unix_time_if_finite(nomination.starts_at, now),
        tuple(sorted(nomination.held_before)),
        nomination.overtaken,
        unix_time(nomination.begun_at, now),
        unix_time_if_finite(nomination.expires_at, now),
        nomination.ready,
    )


def resumed(state: NominatedGroup, group: Group, gangs: Mapping[str, Gang], now: Now) -> Nomination:
    """The reverse; without topology and times, which it gets when it is nominated."""
    return Nomination(
        group,
        state.owner,
        Counter({(node, class_id): count for node, class_id, count in state.capacity}),
        set(state.leaving),
        [gangs[id_] for id_ in state.victims if id_ in gangs],
        state.evictions_begun,
        state.backfill,
        state.lends,
        set(state.lent),
        frozenset(state.recalled),
        {gangs[id_] for id_ in state.revoked_from if id_ in gangs},
        monotonic_time_or_never(state.starts_at, now),
        frozenset(state.held_before),
        overtaken=state.overtaken,
        ready=state.ready,
    )


def may_preempt(group: Group) -> bool:
    """Neither its gangs nor its pending members have preemption policy Never."""
    gangs = group.gangs_to_place
    if any(gang.facts is not None and gang.facts.never_preempts for gang in gangs):
        return False
    return not any(pod.never_preempts for gang in gangs for pod in gang.pending.values())


def may_borrow(group: Group) -> bool:
    """The group's members may be placed on reserved capacity, since they can be evicted at once: they are surplus of a
    gang that may be shrunk pod by pod and has always given back what it borrowed. Somebody recreates them, and neither
    a disruption budget nor their priority protects them.
    """
    if not group.surplus:
        return False
    (gang,) = group.gangs
    if gang.facts is None or gang.facts.evicted_whole or gang.facts.subgroups or gang.growth.kept_loan:
        return False
    return not any(
        pod.uncontrolled or pod.budgets or pod.priority >= SYSTEM_CRITICAL_PRIORITY for pod in gang.pending.values()
    )


def longest_run(group: Group) -> float:
    """Longest expected run of the group's members in seconds; infinite where that is not known."""
    if any(gang.run_time.overran for gang in group.gangs):
        return math.inf
    runs = [pod.expected_seconds for gang in group.gangs for pod in gang.pending.values()]
    return max((seconds if seconds > 0 else math.inf for seconds in runs), default=math.inf)


def nominated_for_others(
    group: Group, nominations: Iterable[Nomination], ledger: Ledger, now: float
) -> dict[str, Int64]:
    """Capacity that is nominated for other groups and closed to this one, int64[resources] by node."""
    total: dict[str, Int64] = {}
    for each in nominations:
        if not each.open_to(group, now):
            for node, vector in each.vectors(ledger).items():
                total[node] = total[node] + vector if node in total else vector
    return total


def after_departure(vectors: dict[str, Int64], leaving: Iterable[str], ledger: Ledger) -> dict[str, Int64]:
    """The same after these pods have left: below zero where that frees more capacity than is nominated."""
    left = dict(vectors)
    for node, amounts in _held(leaving, ledger):
        left[node] = left[node] - amounts if node in left else -amounts
    return left


def _held(uids: Iterable[str], ledger: Ledger) -> Iterator[tuple[str, Int64]]:
    rows, amounts = ledger.capacity.used_by(uids)
    return zip([ledger.capacity.names[row] for row in rows.tolist()], amounts, strict=True)


def as_amounts(vectors: dict[str, Int64], ledger: Ledger) -> tuple[NominatedCapacity, ...]:
    """The same as a part of a solve request."""
    names = {column: name for name, column in ledger.capacity.resources.items()}
    amounts_by_node = []
    for node, vector in vectors.items():
        amounts = tuple(sorted((names[int(column)], int(vector[column])) for column in np.flatnonzero(vector)))
        if amounts:
            amounts_by_node.append(NominatedCapacity(node, amounts))
    return tuple(amounts_by_node)


@dataclass(slots=True, frozen=True)
class Victims:
    """Victims by gang: pods in `reserved` lose their reservations, in `bound` are evicted; gangs in `whole` are evicted
    whole. Those of `borrowers` lose pods because capacity was lent to them, whatever their priority; those of
    `yielding` are evicted by their repair policy for a gang ahead of them.
    """

    reserved: dict[Gang, list[str]] = field(default_factory=dict)
    bound: dict[Gang, list[str]] = field(default_factory=dict)
    whole: frozenset[Gang] = frozenset()
    borrowers: frozenset[Gang] = frozenset()
    yielding: frozenset[Gang] = frozenset()

    @property
    def preempted(self) -> dict[Gang, list[str]]:
        """The gangs of `bound` that are not evicted by their repair policy."""
        return {gang: uids for gang, uids in self.bound.items() if gang not in self.yielding}


@dataclass(slots=True, frozen=True, eq=False)
class Plan:
    """Eviction of victims for the group of the nomination; without one, by the repair policy of their own gang."""

    victims: Victims
    nomination: Nomination | None = None


@dataclass(slots=True, frozen=True, eq=False)
class PlanPart:
    """A transaction with some of a plan's victims: the plan needs it."""

    plan: Plan


def reservation_released(gang: Gang, nomination: Nomination | None) -> list[Effect]:
    """Event on a gang whose reservations are released for another group."""
    if nomination is None or gang.reference is None:
        return []
    others = " and ".join(f"gang {other.label}" for other in nomination.group.gangs)
    note = (
        f"gang {gang.label} released its {len(gang.seats)} reservations: {others} is ahead of it in the queue and "
        "needs the capacity; it is tried again when that gang has started or timed out"
    )
    return [Report(gang.id, events=(KubeEvent(gang.reference, EventType.WARNING, "ReservationReleased", note),))]


def preempts(plan: Plan) -> list[Effect]:
    """Events on the gangs of the preemptor's group."""
    if plan.nomination is None:
        return []
    effects, victims = [], plan.victims
    if preempted := victims.preempted:
        pods = sum(len(uids) for uids in preempted.values())
        what = "1 pod" if pods == 1 else f"{pods} pods"
        predicate = f"preempts {what} of lower priority, of {_labels(preempted)}"
        effects += _on_all(plan.nomination.group, "Preempting", predicate)
    if victims.yielding:
        which = f"gangs under repair that are behind it in the queue: {_labels(victims.yielding)}"
        predicate = f"is completed with the capacity of {which}"
        effects += _on_all(plan.nomination.group, "Preempting", predicate)
    return effects


def _labels(gangs: Iterable[Gang]) -> str:
    return ", ".join(sorted(gang.label for gang in gangs)[:10])


def capacity_reserved(nomination: Nomination, now: Now) -> list[Effect]:
    """Events on the gangs of a starving group: where capacity is reserved, and until when."""
    nodes = len({node for node, _ in nomination.capacity})
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    seconds = max(0.0, nomination.starts_at - now.monotonic_seconds)
    most = nomination.expires_at - now.monotonic_seconds
    when = f", for {most:.0f} s at most" if math.isinf(seconds) else f", expected in {seconds:.0f} s"
    note = f"starves: capacity on {where} is reserved for it until enough running pods have ended{when}"
    return _on_all(nomination.group, "CapacityReserved", note)


def victims_remain(nomination: Nomination, remaining: Sequence[PodFacts], seconds: float) -> list[Effect]:
    """Events on the gangs of the preemptor's group: which victims have not left in time."""
    first = min(remaining, key=lambda pod: (pod.namespace, pod.name))
    more = f" and {len(remaining) - 1} more have" if len(remaining) > 1 else " has"
    what = f"pod {first.namespace}/{first.name} on node {first.node}{more}"
    note = (
        f"waits no longer for the pods that were evicted for it: {what} not ended for {seconds:g} s; it is tried again"
    )
    return _on_all(nomination.group, "VictimsRemain", note, EventType.WARNING)


def capacity_taken(group: Group, verdict: str) -> list[Effect]:
    """Events on the gangs of the preemptor's group: pods were evicted for it in vain."""
    return _on_all(group, "CapacityTaken", f"did not get what it preempted: {verdict}", EventType.WARNING)


def reservation_expired(nomination: Nomination, verdict: str) -> list[Effect]:
    """Events on the gangs of a starving group: the capacity is not withheld any more."""
    return _on_all(nomination.group, "ReservationExpired", f"is reserved no capacity: {verdict}", EventType.WARNING)


def _on_all(group: Group, reason: str, predicate: str, type_: EventType = EventType.NORMAL) -> list[Effect]:
    return [
        Report(gang.id, events=(KubeEvent(gang.reference, type_, reason, f"gang {gang.label} {predicate}"),))
        for gang in group.gangs
        if gang.reference is not None
    ]
