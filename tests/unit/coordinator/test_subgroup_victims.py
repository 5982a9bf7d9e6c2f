"""What a gang with subgroups loses to preemption: surplus pods, then whole subgroups, then all of it."""

from collections import Counter

import pytest
from msgspec.structs import replace

from builders.core.actions import end, evicted, full, pods_of, until_planned
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Evict, Phase, Solve
from muster.gangs.facts import LEADER, MatchPolicy
from muster.gangs.solve import SolveOutcome, SolveResult

PARTS = gang("a").needing(4).in_subgroups(3, 2, 2, size=2, minimum=2, rack=False)
"""Three subgroups of two or more pods, of which two must run: one pod and one subgroup can be spared."""


def running(built: CoreGang, *others: CoreGang) -> Scenario:
    """A full cluster in which the gangs run."""
    return full(built, *others, nodes={"n": built.size + sum(other.size for other in others)})


def preempt(scenario: Scenario, size: int, name: str = "p") -> None:
    """A gang of a high priority needs the capacity of this many pods."""
    scenario.add(gang(name).of(size).with_priority(10))
    scenario.run_effects()


def left(scenario: Scenario, name: str = "a") -> Counter[str]:
    """Pods that keep running, by subgroup."""
    return Counter(pod.label_set for pod in pods_of(scenario, name) if pod.node and not pod.deleting)


@pytest.mark.parametrize(
    ("size", "remain"),
    [
        (1, {"subgroup:0": 2, "subgroup:1": 2, "subgroup:2": 2}),
        (2, {"subgroup:0": 3, "subgroup:1": 2}),
        (3, {"subgroup:0": 2, "subgroup:1": 2}),
        (4, {}),
        (7, {}),
    ],
)
def test_surplus_goes_first_then_a_whole_subgroup_then_the_gang(size: int, remain: dict[str, int]) -> None:
    scenario = running(PARTS)
    preempt(scenario, size)
    assert left(scenario) == remain
    end(scenario)
    assert scenario.bound("p") == size


def test_a_gang_without_spare_subgroups_is_evicted_whole() -> None:
    scenario = running(gang("a").needing(2).in_subgroups(2, 2, minimum=2, rack=False))
    preempt(scenario, 2)
    assert left(scenario) == {}


def test_the_minimum_of_the_gang_keeps_subgroups_that_its_policy_would_spare() -> None:
    scenario = running(gang("a").needing(5).in_subgroups(2, 2, 2, minimum=1, rack=False))
    preempt(scenario, 2)
    assert left(scenario) == {}


def test_pods_above_the_size_of_a_subgroup_stay_if_the_gang_needs_them() -> None:
    scenario = running(gang("a").needing(6).in_subgroups(3, 3, size=2, minimum=2, rack=False))
    preempt(scenario, 1)
    assert left(scenario) == {}


def test_pods_in_no_subgroup_go_one_by_one() -> None:
    scenario = running(gang("a").of(6).needing(4).in_subgroups(2, 2, minimum=2, rack=False))
    preempt(scenario, 2)
    assert left(scenario) == {"subgroup:0": 2, "subgroup:1": 2}


def test_a_subgroup_goes_before_another_gang_of_the_same_priority() -> None:
    other = gang("b").of(2).created(30)
    scenario = running(PARTS, other)
    preempt(scenario, 2)
    assert evicted(scenario) == {"a"}
    assert left(scenario, "b").total() == 2


def test_surplus_of_another_gang_goes_before_a_subgroup() -> None:
    other = gang("b").of(3).needing(1).created(30)
    scenario = running(gang("a").needing(2).in_subgroups(2, 2, minimum=1, rack=False), other)
    preempt(scenario, 2)
    assert left(scenario, "a").total() == 4
    assert left(scenario, "b").total() == 1


def test_subgroups_of_two_gangs_go_before_one_whole_gang() -> None:
    parts = gang("a").needing(2).in_subgroups(2, 2, minimum=1, rack=False)
    scenario = running(parts, parts.named("b"), gang("c").of(4).created(30))
    preempt(scenario, 4)
    assert left(scenario, "a").total() == left(scenario, "b").total() == 2
    assert left(scenario, "c").total() == 4


def test_a_gang_of_a_lower_priority_goes_before_a_subgroup() -> None:
    scenario = running(PARTS.with_priority(2), gang("b").of(2).with_priority(1))
    preempt(scenario, 2)
    assert evicted(scenario) == {"b"}


def test_the_subgroup_whose_dearest_pod_costs_least_goes_first() -> None:
    scenario = running(gang("a").needing(4).in_subgroups(2, 2, 2, minimum=2, rack=False))
    costs = {"subgroup:0": 5, "subgroup:1": 1, "subgroup:2": 5}
    scenario.change(pods=[replace(pod, deletion_cost=costs[pod.label_set]) for pod in pods_of(scenario, "a")])
    preempt(scenario, 2)
    assert left(scenario) == {"subgroup:0": 2, "subgroup:2": 2}


def test_a_subgroup_that_lacks_members_goes_before_a_whole_one() -> None:
    scenario = running(gang("a").needing(3).in_subgroups(2, 2, 2, minimum=1, rack=False))
    damaged = next(pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:1")
    scenario.change(remove_pods=[damaged.uid])
    preempt(scenario, 2)
    assert left(scenario) == {"subgroup:0": 2, "subgroup:2": 2}


@pytest.mark.parametrize("kept", [{"ordinal": LEADER}, {"uncontrolled": True}], ids=str)
def test_the_subgroup_of_a_leader_or_a_bare_pod_stays(kept: dict[str, int]) -> None:
    scenario = running(gang("a").needing(4).in_subgroups(2, 2, 2, minimum=2, rack=False))
    pods = [pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:2"]
    scenario.change(pods=[replace(pods[0], **kept)])
    preempt(scenario, 2)
    assert left(scenario) == {"subgroup:0": 2, "subgroup:2": 2}


def test_a_disruption_budget_keeps_subgroups_and_permits_surplus() -> None:
    scenario = Scenario({"n": PARTS.size})
    scenario.set_budget("default/budget", 1)
    scenario.add(PARTS.with_budget("default/budget"))
    scenario.run()
    preempt(scenario, 2)
    assert left(scenario).total() == 7
    preempt(scenario, 1, "q")
    assert left(scenario) == {"subgroup:0": 2, "subgroup:1": 2, "subgroup:2": 2}


def test_surplus_of_others_takes_no_subgroup() -> None:
    grown = gang("b").of(1).with_priority(10).with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
    scenario = running(gang("a").needing(2).in_subgroups(2, 2, minimum=1, rack=False), grown)
    scenario.change(pods=[grown.of(2).pods()[1]])
    scenario.run_effects()
    assert left(scenario).total() == 4


def test_a_shrunk_gang_stays_satisfied_and_its_subgroup_starts_again_whole() -> None:
    scenario = running(PARTS)
    lost = [pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:2"]
    preempt(scenario, 2)
    end(scenario)
    assert scenario.gang("a").phase is Phase.SATISFIED
    again = [replace(pod, uid=f"{pod.uid}-again", node="", phase=PARTS.pods()[0].phase) for pod in lost]
    scenario.change(remove_pods=[pod.uid for pod in pods_of(scenario, "p")], pods=again[:1])
    scenario.pass_time(60)
    assert left(scenario) == {"subgroup:0": 3, "subgroup:1": 2}
    scenario.change(pods=again[1:])
    scenario.pass_time(60)
    assert left(scenario) == {"subgroup:0": 3, "subgroup:1": 2, "subgroup:2": 2}


def test_a_plan_is_dropped_if_another_subgroup_is_damaged_meanwhile() -> None:
    scenario = running(PARTS)
    scenario.add(gang("p").of(2).with_priority(10))
    plan = until_planned(scenario)
    other = next(pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:1")
    scenario.change(remove_pods=[other.uid])
    scenario.do(scenario.under_way.index(plan))
    assert not any(isinstance(effect, Evict) for effect in scenario.under_way)


def test_a_new_leader_evicts_the_rest_of_the_subgroup() -> None:
    scenario = running(PARTS)
    scenario.add(gang("p").of(2).with_priority(10))
    scenario.do(scenario.under_way.index(until_planned(scenario)))
    (evict,) = [effect for effect in scenario.under_way if isinstance(effect, Evict)]
    scenario.evict(evict.pods[0])
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    end(scenario)
    assert left(scenario) == {"subgroup:0": 3, "subgroup:1": 2}
    assert scenario.bound("p") == 2


def test_an_answer_with_a_part_of_a_subgroup_is_rejected() -> None:
    scenario = running(PARTS)
    right = scenario.solver

    def wrong(solve: Solve) -> tuple[SolveResult, ...]:
        results = right(solve)
        if not solve.potential_victims or results[0].outcome is not SolveOutcome.PLACED:
            return results
        victims = [
            replace(each, pods=tuple(replace(pods, count=1) for pods in each.pods)) for each in results[0].victims
        ]
        return (replace(results[0], victims=tuple(victims)),)

    scenario.solver = wrong
    preempt(scenario, 2)
    assert left(scenario).total() == 7


def test_a_surplus_pod_stays_if_its_subgroup_lost_another_meanwhile() -> None:
    scenario = running(PARTS)
    scenario.add(gang("p").of(1).with_priority(10))
    plan = until_planned(scenario)
    [going] = [name.uid for record in plan.puts for name in record.evicting]
    others = [pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:0" and pod.uid != going]
    scenario.change(remove_pods=[others[0].uid])
    scenario.do(scenario.under_way.index(plan))
    assert not any(isinstance(effect, Evict) for effect in scenario.under_way)


def test_a_subgroup_goes_with_the_pods_that_it_could_lose_singly() -> None:
    scenario = running(gang("a").needing(2).in_subgroups(2, 3, size=2, minimum=1, rack=False))
    preempt(scenario, 2)
    assert left(scenario) == {"subgroup:0": 2}


def test_subgroups_that_may_be_smaller_let_surplus_of_others_grow() -> None:
    parts = gang("a").needing(2).in_subgroups(2, 2, size=2, minimum=2, rack=False)
    grown = gang("b").of(1).with_priority(10).with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
    scenario = running(parts, grown)
    scenario.change(pods=[grown.of(2).pods()[1]])
    scenario.pass_time(120)
    assert left(scenario).total() == 4
    scenario.change(gangs=[parts.in_subgroups(2, 2, size=1, minimum=2, rack=False).gang_facts()])
    scenario.run_effects()
    assert left(scenario).total() == 3
