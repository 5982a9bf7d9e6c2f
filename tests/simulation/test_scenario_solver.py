"""The solver of scenarios, which the oracle trusts: selection of victims, partial placement."""

import pytest

from builders.core.objects import plain_pod, ruled_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Solve
from muster.gangs.facts import kind_id
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
    """Gang a runs on m4 and has no spare pods; gang b runs on n4 and has two."""
    scenario = Scenario({"n4": 4, "m4": 4})
    scenario.add(gang("a").of(4), gang("b").needing(2).of(4))
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


def victims_of(answer: SolveResult) -> dict[str, tuple[bool, int]]:
    return {each.id: (each.whole, sum(pods.count for pods in each.pods)) for each in answer.victims}


def test_spare_pods_are_evicted_before_whole_gangs(scenario: Scenario) -> None:
    assert victims_of(ask(scenario, 2, *offer(0, 0))) == {"b": (False, 2)}
    assert victims_of(ask(scenario, 1, *offer(0, 0))) == {"b": (False, 1)}


def test_the_fewest_gangs_are_evicted_in_order_of_the_request(scenario: Scenario) -> None:
    assert victims_of(ask(scenario, 3, *offer(0, 0))) == {"a": (True, 4)}
    assert victims_of(ask(scenario, 7, *offer(0, 0))) == {"a": (True, 4), "b": (True, 4)}


def test_higher_levels_are_spared_if_lower_ones_suffice(scenario: Scenario) -> None:
    assert victims_of(ask(scenario, 2, *offer(0, 1))) == {"a": (True, 4)}
    assert victims_of(ask(scenario, 3, *offer(1, 0))) == {"b": (True, 4)}


def test_no_pod_is_evicted_in_vain(scenario: Scenario) -> None:
    answer = ask(scenario, 9, *offer(0, 0))
    assert answer.outcome is SolveOutcome.INFEASIBLE
    assert not answer.victims


def test_of_many_victims_only_the_needed_are_evicted(scenario: Scenario) -> None:
    many = [PotentialVictim(f"a{i}", 0, 0, (PodsOnNode("m4", "cpu1", 1),)) for i in range(20)]
    scenario.delete(gang("a").of(4))
    for index in range(4):
        scenario.bind_elsewhere(_pod(scenario, index), "m4")
    assert len(victims_of(ask(scenario, 3, *many))) == 3


def _pod(scenario: Scenario, index: int) -> str:
    pod = plain_pod(f"p{index}")
    scenario.add_pods(pod)
    return pod.uid


def test_partial_placement_leaves_nominated_capacity_free(scenario: Scenario) -> None:
    scenario.delete(gang("a").of(4))
    assert ask(scenario, 5).outcome is SolveOutcome.INFEASIBLE
    answer = ask(scenario, 5, partial=True)
    assert answer.outcome is SolveOutcome.PARTIAL
    assert sum(assignment.count for assignment in answer.assignments) == 4
    assert sum(assignment.count for assignment in ask(scenario, 5, partial=True, nominated=3).assignments) == 1
    assert ask(scenario, 5, partial=True, nominated=4).outcome is SolveOutcome.INFEASIBLE


def test_the_first_pods_of_an_affinity_are_where_those_of_all_gangs_of_a_group_fit() -> None:
    scenario = Scenario({"n1": 1, "n3": 3})
    beside = ruled_class(1, beside="red")
    scenario.change(classes=[beside])
    role = Role(kind_id(beside.id, "red"), 1)
    group = SolveGroup("x", tuple(SolveGang(gang_id, 1, (role,)) for gang_id in ("a", "b")))
    (answer,) = scenario.first_fit(Solve(1, {}, (), (group,)))
    assert {assignment.node for assignment in answer.assignments} == {"n3"}
