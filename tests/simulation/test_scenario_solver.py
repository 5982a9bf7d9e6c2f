"""The solver of scenarios is right about what must go, and about what fits in part: others are measured by it."""

import pytest

from builders.core.objects import gang, plain_pod
from builders.core.scenario import Scenario
from muster.coordinator.core.effects import Solve
from muster.gangs.solve import (
    NominatedCapacity,
    PodsOnNode,
    PotentialVictim,
    Role,
    SolveGang,
    SolveGroup,
    SolveOutcome,
    SolveResult,
)


@pytest.fixture
def scenario() -> Scenario:
    """a runs on m4 and has nothing to spare, b runs on n4 and can spare two."""
    scenario = Scenario({"n4": 4, "m4": 4})
    scenario.add(gang("a").of(4), gang("b").minimum(2).of(4))
    scenario.run()
    return scenario


def ask(
    scenario: Scenario, count: int, *potential_victims: PotentialVictim, partial: bool = False, nominated: int = 0
) -> SolveResult:
    group = SolveGroup("x", (SolveGang("x", count, (Role("cpu1", count),)),), partial)
    kept = (NominatedCapacity("m4", (("cpu", nominated * 1000),)),) if nominated else ()
    (answer,) = scenario.first_fit(Solve(1, {}, (), (group,), kept, potential_victims))
    return answer


def offer(a_level: int, b_level: int) -> tuple[PotentialVictim, PotentialVictim]:
    return (
        PotentialVictim("a", a_level, 0, (PodsOnNode("m4", "cpu1", 4),)),
        PotentialVictim("b", b_level, 2, (PodsOnNode("n4", "cpu1", 4),)),
    )


def going(answer: SolveResult) -> dict[str, tuple[bool, int]]:
    return {each.id: (each.whole, sum(pods.count for pods in each.pods)) for each in answer.victims}


def test_what_can_be_spared_goes_before_whole_gangs(scenario: Scenario) -> None:
    assert going(ask(scenario, 2, *offer(0, 0))) == {"b": (False, 2)}
    assert going(ask(scenario, 1, *offer(0, 0))) == {"b": (False, 1)}


def test_the_fewest_whole_gangs_go_the_first_of_the_request_first(scenario: Scenario) -> None:
    assert going(ask(scenario, 3, *offer(0, 0))) == {"a": (True, 4)}
    assert going(ask(scenario, 7, *offer(0, 0))) == {"a": (True, 4), "b": (True, 4)}


def test_nothing_of_a_level_goes_if_lower_ones_suffice(scenario: Scenario) -> None:
    assert going(ask(scenario, 2, *offer(0, 1))) == {"a": (True, 4)}
    assert going(ask(scenario, 3, *offer(1, 0))) == {"b": (True, 4)}


def test_nothing_goes_in_vain(scenario: Scenario) -> None:
    answer = ask(scenario, 9, *offer(0, 0))
    assert answer.outcome is SolveOutcome.INFEASIBLE
    assert not answer.victims


def test_of_very_many_only_those_that_are_needed_go(scenario: Scenario) -> None:
    many = [PotentialVictim(f"a{i}", 0, 0, (PodsOnNode("m4", "cpu1", 1),)) for i in range(20)]
    scenario.delete(gang("a").of(4))
    for index in range(4):
        scenario.bind_elsewhere(_pod(scenario, index), "m4")
    assert len(going(ask(scenario, 3, *many))) == 3


def _pod(scenario: Scenario, index: int) -> str:
    pod = plain_pod(f"p{index}")
    scenario.add_pods(pod)
    return pod.uid


def test_what_has_room_is_placed_in_part_but_not_in_room_that_is_withheld(scenario: Scenario) -> None:
    scenario.delete(gang("a").of(4))
    assert ask(scenario, 5).outcome is SolveOutcome.INFEASIBLE
    answer = ask(scenario, 5, partial=True)
    assert answer.outcome is SolveOutcome.PARTIAL
    assert sum(assignment.count for assignment in answer.assignments) == 4
    assert sum(assignment.count for assignment in ask(scenario, 5, partial=True, nominated=3).assignments) == 1
    assert ask(scenario, 5, partial=True, nominated=4).outcome is SolveOutcome.INFEASIBLE
