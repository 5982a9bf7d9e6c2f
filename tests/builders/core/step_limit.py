"""A limit of the loops of one step of the coordinator's core (I12): a core that loops without end fails at once."""

from collections.abc import Sequence

from muster.coordinator.core.effects import Effect
from muster.coordinator.core.events import Event, Now
from muster.coordinator.core.machine import Machine

MAX_PASSES = 1000
"""Passes through the loops of one step. Scenarios take up to 10, since each pass takes in all touched gangs at once."""
WAKES = 1000
WAKES_PER_SECOND = 100
"""Wakes that the core may ask for: so many at once, and so many a second."""


class Spins(AssertionError):
    """The core loops without end."""

    def __init__(self, what: str) -> None:
        super().__init__(f"I12: the coordinator spins: {what}")


class StepLimit:
    """Counts passes of a machine's loops: all of them update plans in every pass."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._passes = machine, 0
        plans = machine._plans  # no pass of a loop is visible from outside
        self._update = plans.update
        plans.update = self._count  # type: ignore[method-assign]

    def step(self, events: Sequence[Event], now: Now) -> list[Effect]:
        """One step of the machine. Raises Spins."""
        self._passes = 0
        return self._machine.step(events, now)

    def _count(self, now: Now) -> bool:
        self._passes += 1
        if self._passes > MAX_PASSES:
            raise Spins(f"a step makes more than {MAX_PASSES} passes")
        return self._update(now)


class WakeLimit:
    """Counts the wakes that the core asks for in a period."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._wakes = seconds, 0

    def wake(self, at: float) -> None:
        """The core asked for a wake at this time. Raises Spins."""
        self._wakes += 1
        if self._wakes > WAKES + WAKES_PER_SECOND * self._seconds:
            raise Spins(f"{self._wakes} wakes in {self._seconds:g} s, the last one at {at:g}")
