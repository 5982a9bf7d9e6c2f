"""Potential victims of a preemption in their order, and validation of the victims that placement selects among them.

The candidates and their order are decided here; placement selects the victims (`muster.placement.preemption`). Each
potential victim has a preemption level, not to be confused with levels of a topology tree: placement removes no pod of
a level if lower levels suffice. First come NonStrict groups that hold reservations behind the preemptor, one level per
group, the last in the queue first: they lose no work. Then come running gangs of lower priority, one level per
priority, the lowest first, and within a level the youngest gang first. Pods that a disruption budget protects, that are
being evicted already, or whose capacity is nominated for other groups are not potential victims.

docs/scheduling.md#preemption has the rules.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.gang.gang import SYSTEM_CRITICAL_PRIORITY, Gang, Group
from muster.coordinator.core.preemption.nomination import Victims, may_preempt
from muster.gangs.facts import PodFacts
from muster.gangs.solve import PodsOnNode, PotentialVictim, VictimGang


class OfferedPods(Struct, frozen=True):
    """Uids by node and kind, in the order in which they are removed, and their counts."""

    places: dict[tuple[str, str], list[str]]
    counted: tuple[PodsOnNode, ...]

    def taken(self, removed: VictimGang) -> list[str] | None:
        """The chosen pods; None if they are more than were offered."""
        uids: list[str] = []
        for each in removed.pods:
            there = self.places.get((each.node, each.class_id), [])
            if not 0 < each.count <= len(there):
                return None
            uids += there[: each.count]
        return uids

    @staticmethod
    def of(places: dict[tuple[str, str], list[str]]) -> "OfferedPods":
        """Pods with their counts."""
        counted = tuple(PodsOnNode(node, kind, len(uids)) for (node, kind), uids in places.items())
        return OfferedPods(places, counted)


def offered(pods: Iterable[tuple[str, str, str]]) -> OfferedPods:
    """Pods as (uid, node, kind), in the order in which they are removed."""
    places: dict[tuple[str, str], list[str]] = {}
    add_offered(places, pods)
    return OfferedPods.of(places)


def add_offered(places: dict[tuple[str, str], list[str]], pods: Iterable[tuple[str, str, str]]) -> None:
    """Add pods, given as (uid, node, kind), to the places where they are."""
    for uid, node, kind in pods:
        places.setdefault((node, kind), []).append(uid)


class RunningGangs:
    """Gangs with bound members by protecting priority. Their removable pods are cached until they are touched, or
    selectors change, on which the kinds of pods depend.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._selectors_seen = 0
        self._priority: dict[Gang, int] = {}
        self._gangs: dict[int, dict[Gang, None]] = {}
        self._sorted: dict[int, list[Gang]] = {}
        self._offers: dict[Gang, OfferedPods] = {}
        self._covered: dict[Gang, Counter[str]] = {}
        self._settled: set[Gang] = set()

    def update(self, gang: Gang) -> bool:
        """The gang was touched. True: it has become a potential victim."""
        self._offers.pop(gang, None)
        self._covered.pop(gang, None)
        priority = gang.protection if gang.bound else None
        before = self._priority.get(gang)
        lowered = priority is not None and before is not None and priority < before
        if priority != before:
            self.forget(gang)
            if priority is not None:
                self._priority[gang] = priority
                self._gangs.setdefault(priority, {})[gang] = None
                self._sorted.pop(priority, None)
        settled = bool(gang.bound) and not gang.in_transition
        if settled is (gang in self._settled):
            return settled and lowered
        (self._settled.add if settled else self._settled.discard)(gang)
        return settled

    def forget(self, gang: Gang) -> None:
        """The gang is gone, or does not run any more."""
        self._offers.pop(gang, None)
        self._covered.pop(gang, None)
        self._settled.discard(gang)
        priority = self._priority.pop(gang, None)
        if priority is not None:
            del self._gangs[priority][gang]
            if not self._gangs[priority]:
                del self._gangs[priority]
            self._sorted.pop(priority, None)

    @property
    def lowest(self) -> int | None:
        """The lowest priority of a running gang; None if none runs."""
        return min(self._gangs, default=None)

    def below(self, right: int) -> Iterator[tuple[int, list[Gang]]]:
        """Gangs that this right may evict, the lowest priority first, of each priority the youngest first."""
        for each in sorted(level for level in self._gangs if level < min(right, SYSTEM_CRITICAL_PRIORITY)):
            if each not in self._sorted:
                self._sorted[each] = sorted(self._gangs[each], key=_youngest_first)
            yield each, self._sorted[each]

    def offer(self, gang: Gang) -> OfferedPods:
        """The bound pods of the gang, the youngest first."""
        if self._selectors_seen != self._ledger.selection.selectors_version:
            self._selectors_seen = self._ledger.selection.selectors_version
            self._offers.clear()
        offer = self._offers.get(gang)
        if offer is None:
            pods = sorted((gang.pods[uid] for uid in gang.bound), key=_youngest_pod_first)
            offer = self._offers[gang] = offered(
                (pod.uid, pod.node, self._ledger.kind(pod.class_id, pod.label_set)) for pod in pods
            )
        return offer

    def covered(self, gang: Gang) -> Counter[str]:
        """Bound pods by disruption budget."""
        covered = self._covered.get(gang)
        if covered is None:
            covered = self._covered[gang] = Counter(budget for uid in gang.bound for budget in gang.pods[uid].budgets)
        return covered


def _youngest_first(gang: Gang) -> tuple[int, str]:
    return (-(gang.facts.created_seconds if gang.facts is not None else 0), gang.id)


def _youngest_pod_first(pod: PodFacts) -> tuple[int, str]:
    return (-pod.created_seconds, pod.name)


class PotentialVictims:
    """Potential victims for one group."""

    def __init__(
        self, cache: Cache, running: RunningGangs, group: Group, holding: Iterable[Group], now: float, cautious: bool
    ) -> None:
        """`cautious`: all potential victims together respect disruption budgets, not only those that are chosen."""
        self._cache, self._running = cache, running
        self._claimed = claimed(cache, group, now)
        self._offers: dict[str, OfferedPods] = {}
        self._were_waiting: set[str] = set()
        self.potential_victims: list[PotentialVictim] = []
        self.beyond_budget = False
        """The chosen victims exceed a disruption budget."""
        levels = self._offer_waiting(group, holding)
        if may_preempt(group):
            self._offer_running(group, levels, cautious)

    # -- the offer

    def _offer_waiting(self, group: Group, holding: Iterable[Group]) -> int:
        """Returns the number of preemption levels."""
        key, level = group.key, 0
        behind = [other for other in holding if other.holds and not other.busy and other.key > key]
        for other in sorted(behind, key=lambda other: other.key, reverse=True):
            if not group.holds and max(gang.protection for gang in other.gangs) >= group.right:
                continue  # only gangs that hold reservations can deadlock
            for gang in other.gangs:
                if gang.seats and self._claimed.isdisjoint(gang.seats):
                    seats = (held.seat for held in gang.seats.values())
                    self._were_waiting.add(gang.id)
                    kind = self._cache.ledger.kind
                    pods = offered((seat.uid, seat.node, kind(seat.class_id, seat.label_set)) for seat in seats)
                    self._offer(gang, level, len(gang.seats), pods)
            level += 1
        return level

    def _offer_running(self, group: Group, first_level: int, cautious: bool) -> None:
        allowed = self._allowed()
        for level, (_, gangs) in enumerate(self._running.below(group.right), start=first_level):
            for gang in gangs:
                if gang.in_transition or (self._claimed and not self._claimed.isdisjoint(gang.bound)):
                    continue
                covered = self._running.covered(gang)
                if covered and any(count > allowed[budget] for budget, count in covered.items()):
                    self._offer_unprotected(gang, level)
                    continue
                if cautious:
                    allowed.subtract(covered)
                self._offer(gang, level, _spare(gang), self._running.offer(gang))

    def _offer_unprotected(self, gang: Gang, level: int) -> None:
        """Of a gang that a budget protects, members that it can spare and that no budget covers."""
        uids = [uid for there in self._running.offer(gang).places.values() for uid in there]
        pods = [gang.pods[uid] for uid in uids if not gang.pods[uid].budgets][: _spare(gang)]
        if pods:
            kind = self._cache.ledger.kind
            places = offered((pod.uid, pod.node, kind(pod.class_id, pod.label_set)) for pod in pods)
            self._offer(gang, level, len(pods), places)

    def _offer(self, gang: Gang, level: int, spare: int, pods: OfferedPods) -> None:
        self._offers[gang.id] = pods
        self.potential_victims.append(PotentialVictim(gang.id, level, spare, pods.counted))

    def _allowed(self) -> Counter[str]:
        """Evictions that budgets allow beyond those that are decided and not observed yet."""
        allowed = Counter(self._cache.budgets)
        for nomination in self._cache.nominations.values():
            for uid in nomination.leaving if not nomination.backfill else ():
                gang = self._cache.gang_of.get(uid)
                if gang is not None and uid in gang.eviction.pods:
                    allowed.subtract(gang.pods[uid].budgets)
        return allowed

    # -- the answer

    def victims(self, removed: Sequence[VictimGang]) -> Victims | None:
        """The chosen victims; None if the choice is invalid, or not valid any more."""
        reserved: dict[Gang, list[str]] = {}
        bound: dict[Gang, list[str]] = {}
        whole = set()
        for each in removed:
            gang, pods = self._cache.gangs.get(each.id), self._offers.get(each.id)
            uids = pods.taken(each) if pods is not None else None
            if gang is None or uids is None:
                return None
            if each.id in self._were_waiting:
                if gang.permit.granted or gang.group.persist_id is not None:
                    return None
                reserved[gang] = uids
                continue
            bound[gang] = uids
            if len(uids) > _spare(gang):
                whole.add(gang)
            if not gang.bound.keys() >= set(uids) or (gang in whole and len(uids) < len(gang.bound)):
                return None
        self.beyond_budget = self._beyond_budget(bound)
        return None if self.beyond_budget else Victims(reserved, bound, frozenset(whole))

    def _beyond_budget(self, bound: Mapping[Gang, Sequence[str]]) -> bool:
        taken = Counter(budget for gang, uids in bound.items() for uid in uids for budget in gang.pods[uid].budgets)
        allowed = self._allowed() if taken else taken
        return any(count > allowed[budget] for budget, count in taken.items())


def claimed(cache: Cache, group: Group, now: float) -> set[str]:
    """Uids of pods that leave for other groups: their capacity is not for this group."""
    return set().union(
        *(nomination.leaving for nomination in cache.nominations.values() if not nomination.open_to(group, now))
    )


def _spare(gang: Gang) -> int:
    if gang.facts is not None and gang.facts.evicted_whole:
        return 0
    return max(0, len(gang.bound) - gang.required)
