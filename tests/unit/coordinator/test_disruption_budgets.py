"""Disruption budgets protect pods from preemption; what becomes of victims."""

from msgspec.structs import replace

from builders.core.actions import brought_back, crowded, end, evicted, full, places, pods_of, until, until_planned
from builders.core.objects import node
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Evict, Phase, Solve

# -- who goes


def test_two_preemptors_that_each_have_victims_start_both() -> None:
    scenario = full(gang("a").of(2).created(1), gang("b").of(2).created(2), nodes={"n": 4})
    scenario.add(gang("p").of(2).with_priority(10).created(20), gang("q").of(2).with_priority(9).created(21))
    scenario.run_effects()
    end(scenario)
    scenario.pass_time(5)
    end(scenario)
    assert places(scenario, "abpq") == {"a": 0, "b": 0, "p": 2, "q": 2}


def test_i7_a_lowered_priority_of_a_running_gang_repeats_the_victim_search() -> None:
    scenario = full(gang("v").of(4).with_priority(10), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(5))
    scenario.pass_time(5)
    assert not evicted(scenario)
    scenario.change(pods=[replace(pod, priority=0) for pod in pods_of(scenario, "v")])
    scenario.pass_time(100)
    assert evicted(scenario) == {"v"}


# -- disruption budgets


def test_a_budget_is_not_used_up_by_unselected_victims() -> None:
    scenario = crowded({"n": 2, "m": 4}, b=2)
    scenario.add(gang("b").of(1, cpu=4).created(1).with_budget("default/b"))
    scenario.run_effects()
    scenario.add(gang("a").of(2).created(9).with_budget("default/b"))
    scenario.run_effects()
    assert places(scenario, "ab") == {"a": 2, "b": 1}
    scenario.add(gang("p").of(1, cpu=4).with_priority(10).created(20))
    scenario.run_effects()
    assert evicted(scenario) == {"b"}


def test_a_budget_is_counted_once_for_two_plans() -> None:
    """The second eviction would be refused, and its room kept for ever."""
    scenario = crowded({"n": 1, "m": 1}, b=1)
    scenario.add(*(gang(name).of(1).with_budget("default/b") for name in "ac"))
    scenario.run_effects()
    scenario.add(gang("p").of(1).with_priority(10).created(5), gang("q").of(1).with_priority(9).created(6))
    until_planned(scenario)
    while solves := [effect for effect in scenario.under_way if isinstance(effect, Solve)]:
        scenario.do(scenario.under_way.index(solves[0]))
    assert sum(len(kept.leaving) for kept in scenario.leader.cache.nominations.values()) == 1
    scenario.run_effects()
    assert len(evicted(scenario)) == 1


def test_a_victim_that_cannot_be_evicted_any_more_does_not_bind_the_plan_for_ever() -> None:
    scenario = crowded({"n": 2, "m": 2}, b=2)
    scenario.add(gang("a").of(2).created(9).with_budget("default/b"), gang("c").of(2).created(1))
    scenario.run_effects()
    scenario.add(gang("p").of(2).with_priority(10).created(20))
    assert {pod.uid for pod in until(scenario, Evict).pods} == {pod.uid for pod in pods_of(scenario, "a")}
    scenario.set_budget("default/b", 0)
    scenario.pass_time(600)
    assert evicted(scenario) == {"c"}
    end(scenario)
    assert scenario.bound("p") == 2


# -- what becomes of victims


def test_i1_a_gang_recreated_during_eviction_starts_whole_after_the_preemptor() -> None:
    old = gang("v").of(4)
    new = old.recreated("2")
    scenario = full(old, nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(5))
    scenario.run_effects()
    assert evicted(scenario) == {"v"}
    scenario.change(remove_gangs=[old.id])
    scenario.add(new)
    scenario.change(nodes=[node("m", 3)])

    def started() -> int:
        return sum(1 for pod in new.pods() if scenario.cluster.pods[pod.uid].node)

    scenario.run_effects()
    assert (scenario.bound("p"), started()) == (0, 0)
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    assert (scenario.bound("p"), started()) == (0, 0)
    end(scenario)
    assert (scenario.bound("p"), started()) == (4, 0)
    scenario.change(nodes=[node("m", 4)])
    scenario.run_effects()
    assert started() == 4


def test_a_strict_partner_of_a_victim_runs_on_and_the_victim_starts_again() -> None:
    built = {name: gang(name).of(2).with_group("default/a", "default/b") for name in "ab"}
    scenario = full(*built.values(), nodes={"n": 4})
    scenario.add(gang("p").of(2).with_priority(10).created(5))
    scenario.run_effects()
    (victim,) = evicted(scenario)
    end(scenario)
    partner = "b" if victim == "a" else "a"
    assert (scenario.bound("p"), scenario.bound(partner)) == (2, 2)
    scenario.add_pods(*brought_back(built[victim]))
    scenario.run_effects()
    scenario.crash()
    scenario.start()
    scenario.change(nodes=[node("m", 2)])
    scenario.run_effects()
    assert places(scenario, "abp") == {"a": 2, "b": 2, "p": 2}


def test_a_victim_that_another_scheduler_binds_during_eviction_starts_again() -> None:
    victim = gang("v").of(2)
    scenario = full(victim, nodes={"n": 2})
    scenario.evict_failures.update({pod.uid: 2 for pod in victim.pods()})
    scenario.add(gang("p").of(2).with_priority(10).created(5))
    scenario.run_effects()
    assert scenario.gang("v").eviction.whole
    scenario.add_pods(*brought_back(victim))
    scenario.change(nodes=[node("m", 1)])
    scenario.run_effects()
    scenario.shared_nodes.add("m")
    scenario.bind_elsewhere(brought_back(victim)[0].uid, "m")
    scenario.run_effects()
    scenario.crash()
    scenario.start()
    scenario.pass_time(30)
    end(scenario)
    scenario.pass_time(5)
    assert places(scenario, "pv") == {"p": 2, "v": 1}
    assert scenario.gang("v").phase is Phase.QUEUED
    assert not scenario.gang("v").permitted
