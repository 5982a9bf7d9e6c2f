"""Reports no reasons: for a machine that is played, of which nobody reads conditions.

No decision depends on them.
"""

from muster.coordinator.core.effects import Report
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.slices import Slices


class NoReports:
    """Takes the place of `Reports`."""

    def look(self, _gang: Gang, _now: float) -> Report | None:
        return None

    def forget(self, _gang: Gang) -> None: ...

    def repeat(self) -> None: ...

    def next_time(self) -> float | None:
        return None

    def any_due(self, _now: float) -> bool:
        return False

    def due(self, _now: float) -> Slices[list[Report]]:
        yield from ()
        return []
