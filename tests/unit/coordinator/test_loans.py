"""Surplus on the capacity of backfill reservations: who borrows, and how the capacity is taken back."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from builders.core.actions import crowded, end, ends, evicted, held_back, is_plan, pods_of, until
from builders.core.objects import node
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Evict, Persist, Solve
from muster.coordinator.core.events import Rules

RUNS = gang("runs").of(3).needing(3)
ELASTIC = gang("e").of(1)
HEAD = gang("head").of(5).created(5)


def reserved(
    elastic: CoreGang = ELASTIC, head: CoreGang = HEAD, runs: CoreGang = RUNS, *, rules: Rules | None = None
) -> Scenario:
    """A node with 6 cpus, of which gangs use 4; 5 are reserved for a third gang, until 3 of them are free."""
    scenario = crowded({"n": 6}, rules=rules or Rules())
    scenario.set_budget("default/budget", 9)
    scenario.add(runs.created(0), elastic)
    scenario.run_effects()
    scenario.add(head)
    scenario.pass_time(31)
    assert scenario.leader.cache.nominations
    return scenario


def grow(scenario: Scenario, elastic: CoreGang = ELASTIC, to: int = 3, **fields: Any) -> None:
    """The elastic gang's controller creates pods above its minimum."""
    grown = elastic.needing(1).of(to)
    scenario.change(gangs=[grown.gang_facts()])
    pods = [pod for pod in grown.pods() if pod.uid not in scenario.cluster.pods]
    scenario.change(pods=[replace(pod, **fields) for pod in pods])
    scenario.pass_time(31)


def finish(scenario: Scenario) -> None:
    """The pods end that the reservation waits for."""
    ends(scenario, *(pod.uid for pod in pods_of(scenario, "runs")))
    scenario.run_effects()


def test_surplus_borrows_reserved_capacity_and_gives_it_back() -> None:
    scenario = reserved()
    grow(scenario)
    assert scenario.bound("e") == 3
    assert not evicted(scenario)
    finish(scenario)
    assert evicted(scenario) == {"e"}
    assert sum(pod.deleting for pod in pods_of(scenario, "e")) == 2
    end(scenario)
    assert (scenario.bound("head"), scenario.bound("e")) == (5, 1)


def test_nothing_is_taken_back_before_all_other_pods_have_left() -> None:
    scenario = reserved()
    grow(scenario)
    ends(scenario, *(pod.uid for pod in pods_of(scenario, "runs")[:2]))
    scenario.pass_time(30)
    assert not evicted(scenario)


def test_no_more_is_taken_back_than_is_needed() -> None:
    scenario = reserved(head=HEAD.of(4))
    grow(scenario)
    assert scenario.bound("e") == 3
    finish(scenario)
    assert sum(pod.deleting for pod in pods_of(scenario, "e")) == 1


def test_a_group_that_fits_elsewhere_takes_nothing_back() -> None:
    scenario = reserved()
    grow(scenario)
    scenario.change(nodes=[node("m", 5)])
    scenario.run_effects()
    assert scenario.bound("head") == 5
    assert not evicted(scenario)


def test_other_gangs_do_not_borrow() -> None:
    scenario = reserved()
    scenario.add(gang("small").of(1).created(9))
    scenario.pass_time(31)
    assert scenario.bound("small") == 0


@pytest.mark.parametrize(
    "fields",
    [{"uncontrolled": True}, {"budgets": ("default/budget",)}, {"priority": 2_000_000_000}],
    ids=["nobody would recreate it", "a disruption budget covers it", "it is critical to the system"],
)
def test_a_pod_that_could_not_be_evicted_at_once_does_not_borrow(fields: dict[str, Any]) -> None:
    scenario = reserved()
    grow(scenario, **fields)
    assert scenario.bound("e") == 1


@pytest.mark.parametrize(
    "change",
    [lambda e: e.evicted_as_a_whole(), lambda e: e.in_subgroups(1, size=1, rack=False)],
    ids=["evicted whole", "subgroups"],
)
def test_a_gang_that_is_not_shrunk_pod_by_pod_does_not_borrow(change: Callable[[CoreGang], CoreGang]) -> None:
    elastic = change(ELASTIC)
    scenario = reserved(elastic)
    grow(scenario, elastic)
    assert scenario.bound("e") == 1


def test_nothing_is_lent_where_evictions_are_limited() -> None:
    scenario = reserved(rules=Rules(evictions_per_hour=1000))
    grow(scenario)
    assert scenario.bound("e") == 1


def test_surplus_of_a_higher_priority_gives_back_to_a_gang_that_never_preempts() -> None:
    scenario = reserved(ELASTIC.with_priority(9), HEAD.never_preempting())
    grow(scenario, ELASTIC.with_priority(9))
    finish(scenario)
    assert evicted(scenario) == {"e"}
    end(scenario)
    assert scenario.bound("head") == 5


def test_surplus_of_a_lower_priority_is_preempted_as_any_other() -> None:
    scenario = reserved(head=HEAD.with_priority(5), runs=RUNS.with_priority(9))
    grow(scenario)
    ends(scenario, *(pod.uid for pod in pods_of(scenario, "runs")))
    solve = until(scenario, Solve, lambda each: bool(each.potential_victims))
    assert [each.id for each in solve.potential_victims] == ["test/default/e"]
    plan = until(scenario, Persist, is_plan)
    assert not any(record.revoked for record in plan.puts)
    scenario.run_effects()
    assert evicted(scenario) == {"e"}
    end(scenario)
    assert scenario.bound("head") == 5


def test_pods_on_capacity_that_is_not_reserved_are_not_taken_back() -> None:
    scenario = reserved()
    scenario.change(nodes=[node("m", 2)])
    grow(scenario)
    finish(scenario)
    assert {pod.node for pod in pods_of(scenario, "e")} == {"n", "m"}
    assert not evicted(scenario)
    assert scenario.bound("head") == 5


def test_surplus_borrows_only_if_it_has_no_other_place() -> None:
    scenario = reserved()
    scenario.change(nodes=[node("z", 2)])  # first fit prefers the other node, which is reserved
    grow(scenario)
    assert sorted(pod.node for pod in pods_of(scenario, "e")) == ["n", "z", "z"]


def test_a_gang_keeps_borrowed_capacity_that_its_minimum_needs_and_borrows_no_more() -> None:
    scenario = reserved()
    grow(scenario)
    scenario.change(gangs=[ELASTIC.of(3).gang_facts()])
    finish(scenario)
    scenario.pass_time(1)
    assert not evicted(scenario)
    assert scenario.bound("e") == 3
    assert scenario.gang("e").growth.kept_loan
    scenario.pass_time(60)
    assert scenario.leader.cache.nominations
    grow(scenario, to=4)
    assert scenario.bound("e") == 3


def test_a_gang_whose_pods_do_not_leave_in_time_borrows_no_more() -> None:
    scenario = reserved()
    grow(scenario)
    finish(scenario)
    scenario.pass_time(299)
    assert not scenario.gang("e").growth.kept_loan
    scenario.pass_time(2)
    assert scenario.gang("e").growth.kept_loan


def test_a_gang_that_needs_its_borrowed_pods_before_the_plan_is_durable_keeps_them() -> None:
    scenario = reserved()
    grow(scenario)
    ends(scenario, *(pod.uid for pod in pods_of(scenario, "runs")))
    plan = until(scenario, Persist, is_plan)
    scenario.change(gangs=[ELASTIC.of(3).gang_facts()])
    scenario.do(scenario.under_way.index(plan))
    scenario.run_effects()
    assert not evicted(scenario)


def test_a_borrower_that_is_still_being_bound_is_taken_back_once_it_runs() -> None:
    scenario = reserved()
    grown = ELASTIC.needing(1).of(3)
    scenario.change(gangs=[grown.gang_facts()], pods=grown.pods()[1:])
    while scenario.gang("e").pending:
        scenario.do(0)
    ends(scenario, *(pod.uid for pod in pods_of(scenario, "runs")))
    scenario.run_effects()
    assert evicted(scenario) == {"e"}
    end(scenario)
    assert scenario.bound("head") == 5


@pytest.mark.parametrize("sent", [0, 1])
def test_the_next_leader_goes_on_to_take_back(sent: int) -> None:
    scenario = reserved()
    grow(scenario)
    ends(scenario, *(pod.uid for pod in pods_of(scenario, "runs")))
    scenario.do(scenario.under_way.index(until(scenario, Persist, is_plan)))
    (evict,) = [effect for effect in scenario.under_way if isinstance(effect, Evict)]
    for pod in evict.pods[:sent]:
        scenario.evict(pod)
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    assert scenario.leader.cache.nominations
    end(scenario)
    assert (scenario.bound("head"), scenario.bound("e")) == (5, 1)


def test_loans_end_with_the_leader() -> None:
    scenario = reserved()
    grow(scenario)
    scenario.crash()
    scenario.start()
    scenario.pass_time(40)
    finish(scenario)
    scenario.pass_time(1)
    assert not evicted(scenario)


def test_a_borrower_that_was_taken_back_does_not_grow_at_once() -> None:
    scenario = reserved()
    grow(scenario)
    finish(scenario)
    end(scenario)
    scenario.change(nodes=[node("m", 9)], pods=[replace(pod, uid=f"{pod.uid}-new") for pod in ELASTIC.of(3).pods()[1:]])
    scenario.run_effects()
    assert scenario.bound("e") == 1
    scenario.pass_time(11)
    assert scenario.bound("e") == 3


def test_other_preemptors_do_not_get_what_was_lent() -> None:
    scenario = reserved(ELASTIC, HEAD.with_priority(5).never_preempting())
    grow(scenario)
    scenario.add(gang("p").of(2).with_priority(3).created(8))
    scenario.run_effects()
    assert not evicted(scenario)
    assert scenario.bound("e") == 3


def test_requests_offer_borrowers_to_the_owner_first() -> None:
    scenario = reserved(ELASTIC.with_priority(9), HEAD.with_priority(3), RUNS.with_priority(9))
    grow(scenario, ELASTIC.with_priority(9))
    ends(scenario, *(pod.uid for pod in pods_of(scenario, "runs")))
    solve = until(scenario, Solve, lambda each: bool(each.potential_victims))
    assert [(each.id, each.level, each.spare) for each in solve.potential_victims] == [("test/default/e", 0, 2)]


def test_a_pod_with_a_place_of_its_own_borrows_nothing_when_others_of_its_gang_do() -> None:
    scenario = crowded({"n": 7})
    scenario.set_budget("default/budget", 9)
    scenario.add(RUNS.created(0), ELASTIC)
    scenario.run_effects()
    grown = ELASTIC.needing(1).of(3)
    _, own, further = grown.pods()
    scenario.change(gangs=[grown.gang_facts()], pods=[replace(own, budgets=("default/budget",))])
    held_back(scenario, Bind)  # under way all the time
    scenario.add(HEAD)
    scenario.pass_time(31)
    scenario.change(pods=[further])
    scenario.pass_time(31)
    [nomination] = scenario.leader.cache.nominations.values()
    assert nomination.lent == {further.uid}
