"""Gang preemption: whole gangs, spare members first, no victim in vain, capacity nominated for the preemptor (I9)."""

import pytest
from msgspec.structs import replace

from builders.core.actions import brought_back, crowded, end, evicted, full, places, until, until_planned
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Evict, Phase, Solve
from muster.coordinator.core.events import RecordState
from muster.gangs.facts import DisruptionBudget


def begin_eviction(scenario: Scenario) -> None:
    """Everything but the end of the pods."""
    scenario.run_effects()


def test_g43_one_gang_is_evicted_rather_than_a_member_of_four() -> None:
    four = [gang(name).of(4).created(index) for index, name in enumerate("abcd")]
    scenario = full(*four, gang("v").of(4).created(9), nodes={"n": 20})
    scenario.add(gang("p").of(4).with_priority(10).created(20))
    begin_eviction(scenario)
    assert len(evicted(scenario)) == 1
    end(scenario)
    assert scenario.bound("p") == 4
    assert sorted(scenario.bound(name) for name in "abcdv") == [0, 4, 4, 4, 4]


def test_g43_the_youngest_of_the_lowest_priority_is_evicted() -> None:
    scenario = full(
        gang("old").of(2).created(1),
        gang("young").of(2).created(5),
        gang("middle").of(2).with_priority(5).created(9),
        nodes={"n": 6},
    )
    scenario.add(gang("p").of(2).with_priority(10).created(20))
    begin_eviction(scenario)
    assert evicted(scenario) == {"young"}


def test_g44_nothing_is_evicted_for_a_gang_that_can_never_fit() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(5).with_priority(10))
    begin_eviction(scenario)
    scenario.pass_time(100)
    assert not evicted(scenario)
    assert any(
        "preemption would not help: no set of lower-priority pods frees enough" in note for note in scenario.notes()
    )


def test_g45_spare_members_go_first_and_the_gang_stays() -> None:
    scenario = full(gang("a").of(6).needing(4).created(1), gang("b").of(2).created(9), nodes={"n": 8})
    scenario.add(gang("p").of(2).with_priority(10).created(20))
    begin_eviction(scenario)
    assert evicted(scenario) == {"a"}
    end(scenario)
    assert scenario.bound("p") == 2
    assert scenario.bound("a") == 4
    assert scenario.gang("a").phase is Phase.SATISFIED


def test_a_gang_in_binding_becomes_a_victim_once_seen_bound() -> None:
    scenario = crowded({"n": 4})
    scenario.lagging = True
    scenario.add(gang("v").of(4))
    scenario.deliver()
    bind = until(scenario, Bind)
    scenario.add(gang("p").of(4).with_priority(10))
    scenario.deliver()
    for effect in [effect for effect in scenario.under_way if effect is not bind]:
        scenario.do(scenario.under_way.index(effect))  # placement finds no room, and nobody to give way
    scenario.run_effects()
    assert not evicted(scenario)
    scenario.deliver()  # the pods are seen on their nodes
    scenario.run_effects()
    assert evicted(scenario) == {"v"}


def test_a_gang_evicted_only_as_a_whole_has_no_spare_members() -> None:
    whole = gang("a").of(6).needing(4).evicted_as_a_whole().created(1)
    scenario = full(whole, gang("b").of(2).created(9), nodes={"n": 8})
    scenario.add(gang("p").of(2).with_priority(10).created(20))
    begin_eviction(scenario)
    assert evicted(scenario) == {"b"}
    end(scenario)
    assert (scenario.bound("p"), scenario.bound("a")) == (2, 6)


def test_g46_the_preemptor_is_deleted_before_anything_is_evicted() -> None:
    victim = gang("a").of(4)
    scenario = full(victim, nodes={"n": 4})
    preemptor = gang("p").of(4).with_priority(10)
    scenario.add(preemptor)
    assert until_planned(scenario).puts[0].evicting
    scenario.delete(preemptor)
    scenario.run_effects()
    scenario.pass_time(10)
    assert not evicted(scenario)
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert scenario.etcd[victim.id].state is RecordState.SATISFIED
    assert not scenario.etcd[victim.id].evicting
    assert set(scenario.etcd) == {victim.id}


def test_i9_nothing_is_evicted_before_that_is_durable() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    until(scenario, Evict)
    assert scenario.etcd["test/default/a"].evicting
    assert scenario.etcd["test/default/p"].nominated


def test_freed_capacity_is_nominated_for_the_preemptor() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    begin_eviction(scenario)
    scenario.add_pods(plain_pod("small"))
    scenario.finish_deletions()
    scenario.run_effects()
    assert scenario.bound("p") == 4
    assert not scenario.cluster.pods["default/small"].node


def test_others_are_scheduled_while_victims_go() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    begin_eviction(scenario)
    scenario.change(nodes=[node("m", 1)])
    scenario.add_pods(plain_pod("small"))
    scenario.run_effects()
    assert scenario.cluster.pods["default/small"].node == "m"
    assert scenario.bound("p") == 0


def test_an_evicted_gang_starts_again_as_a_whole() -> None:
    victim = gang("a").of(4)
    scenario = full(victim, nodes={"n": 4})
    preemptor = gang("p").of(4).with_priority(10)
    scenario.add(preemptor)
    begin_eviction(scenario)
    end(scenario)
    scenario.add_pods(*brought_back(victim))
    scenario.run_effects()
    scenario.change(nodes=[node("m", 3)])
    scenario.run_effects()
    assert scenario.bound("a") == 0, "it is a gang again, and does not start in part"
    scenario.delete(preemptor)
    scenario.run_effects()
    assert scenario.bound("a") == 4


@pytest.mark.parametrize("crash_after", range(8))
def test_a_crash_in_the_middle_of_a_preemption(crash_after: int) -> None:
    victim = gang("a").of(4)
    scenario = full(victim, nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    for _ in range(crash_after):
        if scenario.under_way:
            scenario.do(0)
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    end(scenario)
    scenario.pass_time(5)
    assert scenario.bound("p") == 4
    assert scenario.bound("a") == 0
    assert not scenario.leader.cache.nominations


def test_a_crash_after_the_preemptor_was_deleted_evicts_nothing() -> None:
    victim = gang("a").of(4)
    scenario = full(victim, nodes={"n": 4})
    preemptor = gang("p").of(4).with_priority(10)
    scenario.add(preemptor)
    scenario.persist(until_planned(scenario))
    scenario.crash()
    scenario.delete(preemptor)
    scenario.start()
    scenario.run_effects()
    assert not evicted(scenario)
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert not scenario.etcd[victim.id].evicting


def test_a_pod_that_never_preempts_waits() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10).never_preempting())
    begin_eviction(scenario)
    scenario.pass_time(20)
    assert not evicted(scenario)


def test_equal_priority_is_no_reason() -> None:
    scenario = full(gang("a").of(4).with_priority(10), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    begin_eviction(scenario)
    assert not evicted(scenario)


def allow(scenario: Scenario, **budgets: int) -> None:
    scenario.change(budgets=[DisruptionBudget(f"default/{name}", allowed) for name, allowed in budgets.items()])


def test_pods_protected_by_a_disruption_budget_are_kept() -> None:
    scenario = Scenario({"n": 4})
    scenario.graceful = True
    allow(scenario, b=1)
    scenario.add(gang("a").of(2).with_budget("default/b"), gang("c").of(2).created(-5))
    scenario.run_effects()
    scenario.add(gang("p").of(2).with_priority(10))
    begin_eviction(scenario)
    assert evicted(scenario) == {"c"}


def test_an_eviction_that_fails_is_tried_again() -> None:
    scenario = full(gang("a").of(2), nodes={"n": 2})
    for pod in scenario.cluster.pods.values():
        scenario.evict_failures[pod.uid] = 2
    scenario.add(gang("p").of(2).with_priority(10))
    begin_eviction(scenario)
    assert not evicted(scenario)
    scenario.pass_time(10)
    end(scenario)
    assert scenario.bound("p") == 2
    assert any("could not be evicted" in note for note in scenario.notes())


def test_a_waiting_gang_of_lower_priority_releases_its_reservations() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("w").of(5).non_strict())
    scenario.run()
    assert len(scenario.gang("w").seats) == 4
    scenario.add(gang("p").of(3).with_priority(10))
    scenario.pass_time(3)
    assert scenario.bound("p") == 3
    assert any("reservations: gang" in note for note in scenario.notes())


def test_the_preemptor_that_fits_elsewhere_meanwhile_takes_that() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    for pod in scenario.cluster.pods.values():
        scenario.evict_failures[pod.uid] = 100
    scenario.add(gang("p").of(4).with_priority(10))
    begin_eviction(scenario)
    scenario.change(nodes=[node("m", 4)])
    scenario.run_effects()
    assert scenario.bound("p") == 4
    assert not scenario.leader.cache.nominations


def test_a_group_preempts_as_a_whole() -> None:
    scenario = full(gang("a").of(2).created(1), gang("b").of(2).created(2), nodes={"n": 4})
    scenario.add(
        gang("p").of(2).with_priority(10).with_group("default/p", "default/q"),
        gang("q").of(2).with_priority(10).with_group("default/p", "default/q"),
    )
    begin_eviction(scenario)
    end(scenario)
    assert places(scenario, "abpq") == {"a": 0, "b": 0, "p": 2, "q": 2}


def test_no_answer_about_victims_is_taken_that_the_ledger_does_not_bear_out() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    honest = scenario.solver

    def lying(solve: Solve):  # type: ignore[no-untyped-def]
        results = honest(solve)
        if solve.potential_victims:
            return tuple(
                replace(result, victims=tuple(replace(each, pods=each.pods[:0]) for each in result.victims))
                for result in results
            )
        return results

    scenario.solver = lying
    scenario.add(gang("p").of(4).with_priority(10))
    begin_eviction(scenario)
    assert not evicted(scenario)
    assert not scenario.leader.cache.nominations
