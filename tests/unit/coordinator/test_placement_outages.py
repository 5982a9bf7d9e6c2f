"""Outages of placement delay gangs no longer than placement is unavailable."""

from builders.core.objects import node
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import SolveFailed
from muster.coordinator.core.queue.queue import AWAY_SECONDS

OUTAGE_SECONDS = 60.0


def away_for(scenario: Scenario, seconds: float) -> int:
    """Nobody answers for so long; returns how often placement was asked."""
    asked, end = 0, scenario.now + seconds
    while scenario.now < end:
        for solve in [effect for effect in scenario.under_way if isinstance(effect, Solve)]:
            asked += 1
            scenario.under_way.remove(solve)
            scenario.tell(SolveFailed(solve.solve_id, "UNAVAILABLE: nobody is there", away=True))
        wake = scenario.machine.next_wake() if scenario.machine is not None else None
        scenario.now = end if wake is None else min(end, max(scenario.now, wake))
        scenario.wake()
    return asked


def test_i7_when_placement_is_back_those_that_waited_longest_are_tried_at_once() -> None:
    scenario = Scenario({"n": 8})
    scenario.add(gang("a").of(4))
    scenario.add(gang("b").of(4).created(1))
    asked = away_for(scenario, OUTAGE_SECONDS)
    assert asked <= OUTAGE_SECONDS / AWAY_SECONDS + 2, "it is not asked without a pause"
    scenario.pass_time(AWAY_SECONDS)
    assert (scenario.bound("a"), scenario.bound("b")) == (4, 4)


def test_an_equivalence_class_waits_no_longer_than_its_representative() -> None:
    scenario = Scenario({"n": 2})
    gangs = [gang(f"g{number}").of(4).created(number) for number in range(3)]
    scenario.add(*gangs)
    scenario.run()
    scenario.deliver()
    scenario.change(nodes=[node(f"m{number}", 4) for number in range(3)])
    away_for(scenario, OUTAGE_SECONDS)
    scenario.pass_time(AWAY_SECONDS)
    assert [scenario.bound(f"g{number}") for number in range(3)] == [4, 4, 4]
