"""Lists the potential victims of a preemption in their order, and validates those that placement selects among them.

The candidates and their order are decided here; placement selects the victims (`muster.placement.preemption`). Each
potential victim has a preemption level, not to be confused with levels of a topology tree: placement removes no pod of
a level if lower levels suffice. First come surplus pods that borrow capacity which is reserved for the preemptor,
unless the preemptor may evict them by priority anyway (`elastic/loans`). Then come NonStrict groups that hold
reservations behind the preemptor, one level per group, the last in the queue first: they lose no work. Then, if the
preemptor's repair has timed out, come gangs behind it that could not be repaired either, whatever their priority, one
level per gang, the last in the queue first (`preemption/repair`): they have no use of their capacity. Then come running
gangs of lower priority, one level per priority, the lowest first, and within a level the youngest gang first.
Pods that a disruption budget protects, that are being evicted already, or whose capacity is nominated for other groups
are not potential victims; nor, for a while, gangs of which pods could not be evicted.

Of a gang with more bound pods than its minimum, those above it are removed one by one, in the order of
`preemption/surplus`. Where a gang of a priority has subgroups that it can spare, the priority has two levels: pods of
all its gangs that go one by one, and these subgroups, each whole; then whole gangs. Surplus of the preemptor's own gang
only removes surplus of others: it never takes the minimum of a gang that would then be ahead of it in the queue. Nor
do gangs of one gang group or composite take each other's: they would need the victim again.

docs/scheduling.md#preemption has the rules.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.deadlines import Deadlines
from muster.coordinator.core.elastic.loans import borrowers, gives_back
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import SYSTEM_CRITICAL_PRIORITY, Gang, Group
from muster.coordinator.core.gang.subgroups import gang_id_of
from muster.coordinator.core.preemption.nomination import Victims, may_preempt
from muster.coordinator.core.preemption.offers import (
    OfferedPods,
    SplitOffer,
    offered,
    singly_id,
    split_offer,
    surplus_first,
)
from muster.coordinator.core.preemption.surplus import given_up_key, keeps_minimums, spare
from muster.coordinator.core.slices import OBJECTS, Slices
from muster.coordinator.core.term_state import RefusedGang, monotonic_time, unix_time
from muster.gangs.facts import PodFacts, SubgroupPolicy
from muster.gangs.solve import PotentialVictim, VictimGang


class RunningGangs:
    """Gangs with bound members by protecting priority. Their removable pods are cached until they are touched, or
    representatives of label sets change, on which the kinds of pods depend. Bounded by gangs with bound members: all
    about a gang ends when none of its members is bound, or it is gone.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kinds_seen = 0
        self.divided: dict[Gang, None] = {}
        """Gangs with subgroups."""
        self._priority: dict[Gang, int] = {}
        self._gangs: dict[int, dict[Gang, None]] = {}
        self._sorted: dict[int, list[Gang]] = {}
        self._offers: dict[Gang, OfferedPods] = {}
        self._splits: dict[Gang, SplitOffer] = {}
        self._covered: dict[Gang, Counter[str]] = {}
        self._refused: Deadlines[Gang] = Deadlines()
        """When gangs are potential victims again of which pods could not be evicted."""
        self._settled: dict[Gang, tuple[int, tuple[SubgroupPolicy, ...]]] = {}
        """Gangs of which no bind or eviction is under way, how many pods they can spare, and their subgroups."""

    def update(self, gang: Gang) -> bool:
        """The gang was touched. True: it has become a potential victim, or can spare more pods."""
        self._offers.pop(gang, None)
        self._splits.pop(gang, None)
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
        if gang.bound and gang.facts is not None and gang.facts.subgroups:
            self.divided[gang] = None
        else:
            self.divided.pop(gang, None)
        if gang.eviction.refused:
            self._refused.put(gang, gang.eviction.refused_until)
        if not gang.bound or gang.in_transition:
            self._settled.pop(gang, None)
            return False
        nothing: tuple[int, tuple[SubgroupPolicy, ...]] = -1, ()
        spared, divided = self._settled.get(gang, nothing)
        now = self._settled[gang] = spare(gang), gang.facts.subgroups if gang.facts is not None else ()
        return lowered or now[0] > spared or now[1] != divided

    def forget(self, gang: Gang) -> None:
        """The gang is gone, or does not run any more."""
        self._offers.pop(gang, None)
        self._splits.pop(gang, None)
        self._covered.pop(gang, None)
        self._settled.pop(gang, None)
        self._refused.discard(gang)
        self.divided.pop(gang, None)
        priority = self._priority.pop(gang, None)
        if priority is not None:
            del self._gangs[priority][gang]
            if not self._gangs[priority]:
                del self._gangs[priority]
            self._sorted.pop(priority, None)

    def next_time(self) -> float | None:
        """When a gang of which pods could not be evicted is a potential victim again."""
        return self._refused.next_time()

    def take_evictable(self, now: float) -> list[Gang]:
        """The gangs that are potential victims again by now."""
        gangs = list(self._refused.take_due(now))
        for gang in gangs:
            gang.eviction.end_refusal()
        return gangs

    def refused(self, now: Now) -> tuple[RefusedGang, ...]:
        """Gangs that are no potential victims, since pods of them could not be evicted."""
        return tuple(
            RefusedGang(gang.id, gang.eviction.refusals, unix_time(until, now)) for gang, until in self._refused.items()
        )

    def resume(self, states: Iterable[RefusedGang], gangs: Mapping[str, Gang], now: Now) -> None:
        """They are not for as long as they were not to be."""
        for each in states:
            if (gang := gangs.get(each.gang)) is not None and gang.bound:
                gang.eviction.refuse(each.refusals, monotonic_time(each.until, now))
                self._refused.put(gang, gang.eviction.refused_until)

    @property
    def lowest(self) -> int | None:
        """The lowest priority of a running gang; None if none runs."""
        return min(self._gangs, default=None)

    def any_of_lowest(self) -> Gang | None:
        """A running gang of the lowest priority; None if none runs."""
        return next(iter(self._gangs[self.lowest])) if self.lowest is not None else None

    def below(self, preempting_priority: int) -> Iterator[tuple[int, list[Gang]]]:
        """Gangs of lower priority that may be evicted, the lowest first, of each priority the youngest first."""
        below = min(preempting_priority, SYSTEM_CRITICAL_PRIORITY)
        for each in sorted(priority for priority in self._gangs if priority < below):
            if each not in self._sorted:
                self._sorted[each] = sorted(self._gangs[each], key=_youngest_first)
            yield each, self._sorted[each]

    def offer(self, gang: Gang) -> OfferedPods:
        """The bound pods of the gang, in the order in which it gives them up."""
        self._forget_old_kinds()
        offer = self._offers.get(gang)
        if offer is None:
            offer = self._offers[gang] = surplus_first(gang, self._ledger)
        return offer

    def split(self, gang: Gang) -> SplitOffer:
        """The same in the parts that are listed for different levels."""
        self._forget_old_kinds()
        split = self._splits.get(gang)
        if split is None:
            split = self._splits[gang] = split_offer(gang, self._ledger)
        return split

    def _forget_old_kinds(self) -> None:
        if self._kinds_seen != (version := self._ledger.selection.representatives_version):
            self._kinds_seen = version
            self._offers.clear()
            self._splits.clear()

    def covered(self, gang: Gang) -> Counter[str]:
        """Bound pods by disruption budget."""
        covered = self._covered.get(gang)
        if covered is None:
            covered = self._covered[gang] = Counter(budget for uid in gang.bound for budget in gang.pods[uid].budgets)
        return covered


def _youngest_first(gang: Gang) -> tuple[int, str]:
    return (-(gang.facts.created_seconds if gang.facts is not None else 0), gang.id)


class PotentialVictims:
    """Potential victims for one group."""

    def __init__(self, cache: Cache, running: RunningGangs, group: Group, now: float) -> None:
        """There are none before `collect`."""
        self._cache, self._running, self._group = cache, running, group
        self._claimed = claimed(cache, group, now)
        self._offers: dict[str, OfferedPods] = {}
        self._were_waiting: set[str] = set()
        self._split: set[Gang] = set()
        """Gangs that are listed in parts."""
        self._borrowers: set[Gang] = set()
        """Gangs of which pods are listed because they borrow capacity."""
        self._yielding: set[Gang] = set()
        """Gangs that are listed because of their repair policy."""
        self.potential_victims: list[PotentialVictim] = []
        self.beyond_budget = False
        """The chosen victims exceed a disruption budget."""
        self._refused: list[Gang] = []
        """Gangs of lower priority that are not listed, since pods of them could not be evicted."""
        self._protected: dict[Gang, str] = {}
        """Gangs of lower priority that are not listed whole, each with a disruption budget that does not allow it."""

    # -- the offer

    def collect(self, holding: Iterable[Group], yielding: Sequence[Gang], *, cautious: bool) -> Slices[None]:
        """List all potential victims. `holding`: groups with reservations; `yielding`: gangs that are evicted for the
        group by their repair policy, in this order; `cautious`: all together respect disruption budgets, not only those
        that are chosen.
        """
        group = self._group
        levels = self._offer_borrowers(group)
        levels = self._offer_waiting(group, holding, levels)
        allowed = self._allowed()
        levels = self._offer_yielding(yielding, levels, allowed if cautious else None)
        if may_preempt(group):
            yield from self._offer_running(group, levels, allowed, cautious)

    def _offer_borrowers(self, group: Group) -> int:
        """Returns the number of preemption levels."""
        nomination = self._cache.nominations.get(group)
        if nomination is None or not nomination.lent:
            return 0
        selection, kind = self._cache.ledger.selection, self._cache.ledger.kind
        preempts = may_preempt(group)
        for gang, uids in borrowers(nomination.lent, self._cache).items():
            if gang.in_transition or (preempts and gang.protection < group.preempting_priority):
                continue
            if gives_back(gang, uids, selection):
                in_order = sorted((gang.pods[uid] for uid in uids), key=given_up_key(gang))
                pods = offered((pod.uid, pod.node, kind(pod.class_id, pod.label_set)) for pod in in_order)
                self._offer(gang.id, 0, replace(pods, spare=len(uids)))
                self._borrowers.add(gang)
        return int(bool(self._borrowers))

    def _offer_waiting(self, group: Group, holding: Iterable[Group], level: int) -> int:
        """Returns the number of preemption levels so far."""
        key = group.admitted_key
        behind = [other for other in holding if other.holds and not other.busy and other.admitted_key > key]
        for other in sorted(behind, key=lambda other: other.admitted_key, reverse=True):
            if not group.holds and max(gang.protection for gang in other.gangs) >= group.preempting_priority:
                continue  # only gangs that hold reservations can deadlock
            for gang in other.gangs:
                if gang.seats and self._claimed.isdisjoint(gang.seats):
                    seats = (held.seat for held in gang.seats.values())
                    self._were_waiting.add(gang.id)
                    kind = self._cache.ledger.kind
                    pods = offered((seat.uid, seat.node, kind(seat.class_id, seat.label_set)) for seat in seats)
                    self._offer(gang.id, level, replace(pods, spare=len(gang.seats)))
            level += 1
        return level

    def _offer_yielding(self, yielding: Sequence[Gang], level: int, allowed: Counter[str] | None) -> int:
        """Returns the number of preemption levels so far. `allowed`: evictions that budgets allow for all together."""
        for gang in yielding:
            covered = self._running.covered(gang)
            if gang in self._borrowers or gang.eviction.refused or not self._claimed.isdisjoint(gang.bound):
                continue
            if allowed is not None:
                if any(count > allowed[budget] for budget, count in covered.items()):
                    continue
                allowed.subtract(covered)
            self._yielding.add(gang)
            self._offer(gang.id, level, OfferedPods.of(self._running.offer(gang).places))
            level += 1
        return level

    def _offer_running(self, group: Group, level: int, allowed: Counter[str], cautious: bool) -> Slices[None]:
        """In slices, since thousands of gangs may run. `allowed`: evictions that budgets allow for all together."""
        partners = {id_ for gang in group.gangs if gang.facts is not None for id_ in gang.facts.group}
        for _, gangs in self._running.below(group.preempting_priority):
            whole = level + (yield from self._spare_subgroups(group, gangs))
            for number, gang in enumerate(gangs, start=1):
                if number % OBJECTS == 0:
                    yield
                if gang in self._yielding or gang.in_transition:
                    continue
                if gang.eviction.refused:
                    self._refused.append(gang)
                    continue
                if self._claimed and not self._claimed.isdisjoint(gang.bound):
                    continue
                covered = self._running.covered(gang)
                if covered and any(count > allowed[budget] for budget, count in covered.items()):
                    self._protected[gang] = min(budget for budget, count in covered.items() if count > allowed[budget])
                    taken = self._offer_spare(gang, level, allowed)
                    if cautious:
                        allowed.subtract(taken)
                    continue
                if cautious:
                    allowed.subtract(covered)
                if group.surplus or gang.id in partners:
                    self._offer_spare(gang, level, allowed)
                elif whole > level:
                    self._offer_parts(gang, level, whole)
                else:
                    self._offer(gang.id, level, self._running.offer(gang))
            level = whole + 1

    def _spare_subgroups(self, group: Group, gangs: Iterable[Gang]) -> Slices[bool]:
        """One of the gangs can lose a whole subgroup for the group."""
        if group.surplus or not self._running.divided:
            return False
        divided = (gang for gang in gangs if gang in self._running.divided and not gang.in_transition)
        for number, gang in enumerate(divided, start=1):
            if self._running.split(gang).subgroups:
                return True
            if number % OBJECTS == 0:
                yield
        return False

    def _offer_parts(self, gang: Gang, level: int, whole: int) -> None:
        """List what the gang can lose at one level, and the rest at the level of whole gangs."""
        parts = self._running.split(gang)
        self._split.add(gang)
        if parts.singly.counted:
            self._offer(singly_id(gang), level, parts.singly)
        for id_, pods, _ in parts.subgroups:
            self._offer(id_, level, pods)
        self._offer(gang.id, whole, parts.rest)

    def _offer_spare(self, gang: Gang, level: int, allowed: Counter[str]) -> Counter[str]:
        """Of a gang that must not be evicted whole, members that it can spare, as far as budgets allow. Returns how
        many of them each budget covers.
        """
        offer = self._running.offer(gang)
        covered: Counter[str] = Counter()
        pods: list[PodFacts] = []
        if not offer.spare:
            return covered
        singly = (gang.pods[uid] for there in offer.places.values() for uid in there if uid not in offer.kept)
        for pod in sorted(singly, key=given_up_key(gang)):
            if all(covered[budget] < allowed[budget] for budget in pod.budgets):
                covered.update(pod.budgets)
                pods.append(pod)
            if len(pods) == offer.spare:
                break
        if pods:
            kind = self._cache.ledger.kind
            spared = offered((pod.uid, pod.node, kind(pod.class_id, pod.label_set)) for pod in pods)
            self._offer(gang.id, level, replace(spared, spare=len(pods)))
        return covered

    def _offer(self, id_: str, level: int, pods: OfferedPods) -> None:
        self._offers[id_] = pods
        victim = PotentialVictim(id_, level, pods.spare, pods.counted, pods.spare_entries)
        self.potential_victims.append(victim)

    @property
    def protected(self) -> str:
        """Which gangs are protected by disruption budgets, or could not be evicted, in words; "" if none is."""
        sentences = []
        if self._protected:
            gang, budget = min(self._protected.items(), key=lambda pair: pair[0].id)
            sentences.append(f"disruption budget {budget} does not allow to evict gang {gang.label}")
            if more := len(self._protected) - 1:
                sentences.append(f"budgets protect {more} more {'gang' if more == 1 else 'gangs'}")
        if self._refused:
            first = min(self._refused, key=lambda gang: gang.id)
            more = len(self._refused) - 1
            others = f" and {more} more {'gang' if more == 1 else 'gangs'}" if more else ""
            sentences.append(f"pods of gang {first.label}{others} could not be evicted lately")
        return "; ".join(sentences)

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
            gang, pods = self._cache.gangs.get(gang_id_of(each.id)), self._offers.get(each.id)
            uids = pods.taken(each) if pods is not None else None
            if gang is None or pods is None or uids is None:
                return None
            if each.id in self._were_waiting:
                if gang.permit.granted or gang.group.persist_id is not None:
                    return None
                reserved[gang] = uids
            elif gang in self._borrowers:
                bound[gang] = uids
            elif gang in self._yielding:
                bound[gang] = uids
                whole.add(gang)
            elif gang not in self._split:
                bound[gang] = uids
                if len(uids) > spare(gang):
                    whole.add(gang)
                elif not pods.kept.isdisjoint(uids):
                    return None
            elif each.id == gang.id:
                whole.add(gang)
            else:
                bound[gang] = [*dict.fromkeys((*bound.get(gang, ()), *self._with_parts(gang, each.id, uids)))]
        bound.update((gang, list(gang.bound)) for gang in whole if gang in self._split)
        for gang, uids in bound.items():
            if not gang.bound.keys() >= set(uids) or (gang in whole and len(uids) < len(gang.bound)):
                return None
            if gang not in whole and not self._may_lose(gang, set(uids)):
                return None
        self.beyond_budget = self._beyond_budget(bound)
        if self.beyond_budget:
            return None
        borrowers, yielding = self._borrowers.intersection(bound), self._yielding.intersection(bound)
        return Victims(reserved, bound, frozenset(whole), frozenset(borrowers), frozenset(yielding))

    def _may_lose(self, gang: Gang, uids: set[str]) -> bool:
        """The gang keeps its minimums without these pods; and somebody recreates them, or they borrowed capacity."""
        bare = any(gang.pods[uid].uncontrolled for uid in uids)  # since the request: such pods are not offered
        return keeps_minimums(gang, uids, self._cache.ledger.selection) and (not bare or gang in self._borrowers)

    def _with_parts(self, gang: Gang, id_: str, uids: list[str]) -> list[str]:
        """The chosen pods of a gang that is listed in parts, with those that go with their subgroup."""
        singly = (singly for other, _, singly in self._running.split(gang).subgroups if other == id_)
        return [*uids, *next(singly, ())]

    def _beyond_budget(self, bound: Mapping[Gang, Sequence[str]]) -> bool:
        taken = Counter(budget for gang, uids in bound.items() for uid in uids for budget in gang.pods[uid].budgets)
        allowed = self._allowed() if taken else taken
        return any(count > allowed[budget] for budget, count in taken.items())


def claimed(cache: Cache, group: Group, now: float) -> set[str]:
    """Uids of pods that leave for other groups: their capacity is not for this group."""
    return set().union(
        *(nomination.leaving for nomination in cache.nominations.values() if not nomination.open_to(group, now))
    )
