"""A limit of the loops of one step of the coordinator's core (I12): a core that loops without end fails at once."""

from collections.abc import Sequence
from cProfile import Profile

from muster.coordinator.core.effects import Effect
from muster.coordinator.core.events import (
    BindResults,
    Delta,
    Event,
    EvictResults,
    Now,
    Recovered,
    Snapshot,
    Solved,
)
from muster.coordinator.core.machine import Machine

MAX_PASSES = 1000
"""Passes through the loops of one step. Scenarios take up to 10, since each pass takes in all touched gangs at once."""
WAKES = 1000
WAKES_PER_SECOND = 100
"""Wakes that the core may ask for: so many at once, and so many a second."""


CALLS = 300_000
CALLS_PER_OBJECT = 200
"""Calls of Python functions in one step, 0.1 to 0.2 µs each: so many whatever the cluster has, and so many for each
object or result in the step's events. Steps take up to 270,000 (a thousand starving gangs get a verdict, and are
considered for preemption), and up to 120 more for each object.
"""


_REVISIONS = ("changed", "through")


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

    def counted_step(self, events: Sequence[Event], now: Now) -> list[Effect]:
        """One step of the machine, which makes a bounded number of calls. Raises AssertionError."""
        profile = Profile(builtins=False)
        profile.enable()
        try:
            effects = self.step(events, now)
        finally:
            profile.disable()
        calls = sum(entry.callcount for entry in profile.getstats())
        most = CALLS + CALLS_PER_OBJECT * sum(map(_objects, events))
        kinds = ", ".join(type(event).__name__ for event in events)
        assert calls <= most, f"I12: a step with {kinds} makes {calls} calls, {most} would do"
        return effects

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


def _objects(event: Event) -> int:
    """Number of objects or results in an event."""
    match event:
        case Snapshot(batch) | Delta(batch):
            return sum(len(getattr(batch, name)) for name in batch.__struct_fields__ if name not in _REVISIONS)
        case Solved() | BindResults() | EvictResults():
            return len(event.results)
        case Recovered(records):
            return len(records)
        case _:
            return 1
