"""Preemption plans under changes: before they are durable, and while their victims terminate (I9)."""

import pytest
from msgspec.structs import replace

from builders.core.actions import (
    answered,
    end,
    evicted,
    full,
    held_back,
    is_plan,
    places,
    pods_of,
    reservations,
    until,
    until_planned,
)
from builders.core.objects import node
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Evict, Persist, Solve
from muster.coordinator.core.events import EvictCallFailed, NotPersisted, Persisted, Snapshot, Solved, ViewLost
from muster.gangs.solve import SolveOutcome, SolveResult

# -- before the plan is durable


def test_i9_a_plan_that_is_too_small_by_now_is_not_carried_out() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    p = gang("p").of(6).needing(4).with_priority(10).created(5)
    scenario.add(p)
    until_planned(scenario)
    scenario.change(gangs=[p.needing(6).gang_facts()])
    scenario.pass_time(5)
    assert not evicted(scenario), "p needs six by now"


def test_i9_a_preemptor_with_lowered_priority_evicts_nothing() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    p = gang("p").of(4).with_priority(10).created(5)
    scenario.add(p)
    until_planned(scenario)
    scenario.change(pods=[replace(pod, priority=0) for pod in p.pods()])
    scenario.pass_time(5)
    assert not evicted(scenario)


def test_i9_reservations_that_became_a_start_are_not_counted_on() -> None:
    waits = gang("w").of(3).created(1).non_strict()
    scenario = full(gang("v").of(2).created(2), nodes={"n": 4})
    scenario.add(waits)
    scenario.run_effects()
    assert reservations(scenario, "w") == {"w": 2}
    scenario.add(gang("p").of(4).with_priority(10).created(20))
    plan = held_back(scenario, Persist, is_plan)
    scenario.change(gangs=[waits.needing(2).gang_facts()])  # it can start with what it holds
    scenario.persist(plan)
    until(scenario, Persist)
    scenario.tell(Persisted(plan.persist_id))
    scenario.run_effects()
    end(scenario)
    scenario.pass_time(60)
    end(scenario)
    running = places(scenario, "vwp")
    assert running in ({"v": 2, "w": 2, "p": 0}, {"v": 0, "w": 0, "p": 4}), "somebody went for nothing"


def test_i9_spare_members_that_are_spare_no_more_stay() -> None:
    """Others of the gang end by themselves before the plan is durable."""
    scenario = full(gang("v").of(6).needing(4), nodes={"n": 6})
    scenario.add(gang("p").of(2).with_priority(10).created(5))
    until_planned(scenario)
    leaving = set(scenario.gang("v").eviction.pods)
    scenario.change(remove_pods=[pod.uid for pod in pods_of(scenario, "v") if pod.uid not in leaving][:2])
    scenario.run_effects()
    end(scenario)
    scenario.pass_time(5)
    assert places(scenario, "pv") == {"p": 2, "v": 4}, "two places came free by themselves"


def test_surplus_that_has_lost_its_owner_during_an_attempt_stays() -> None:
    scenario = full(gang("v").of(6).needing(4), nodes={"n": 6})
    scenario.add(gang("p").of(2).with_priority(10).created(5))
    solve = held_back(scenario, Solve, lambda each: bool(each.potential_victims))
    bare = [replace(pod, uncontrolled=True) for pod in pods_of(scenario, "v")]
    scenario.change(pods=bare)
    scenario.tell(answered(scenario, solve))
    scenario.run_effects()
    assert not evicted(scenario)
    assert places(scenario, "pv") == {"p": 0, "v": 6}


def test_i9_a_victim_with_a_raised_minimum_is_evicted_whole_or_not_at_all() -> None:
    victim = gang("v").of(6).needing(4)
    scenario = full(victim, nodes={"n": 6})
    scenario.add(gang("p").of(2).with_priority(10).created(5))
    until_planned(scenario)
    scenario.change(gangs=[victim.needing(6).gang_facts()])
    scenario.run_effects()
    end(scenario)
    scenario.pass_time(5)
    assert places(scenario, "pv") == {"p": 2, "v": 0}


def test_i9_a_failed_plan_with_an_ended_victim_leaves_no_gang_in_limbo() -> None:
    victim, preemptor = gang("v").of(4), gang("p").of(4).with_priority(10).created(5)
    scenario = full(victim, nodes={"n": 4})
    scenario.add(preemptor)
    until_planned(scenario)
    scenario.change(remove_pods=[victim.pods()[0].uid])
    scenario.delete(preemptor)
    scenario.pass_time(100)
    assert not scenario.gang("v").eviction.pods, "nobody sends these evictions"
    assert not scenario.etcd[victim.id].evicting, "nor does the next leader"


def test_i9_a_crash_with_a_plan_not_yet_executed_evicts_nothing() -> None:
    """The plan is durable; then the preemptor goes, a victim ends by itself, and the leader dies."""
    victim, preemptor = gang("v").of(4), gang("p").of(4).with_priority(10).created(5)
    scenario = full(victim, nodes={"n": 4})
    scenario.add(preemptor)
    scenario.persist(until_planned(scenario))
    scenario.crash()
    scenario.delete(preemptor)
    scenario.change(remove_pods=[victim.pods()[0].uid])
    scenario.start()
    scenario.run_effects()
    assert not evicted(scenario)


def test_i9_nothing_is_evicted_while_the_stream_is_lost() -> None:
    preemptor = gang("p").of(4).with_priority(10).created(5)
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(preemptor)
    plan = until_planned(scenario)
    scenario.tell(ViewLost("cluster-state is away"))
    scenario.lagging = True
    scenario.delete(preemptor)
    scenario.do(scenario.under_way.index(plan))
    scenario.run_effects()
    assert not evicted(scenario)
    scenario.lagging, scenario.stream = False, []
    scenario.tell(Snapshot(scenario.cluster.whole()))
    scenario.run_effects()
    assert not evicted(scenario), "the preemptor is gone"


def test_a_plan_that_cannot_be_written_is_not_made_again_without_end() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(5))
    plans = 0
    while scenario.under_way and plans < 5:
        effect = scenario.under_way[0]
        if isinstance(effect, Persist) and is_plan(effect):
            plans += 1
            scenario.under_way.pop(0)
            scenario.tell(NotPersisted(effect.persist_id, "etcdserver: too many operations in txn request"))
        else:
            scenario.do(0)
    assert plans == 1, "without any time between"
    assert not evicted(scenario)


# -- while the victims go


def test_i9_an_answer_to_an_older_request_keeps_the_nomination() -> None:
    scenario = full(gang("a").of(2).created(1), gang("b").of(2).created(2), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(20))
    scenario.run_effects()
    assert evicted(scenario) == {"a", "b"}
    scenario.change(remove_pods=[pod.uid for pod in pods_of(scenario, "a")])
    question = held_back(scenario, Solve)
    answer = answered(scenario, question)
    scenario.change(remove_pods=[pod.uid for pod in pods_of(scenario, "b")])
    scenario.add(gang("q").of(2).with_priority(20).created(30))
    scenario.tell(answer)
    scenario.pass_time(5)
    assert scenario.bound("p") == 4, "its victims went for nothing"


def test_i9_a_search_without_result_keeps_the_nomination() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(5))
    scenario.run_effects()
    assert evicted(scenario) == {"v"}
    scenario.finish_deletions()
    question = held_back(scenario, Solve)
    scenario.add(gang("q").of(2).with_priority(20).created(30))
    scenario.tell(Solved(question.solve_id, (SolveResult("test/default/p", SolveOutcome.NOT_FOUND),)))
    scenario.pass_time(20)
    assert scenario.bound("p") == 4, "q has the room for which v was evicted"


def test_i9_a_non_strict_preemptor_keeps_its_nomination_while_using_it() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(5).non_strict(6000))
    scenario.pass_time(3)
    assert evicted(scenario) == {"v"}
    scenario.change(remove_pods=[next(pod.uid for pod in pods_of(scenario, "v") if pod.deleting)])
    scenario.run_effects()
    scenario.add(gang("q").of(2).with_priority(20).created(30))
    end(scenario)
    scenario.pass_time(3)
    assert scenario.bound("p") == 4


def test_a_victim_pod_that_moves_to_another_gang_does_not_bind_the_plan_for_ever() -> None:
    scenario = full(gang("v").of(2), gang("u").of(2).created(-9), nodes={"n": 2, "m": 2})
    scenario.evict_failures.update({pod.uid: 3 for pod in pods_of(scenario, "v")})
    scenario.add(gang("p").of(2).with_priority(10).created(5))
    scenario.run_effects()
    assert scenario.gang("v").eviction.pods
    moved = pods_of(scenario, "v")[0]
    scenario.change(
        gangs=[gang("other").of(1).gang_facts()], pods=[replace(moved, gang="test/default/other", priority=100)]
    )
    for _ in range(2):
        scenario.pass_time(120)
        end(scenario)
    assert scenario.bound("p") == 2


def test_i9_reservations_that_another_plan_counts_on_are_not_counted_on_twice() -> None:
    scenario = full(gang("v").of(2).created(1), gang("x").of(2).created(2), nodes={"n": 6})
    scenario.add(gang("w").of(3).created(3).non_strict())
    scenario.run_effects()
    assert reservations(scenario, "w") == {"w": 2}
    scenario.add(gang("p").of(4).with_priority(10).created(20))
    plan = held_back(scenario, Persist, is_plan)
    scenario.add(gang("q").of(4).with_priority(9).created(21))
    scenario.run_effects()
    scenario.under_way.append(plan)
    scenario.run_effects()
    end(scenario)
    scenario.pass_time(60)
    end(scenario)
    running = places(scenario, "vxpq")
    assert running["p"] == 4
    assert running.pop("p") + sum(running.values()) == 6, "somebody went for nothing"


def test_the_coordinator_is_not_woken_needlessly_during_plans() -> None:
    scenario = full(gang("v").of(3), nodes={"n": 6})
    scenario.add(gang("w").of(4).created(2).non_strict(40))
    scenario.run_effects()
    scenario.add(gang("p").of(4).with_priority(10).created(5), gang("s").of(6).created(6))
    in_vain = 0
    for _ in range(400):
        scenario.run_effects()
        wake = scenario.leader.next_wake()
        if wake is None:
            break
        in_vain = in_vain + 1 if wake <= scenario.now else 0
        assert in_vain < 5, f"it spins at {scenario.now}"
        scenario.now = max(scenario.now, wake)
        scenario.wake()


@pytest.mark.parametrize("terminating", [False, True])
def test_i9_evictions_whose_call_fails_after_the_preemptor_started_are_not_repeated(terminating: bool) -> None:
    """Unless one of the pods leaves: half a gang is of no use."""
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(5))
    held_back(scenario, Evict)
    scenario.change(nodes=[node("m", 4)])
    scenario.run_effects()
    assert scenario.bound("p") == 4
    if terminating:
        scenario.change(pods=[replace(pods_of(scenario, "v")[0], deleting=True)])
    scenario.tell(EvictCallFailed(tuple(pod.uid for pod in pods_of(scenario, "v")), "deadline exceeded"))
    scenario.pass_time(5)
    assert evicted(scenario) == ({"v"} if terminating else set())
    assert scenario.gang("v").permitted is not terminating
    assert sum(pod.deleting for pod in pods_of(scenario, "v")) == (4 if terminating else 0)


# -- over a change of leader


def test_i9_a_crash_while_victims_terminate_evicts_no_others() -> None:
    scenario = full(gang("old").of(4).created(1), gang("young").of(4).created(2), nodes={"n": 8})
    scenario.add(gang("p").of(4).with_priority(10).created(20))
    scenario.run_effects()
    assert evicted(scenario) == {"young"}
    scenario.crash()
    scenario.start()
    scenario.pass_time(2)
    assert evicted(scenario) == {"young"}


def test_i9_a_crash_while_spare_members_terminate_evicts_no_others() -> None:
    scenario = full(gang("a").of(6).needing(2).created(1), gang("b").of(6).needing(2).created(2), nodes={"n": 12})
    scenario.add(gang("p").of(4).with_priority(10).created(20))
    scenario.run_effects()
    going = {pod.uid for pod in scenario.cluster.pods.values() if pod.deleting}
    assert len(going) == 4
    scenario.crash()
    scenario.start()
    scenario.pass_time(2)
    assert {pod.uid for pod in scenario.cluster.pods.values() if pod.deleting} == going


def test_i9_a_failed_eviction_is_not_retried_for_a_preemptor_with_other_victims() -> None:
    scenario = full(gang("v").of(2).created(5), gang("w").of(2).created(1), nodes={"n": 2, "m": 2})
    scenario.add(gang("p").of(2).with_priority(10).created(20))
    first = held_back(scenario, Evict)
    victims = pods_of(scenario, "v")
    assert {pod.uid for pod in victims} == {name.uid for name in first.pods}
    scenario.change(nodes=[replace(scenario.cluster.nodes[victims[0].node], unschedulable=True)])
    scenario.pass_time(59)
    scenario.now += 1  # the pause is over
    scenario.wake()
    until(scenario, Evict, lambda effect: effect.gang.endswith("/w"))
    scenario.evict_failures.update({pod.uid: 1 for pod in victims})
    scenario.under_way.append(first)
    scenario.pass_time(10)
    assert evicted(scenario) == {"w"}
    end(scenario)
    assert places(scenario, "vwp") == {"v": 2, "w": 0, "p": 2}
