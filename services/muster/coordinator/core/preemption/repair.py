"""Gangs under repair that cannot be completed: evicted by their repair policy, or for another one that is completed by
that (I6, I9).

A gang is under repair while permitted members have no seat, or while fewer members than its minimum run and others
wait. A gang that is below its minimum because that was raised is not. A gang under repair that is below its minimum may
hold what another one needs. When the repairs of both have timed out, the later one is a potential victim of the earlier
one, whatever its priority (`preemption/potential_victims`): it is evicted only if placement finds that this completes
the earlier one, for which its capacity is then nominated. The order is that of the queue, by the priority that
admission gave to the pods. A gang that has never run whole, and cannot be completed that way, is evicted itself. So is
one of which only pending members count (match policy only-waiting): none of them can join those that run.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import Now, Rules
from muster.coordinator.core.gang.gang import SYSTEM_CRITICAL_PRIORITY, Gang, Group, QueueKey
from muster.coordinator.core.preemption.nomination import Plan, Victims
from muster.coordinator.core.slices import GANGS, OBJECTS, Slices
from muster.coordinator.core.term_state import RepairedGang, monotonic_time, unix_time
from muster.gangs.facts import MatchPolicy, RepairPolicy

RepairOrder = tuple[bool, QueueKey]
"""Position among gangs that block each other: those that are critical to the system first, then in queue order."""


class Repairs:
    """Gangs under repair, and since when. All about a gang ends when it is complete or gone."""

    def __init__(self, begin: Callable[[Plan, Now], list[Effect]], cache: Cache, rules: Rules) -> None:
        """`begin` carries out a plan to evict gangs."""
        self._begin, self._cache, self._timeout = begin, cache, rules.repair_timeout_seconds
        self._since: dict[Gang, float] = {}
        """Since when, or since its last timeout."""
        self._timed_out: dict[Gang, None] = {}
        """Gangs whose repair has timed out."""
        self._reported: dict[Gang, int] = {}

    def update(self, gang: Gang, now: Now) -> None:
        """Start or end the repair of a touched gang."""
        repairs = gang.lost or (gang.seats and any(held.repairs for held in gang.seats.values()))
        if repairs or (gang.pending and gang.broken and not gang.eviction.whole):
            self._since.setdefault(gang, now.monotonic_seconds)
        else:
            self.forget(gang)

    def forget(self, gang: Gang) -> None:
        """The gang is complete, or gone."""
        for known in (self._since, self._timed_out, self._reported):
            known.pop(gang, None)

    def term_state(self, now: Now) -> tuple[RepairedGang, ...]:
        """The gangs under repair."""
        return tuple(
            RepairedGang(gang.id, unix_time(since, now), gang in self._timed_out) for gang, since in self._since.items()
        )

    def resume(self, states: Iterable[RepairedGang], now: Now) -> None:
        """Gangs that are still under repair have been for as long as they had been."""
        for each in states:
            if (gang := self._cache.gangs.get(each.gang)) is not None and gang in self._since:
                self._since[gang] = monotonic_time(each.since, now)
                if each.timed_out:
                    self._timed_out[gang] = None

    def next_time(self) -> float | None:
        """When the next repair times out."""
        return min((self._deadline(gang) for gang in self._since if not _under_way(gang)), default=None)

    @property
    def under_way(self) -> bool:
        """Gangs are under repair."""
        return bool(self._since)

    # -- gangs that block each other

    def may_yield_to(self, group: Group) -> bool:
        """There may be gangs that `yielding_to` returns. Permitted gangs are groups of their own."""
        if len(self._timed_out) < 2 or len(group.gangs) != 1:
            return False
        return group.gangs[0] in self._timed_out and group.gangs[0].broken

    def yielding_to(self, group: Group) -> list[Gang]:
        """Gangs that are evicted for the group if this completes it, the last in the queue first."""
        if not self.may_yield_to(group):
            return []
        (first,) = group.gangs
        order = _order(first)
        behind = [gang for gang in self._timed_out if gang is not first and gang.broken and _order(gang) > order]
        yielding = [gang for gang in behind if not _under_way(gang) and self._may_be_evicted(gang)]
        return sorted(yielding, key=_order, reverse=True)

    # -- timeouts

    def due(self, now: Now) -> Slices[tuple[list[Effect], list[Group]]]:
        """Handle repairs that timed out, the last in the queue first. Returns effects, and the groups for which others
        may be evicted that were not offered to placement since. In slices.
        """
        effects: list[Effect] = []
        late = {gang: None for gang in self._since if self._is_late(gang, now) and not _under_way(gang)}
        if not late:
            return effects, []
        evictable = yield from self._evictable()
        new = late.keys() - self._timed_out.keys()
        last, last_new = _last(evictable), _last(gang for gang in evictable if gang in new)
        last_untried = _last(gang for gang in evictable if gang not in self._timed_out)
        self._timed_out.update(late)
        for number, gang in enumerate(sorted(late, key=_order, reverse=True), start=1):
            self._since[gang] = now.monotonic_seconds  # it times out again: the gang may fall below its minimum later
            others_may_go = _is_ahead(gang, last if gang in new else last_untried)
            effects += self._give_up(gang, now, keeps=self._keeps(gang, others_may_go=others_may_go))
            if number % GANGS == 0:
                yield
        blocked = (gang for gang in self._timed_out if gang.broken and _is_ahead(gang, last))
        return effects, [gang.group for gang in blocked if gang in late or _is_ahead(gang, last_new)]

    def _evictable(self) -> Slices[list[Gang]]:
        """Gangs below their minimum that may be evicted. In slices."""
        evictable = []
        for number, gang in enumerate(list(self._since), start=1):
            if gang.broken and self._may_be_evicted(gang):
                evictable.append(gang)
            if number % OBJECTS == 0:
                yield
        return evictable

    def _keeps(self, gang: Gang, *, others_may_go: bool) -> bool:
        """The gang's pods keep running, as long as it is not evicted for another one. By default those of a gang that
        has run whole do, unless only pending members count; those of a gang that has never run whole, while others
        behind it may be evicted for it, or are.
        """
        if not (gang.broken and gang.bound and self._may_be_evicted(gang)) or gang.facts is None:
            return True
        if gang.facts.repair_policy is RepairPolicy.EVICT:
            return False
        if _starts_anew(gang):
            return False
        nomination = self._cache.nominations.get(gang.group)
        return gang.started or others_may_go or (nomination is not None and not nomination.backfill)

    def _may_be_evicted(self, gang: Gang) -> bool:
        """Neither its policy, nor a pod that is critical to the system, nor a disruption budget protects the gang."""
        if gang.facts is None or gang.facts.repair_policy is RepairPolicy.WAIT:
            return False
        if _is_critical(gang) and gang.facts.repair_policy is not RepairPolicy.EVICT:
            return False
        covered = Counter(budget for uid in gang.bound for budget in gang.pods[uid].budgets)
        return all(count <= self._cache.budgets.get(budget, 0) for budget, count in covered.items())

    def _give_up(self, gang: Gang, now: Now, *, keeps: bool) -> list[Effect]:
        about = gang.reference
        if about is None:
            return []
        what = (
            "it keeps running, and these pods are still tried"
            if keeps
            else "its pods are evicted, and it starts again as a whole"
        )
        missing = len(gang.lost) or len(gang.pending)
        lost = f"{missing} of its pods found no node for {self._timeout:g} s"
        if not keeps and _starts_anew(gang):
            lost = f"{missing} of its pods cannot join those that run, by its match policy only-waiting"
        note = f"gang {gang.label} could not be repaired: {lost}; {what}"
        effects: list[Effect] = []
        if not keeps or self._reported.get(gang) != missing:
            self._reported[gang] = missing
            effects.append(Report(gang.id, events=(KubeEvent(about, EventType.WARNING, "RepairTimedOut", note),)))
        if not keeps:
            victims = Victims(bound={gang: sorted(gang.bound)}, whole=frozenset({gang}))
            effects += self._begin(Plan(victims), now)
        return effects

    def _is_late(self, gang: Gang, now: Now) -> bool:
        return self._deadline(gang) <= now.monotonic_seconds

    def _deadline(self, gang: Gang) -> float:
        return self._since[gang] + self._timeout


def _starts_anew(gang: Gang) -> bool:
    """Only pending members count, and there will be as many as the gang needs when its other pods are evicted."""
    if gang.facts is None or gang.facts.match_policy is not MatchPolicy.ONLY_WAITING or gang.placed_singly:
        return False
    recreated = sum(not gang.pods[uid].uncontrolled for uid in gang.bound)
    return len(gang.pending) + recreated >= gang.facts.minimum


def _order(gang: Gang) -> RepairOrder:
    return not _is_critical(gang), gang.group.admitted_key


def _last(gangs: Iterable[Gang]) -> RepairOrder | None:
    return max(map(_order, gangs), default=None)


def _is_ahead(gang: Gang, last: RepairOrder | None) -> bool:
    return last is not None and _order(gang) < last


def _is_critical(gang: Gang) -> bool:
    """A pod of the gang is critical to the system."""
    return max(gang.live_priorities, default=0) >= SYSTEM_CRITICAL_PRIORITY


def _under_way(gang: Gang) -> bool:
    """Binds, evictions, a solve or a write are under way, whose outcome may complete the gang."""
    return gang.in_transition or gang.group.busy
