"""Repair of started gangs: those that cannot be completed within the repair timeout follow their repair policy (I6)."""

from muster.coordinator.core.effects import Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.permits.decisions import Plan, Victims
from muster.coordinator.core.preemption.plan import Plans
from muster.coordinator.core.rules import Rules
from muster.gangs.facts import RepairPolicy


class Repairs:
    """Gangs with permitted members that lost their seats, and since when."""

    def __init__(self, plans: Plans, rules: Rules) -> None:
        self._plans, self._rules = plans, rules
        self._since: dict[Gang, float] = {}
        self._reported: dict[Gang, int] = {}

    def update(self, gang: Gang, now: Now) -> None:
        """Start or end the repair of a touched gang."""
        if not gang.lost and not any(held.repairs for held in gang.seats.values()):
            self.forget(gang)
        else:
            self._since.setdefault(gang, now.monotonic_seconds)

    def forget(self, gang: Gang) -> None:
        """The gang is complete, or gone."""
        self._since.pop(gang, None)
        self._reported.pop(gang, None)

    def next_time(self) -> float | None:
        """When the next repair times out."""
        return min((self._deadline(gang) for gang in self._since if not _under_way(gang)), default=None)

    def due(self, now: Now) -> list[Effect]:
        """Handle repairs that timed out."""
        late = [gang for gang in self._since if self._deadline(gang) <= now.monotonic_seconds and not _under_way(gang)]
        effects: list[Effect] = []
        for gang in late:
            self._since[gang] = now.monotonic_seconds  # it times out again: the gang may fall below its minimum later
            effects += self._give_up(gang, now)
        return effects

    def _give_up(self, gang: Gang, now: Now) -> list[Effect]:
        facts, about = gang.facts, gang.reference
        if facts is None or about is None:
            return []
        evict = facts.repair_policy is RepairPolicy.EVICT and 0 < len(gang.bound) < gang.required
        what = (
            "its repair policy evicts its pods, and it starts again"
            if evict
            else "it keeps running, and these pods are still scheduled first"
        )
        seconds = f"{self._rules.repair_timeout_seconds:g} s"
        lost = f"{len(gang.lost)} of its pods found no other node for {seconds}"
        note = f"gang {gang.label} could not be repaired: {lost}; {what}"
        effects: list[Effect] = []
        if evict or self._reported.get(gang) != len(gang.lost):
            self._reported[gang] = len(gang.lost)
            effects.append(Report(gang.id, events=(KubeEvent(about, EventType.WARNING, "RepairTimedOut", note),)))
        if evict:
            victims = Victims(bound={gang: sorted(gang.bound)}, whole=frozenset({gang}))
            effects += self._plans.begin(Plan(victims), now)
        return effects

    def _deadline(self, gang: Gang) -> float:
        return self._since[gang] + self._rules.repair_timeout_seconds


def _under_way(gang: Gang) -> bool:
    """Binds, a solve or a write are under way, whose outcome may complete the gang."""
    return bool(gang.seats or gang.acknowledged) or gang.group.busy
