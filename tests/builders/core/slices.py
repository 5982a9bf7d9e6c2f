"""Work of the slices of one step, counted (I12)."""

from collections.abc import Callable

from builders.core.scenario import Scenario
from muster.coordinator.core.effects import Effect
from muster.coordinator.core.events import Event, Now


def slices_of(scenario: Scenario, event: Event, count: Callable[[], int]) -> tuple[list[int], list[Effect]]:
    """One step of the leader: how much each of its slices added to the count, and its effects."""
    slices = scenario.leader.slices([event], Now(scenario.now, scenario.now))
    counted = list[int]()
    while True:
        before = count()
        try:
            next(slices)
        except StopIteration as end:
            return [*counted, count() - before], end.value
        counted.append(count() - before)
