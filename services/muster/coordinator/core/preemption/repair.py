"""Repair of started gangs: those that cannot be completed within the repair timeout follow their repair policy (I6).

A gang is under repair while permitted members have no seat, or while fewer members than its minimum run and others
wait. Gangs under repair may each hold what another one needs. By default the lower is therefore evicted whole after the
timeout, by the priority that admission gave to its pods, and so is a gang that has never run whole; only policy Wait
lets a gang stay as it is.
"""

from collections.abc import Iterable

from muster.coordinator.core.effects import Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import Now, Rules
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.preemption.nomination import Plan, Victims
from muster.coordinator.core.preemption.plan import Plans
from muster.gangs.facts import RepairPolicy


class Repairs:
    """Gangs under repair, and since when. An entry ends when the gang is complete or gone."""

    def __init__(self, plans: Plans, rules: Rules) -> None:
        self._plans, self._rules = plans, rules
        self._since: dict[Gang, float] = {}
        self._reported: dict[Gang, int] = {}

    def update(self, gang: Gang, now: Now) -> None:
        """Start or end the repair of a touched gang."""
        repairs = gang.lost or any(held.repairs for held in gang.seats.values())
        if repairs or (gang.below_minimum and gang.pending and not gang.eviction.whole):
            self._since.setdefault(gang, now.monotonic_seconds)
        else:
            self.forget(gang)

    def forget(self, gang: Gang) -> None:
        """The gang is complete, or gone."""
        self._since.pop(gang, None)
        self._reported.pop(gang, None)

    def next_time(self) -> float | None:
        """When the next repair times out."""
        return min((self._deadline(gang) for gang in self._since if not _under_way(gang)), default=None)

    def due(self, now: Now) -> list[Effect]:
        """Handle repairs that timed out, the last in the queue first."""
        late = [gang for gang in self._since if self._deadline(gang) <= now.monotonic_seconds and not _under_way(gang)]
        if not late:
            return []
        first = _first_below_minimum(self._since)
        effects: list[Effect] = []
        for gang in sorted(late, key=lambda gang: gang.group.repair_key, reverse=True):
            self._since[gang] = now.monotonic_seconds  # it times out again: the gang may fall below its minimum later
            effects += self._give_up(gang, now, keeps=self._keeps(gang, first))
        return effects

    def _keeps(self, gang: Gang, first: Gang | None) -> bool:
        """The gang's pods keep running.

        By default those of a gang that has run whole do, unless another gang under repair is ahead of it; a gang that
        has never run whole keeps its pods as long as it is ahead of others, which are evicted instead.
        """
        if gang.facts is None or gang.facts.repair_policy is RepairPolicy.WAIT:
            return True
        if not gang.below_minimum or not gang.bound:
            return True
        if gang.facts.repair_policy is RepairPolicy.EVICT or gang is not first:
            return False
        return gang.started or any(other is not gang and other.below_minimum for other in self._since)

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
        lost = f"{missing} of its pods found no node for {self._rules.repair_timeout_seconds:g} s"
        note = f"gang {gang.label} could not be repaired: {lost}; {what}"
        effects: list[Effect] = []
        if not keeps or self._reported.get(gang) != missing:
            self._reported[gang] = missing
            effects.append(Report(gang.id, events=(KubeEvent(about, EventType.WARNING, "RepairTimedOut", note),)))
        if not keeps:
            victims = Victims(bound={gang: sorted(gang.bound)}, whole=frozenset({gang}))
            effects += self._plans.begin(Plan(victims), now)
        return effects

    def _deadline(self, gang: Gang) -> float:
        return self._since[gang] + self._rules.repair_timeout_seconds


def _first_below_minimum(gangs: Iterable[Gang]) -> Gang | None:
    """The gang that keeps its pods if several block each other: the first by admitted priority, then in the queue."""
    return min((gang for gang in gangs if gang.below_minimum), key=lambda gang: gang.group.repair_key, default=None)


def _under_way(gang: Gang) -> bool:
    """Binds, a solve or a write are under way, whose outcome may complete the gang."""
    return bool(gang.seats or gang.acknowledged) or gang.group.busy
