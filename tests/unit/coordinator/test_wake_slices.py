"""An event that helps very many groups activates them in slices, before a solve begins (I12)."""

import pytest
from msgspec.structs import replace

from builders.core.objects import node, pod_class
from builders.core.scenario import Scenario
from builders.core.slices import slices_of
from builders.gangs.facts import gang
from muster.coordinator.core import reconcile
from muster.coordinator.core.effects import Effect, Persist, Solve
from muster.coordinator.core.events import Delta, Event, Now, Rules, Solved, SolveFailed
from muster.coordinator.core.gang.gang import Group
from muster.coordinator.core.preemption import preemption
from muster.coordinator.core.queue import queue, wake
from muster.gangs.facts import Batch
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult

AT_ONCE = 5
GROUPS = 60


def with_distinct_infeasible_gangs(count: int) -> Scenario:
    """Pending gangs that need a node with 5 CPUs, each of a class of its own; the last one precedes the others."""
    scenario = Scenario({"n": 4}, rules=Rules(groups_per_solve=4))
    for number in range(count):
        name = f"gang{number:03}"
        large = replace(pod_class(5), id=name)
        scenario.cluster.classes[name] = large
        scenario.tell(Delta(Batch(pod_classes=(large,))))
        built = gang(name).of(1).created(1000 - number)
        scenario.change(gangs=[built.gang_facts()], pods=[replace(pod, class_id=name) for pod in built.pods()])
    scenario.run_effects()
    return scenario


def names(effects: list[Effect]) -> list[str]:
    """Gangs of the solve requests among the effects, in their order."""
    return [group.id.rsplit("/", 1)[-1] for each in effects if isinstance(each, Solve) for group in each.groups]


def of_large_node() -> Event:
    return Delta(Batch(nodes=(node("large", 8),)))


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setattr(queue, "OBJECTS", AT_ONCE)
    monkeypatch.setattr(wake, "OBJECTS", AT_ONCE)
    scenario = with_distinct_infeasible_gangs(GROUPS)
    scenario.now += 10
    return scenario


def test_few_groups_become_active_in_one_slice(scenario: Scenario) -> None:
    activations, effects = slices_of(scenario, of_large_node(), lambda: scenario.leader.queue.activations)
    assert sum(activations) >= GROUPS
    assert max(activations) <= AT_ONCE
    assert len(names(effects)) == 4


def test_few_hints_are_evaluated_in_one_slice(scenario: Scenario) -> None:
    eligible = scenario.leader.cache.ledger.eligible
    evaluations, _ = slices_of(scenario, of_large_node(), lambda: eligible.evaluations)
    assert sum(evaluations) >= GROUPS
    assert max(evaluations) <= AT_ONCE


def test_queue_order_decides_among_all_groups_that_an_event_helps(scenario: Scenario) -> None:
    _, effects = slices_of(scenario, of_large_node(), lambda: 0)
    assert names(effects) == [f"gang{GROUPS - number:03}" for number in range(1, 5)]


def test_expired_backoffs_end_in_slices(scenario: Scenario) -> None:
    scenario.tell(of_large_node())
    while solves := [each for each in scenario.under_way if isinstance(each, Solve)]:
        scenario.under_way.clear()
        scenario.tell(*(SolveFailed(each.solve_id, "no answer") for each in solves))
    scenario.now += 60
    activations, effects = slices_of(scenario, Delta(Batch()), lambda: scenario.leader.queue.activations)
    assert sum(activations) == GROUPS
    assert max(activations) <= AT_ONCE
    assert names(effects) == [f"gang{GROUPS - number:03}" for number in range(1, 5)]


def test_an_answer_is_taken_in_one_group_at_a_time(scenario: Scenario) -> None:
    scenario.tell(of_large_node())
    (solve,) = (each for each in scenario.under_way if isinstance(each, Solve))
    places = [
        SolveResult(group.id, SolveOutcome.PLACED, (Assignment(group.gangs[0].id, 0, "large", 1),))
        for group in solve.groups
    ]
    huge = Delta(Batch(nodes=(node("large", 100),)))
    scenario.tell(huge)
    reserved = scenario.leader.cache.ledger.reserved
    counts, effects = slices_of(scenario, Solved(solve.solve_id, tuple(places)), lambda: len(reserved))
    assert sum(counts) == len(places) == 4
    assert max(counts) == 1
    assert len([each for each in effects if isinstance(each, Persist)]) == 4


def test_gangs_that_are_deleted_together_are_forgotten_in_slices(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "OBJECTS", AT_ONCE)
    gangs = tuple(scenario.leader.cache.gangs)
    pods = tuple(scenario.leader.cache.gang_of)
    removed = Delta(Batch(removed_pods=pods, removed_gangs=gangs))
    counts, _ = slices_of(scenario, removed, lambda: -len(scenario.leader.queue))
    assert sum(counts) == GROUPS
    assert max(counts) <= AT_ONCE


def test_groups_that_may_preempt_are_considered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "OBJECTS", AT_ONCE)
    scenario = with_distinct_infeasible_gangs(GROUPS)
    considered = list[Group]()
    priority = Group.preempting_priority

    def counted(group: Group) -> int:
        considered.append(group)
        return int(priority.__get__(group))

    monkeypatch.setattr(Group, "preempting_priority", property(counted))
    scenario.leader._preemption._new_victims_from = -1
    slices = scenario.leader._preemption.consider_new_victims(Now(scenario.now, scenario.now))
    for number, _ in enumerate(slices, start=1):
        assert len(considered) == AT_ONCE * number
    assert len(considered) == GROUPS
