"""Started gangs that cannot be completed wait, or are evicted and start again, with a reason."""

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from builders.core.actions import end, until
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Phase
from muster.coordinator.core.events import RecordState, Rules
from muster.coordinator.core.machine import DEFAULTS
from muster.dialects.progress import Stage
from muster.gangs.facts import PodPhase, RepairPolicy


def half_started(built: CoreGang) -> Scenario:
    """Of 8 pods 4 are bound when the coordinator dies; another scheduler takes two of the seats that were left."""
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(built)
    seats = until(scenario, Bind).seats
    for seat in seats[:4]:
        scenario.bind(seat)
    scenario.crash()
    (left,) = {seat.node for seat in seats[4:]}
    scenario.intrude(plain_pod("x1"), left)
    scenario.intrude(plain_pod("x2"), left)
    scenario.start()
    scenario.run_effects()
    return scenario


def test_g22_evict_takes_the_whole_gang_back_to_the_queue() -> None:
    built = gang("a").of(8).with_repair_policy(RepairPolicy.EVICT)
    scenario = half_started(built)
    assert scenario.bound("a") == 6
    assert scenario.gang("a").phase is Phase.REPAIRING
    scenario.pass_time(301)
    assert scenario.bound("a") == 0
    assert any("it starts again" in note for note in scenario.notes())
    assert built.id not in scenario.etcd
    missing = [pod for pod in built.pods() if pod.uid not in scenario.cluster.pods]
    scenario.add_pods(*[replace(pod, uid=f"{pod.uid}/new") for pod in missing])
    scenario.run_effects()
    assert scenario.bound("a") == 0, "a whole gang again: six seats are not enough"
    scenario.change(nodes=[node("k", 2)])
    scenario.run_effects()
    assert scenario.bound("a") == 8


def test_g22_wait_keeps_running_pods_and_reports_it() -> None:
    scenario = half_started(gang("a").of(8).with_repair_policy(RepairPolicy.WAIT))
    scenario.pass_time(301)
    assert scenario.bound("a") == 6
    assert any("it keeps running" in note for note in scenario.notes())
    assert any("must be placed again" in note for note in scenario.notes())
    scenario.change(nodes=[node("k", 2)])
    scenario.run_effects()
    assert scenario.bound("a") == 8


def test_g22_a_gang_at_its_minimum_is_not_evicted() -> None:
    scenario = half_started(gang("a").of(8).needing(6).with_repair_policy(RepairPolicy.EVICT))
    scenario.pass_time(301)
    assert scenario.bound("a") == 6


def test_g22_a_crash_in_the_middle_of_the_eviction() -> None:
    scenario = half_started(gang("a").of(8).with_repair_policy(RepairPolicy.EVICT))
    scenario.graceful = True
    scenario.now += 301
    scenario.wake()
    scenario.do(0)
    assert scenario.etcd["test/default/a"].state is RecordState.UNPERMITTED
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    scenario.finish_deletions()
    scenario.run_effects()
    assert scenario.bound("a") == 0
    assert not scenario.gang("a").permitted


def test_i6_a_gang_whose_pod_can_never_be_bound_is_evicted_by_its_policy() -> None:
    """A member that is placed repeatedly makes no progress."""
    built = gang("a").of(4).with_repair_policy(RepairPolicy.EVICT)
    scenario = Scenario({"n": 8})
    scenario.bind_failures[built.pods()[0].uid] = 10**9
    scenario.add(built)
    scenario.pass_time(1000)
    assert any("it starts again" in note for note in scenario.notes())


def half_bound(*policies: RepairPolicy, rules: Rules = DEFAULTS) -> Scenario:
    """Gangs "a" and "b" of 4 are each half bound; each needs the two nodes on which pods of others landed."""
    scenario = Scenario(dict.fromkeys(("n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"), 1), rules=rules)
    for name, policy in zip(("a", "b"), policies, strict=True):
        scenario.add(gang(name).of(4).with_repair_policy(policy))
    while len(binds := [each for each in scenario.under_way if isinstance(each, Bind)]) < 2:
        scenario.do(next(index for index, each in enumerate(scenario.under_way) if not isinstance(each, Bind)))
    for bind in binds:
        for seat in bind.seats[:2]:
            scenario.bind(seat)
    scenario.crash()
    for number, seat in enumerate(seat for bind in binds for seat in bind.seats[2:]):
        scenario.intrude(plain_pod(f"x{number}"), seat.node)
    scenario.start()
    scenario.run_effects()
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 2)
    return scenario


def test_i6_of_two_half_bound_gangs_the_later_one_makes_way_by_default() -> None:
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.YIELD)
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (4, 0)
    assert scenario.gang("a").phase is Phase.SATISFIED


def test_i13_a_declared_priority_does_not_keep_a_gang_from_making_way() -> None:
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.YIELD)
    declared = changed(gang("b").of(4), declared_priority=2_147_483_647)
    scenario.change(gangs=[declared.gang_facts()])
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (4, 0)


def test_i13_a_gang_with_a_pod_that_is_critical_to_the_system_does_not_make_way() -> None:
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.YIELD)
    bound = next(pod for pod in scenario.cluster.pods.values() if pod.name.startswith("b") and pod.node)
    scenario.change(pods=[replace(bound, priority=2_000_000_000)])
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 4)


def test_i13_a_trusted_priority_decides_which_gang_makes_way() -> None:
    trusted = Rules(trust_declared_priority=True)
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.YIELD, rules=trusted)
    declared = changed(gang("b").of(4), declared_priority=9)
    scenario.change(gangs=[declared.gang_facts()])
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 4)


def with_a_budget(scenario: Scenario, name: str, allowed: int) -> None:
    """A disruption budget covers the pods of the gang."""
    scenario.set_budget("default/pdb", allowed)
    pods = [pod for pod in scenario.cluster.pods.values() if pod.gang.endswith(f"/{name}")]
    scenario.change(pods=[replace(pod, budgets=("default/pdb",)) for pod in pods])


def test_i6_the_other_gang_makes_way_for_one_that_a_budget_protects() -> None:
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.YIELD)
    with_a_budget(scenario, "b", 0)
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 4)


def test_i6_a_gang_that_a_budget_protects_is_evicted_when_that_allows_it() -> None:
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.EVICT)
    with_a_budget(scenario, "a", 0)
    with_a_budget(scenario, "b", 1)
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 2), "both of them may not be evicted"
    scenario.set_budget("default/pdb", 2)
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (4, 0)


def refused() -> Scenario:
    """Two half bound gangs; the later one is to be evicted, which the API server refuses."""
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.YIELD)
    for pod in scenario.cluster.pods.values():
        scenario.evict_failures[pod.uid] = 3
    scenario.pass_time(302)
    assert scenario.gang("b").eviction.whole
    scenario.pass_time(60)
    assert scenario.gang("b").phase is Phase.REPAIRING
    return scenario


def test_i7_a_gang_that_cannot_be_evicted_is_repaired_when_capacity_becomes_free() -> None:
    scenario = refused()
    scenario.delete(gang("a").of(4))
    scenario.pass_time(10)
    assert scenario.bound("b") == 4
    assert scenario.gang("b").phase is Phase.SATISFIED


def test_i6_a_gang_that_could_not_be_evicted_is_at_the_next_timeout() -> None:
    scenario = refused()
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (4, 0)


def test_i6_a_gang_that_could_not_be_evicted_is_repaired_by_the_next_leader() -> None:
    scenario = refused()
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.gang("b").phase is Phase.REPAIRING
    assert scenario.bound("b") == 2


def test_i6_a_gang_that_waits_keeps_its_pods_and_the_other_is_evicted() -> None:
    scenario = half_bound(RepairPolicy.YIELD, RepairPolicy.WAIT)
    scenario.pass_time(302)
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 4), "a is first in the queue, but b may not be evicted"


def test_i6_by_default_a_gang_that_never_ran_whole_returns_to_the_queue() -> None:
    scenario = half_started(gang("a").of(8))
    scenario.pass_time(301)
    assert scenario.bound("a") == 0
    assert any("it starts again as a whole" in note for note in scenario.notes())


def below_its_minimum(built: CoreGang) -> Scenario:
    """A gang of 4 that ran whole; then a node is lost with two of its pods, which their owner recreates."""
    scenario = Scenario({"n1": 2, "n2": 2})
    scenario.add(built)
    scenario.run()
    lost = [pod for pod in scenario.cluster.pods.values() if pod.node == "n2"]
    scenario.change(remove_nodes=["n2"], remove_pods=[pod.uid for pod in lost])
    scenario.add_pods(*[replace(pod, uid=f"{pod.uid}/new", node="", phase=PodPhase.PENDING) for pod in lost])
    scenario.run()
    assert scenario.gang("a").phase is Phase.REPAIRING, "it is below its minimum"
    assert scenario.progress("a").stage is Stage.PERMITTED
    return scenario


def test_i6_by_default_a_gang_that_ran_whole_keeps_running_if_none_is_ahead() -> None:
    scenario = below_its_minimum(gang("a").of(4))
    scenario.pass_time(301)
    assert scenario.bound("a") == 2
    assert any("2 of its pods found no node for 300 s; it keeps running" in note for note in scenario.notes())


def test_i6_evict_takes_a_gang_that_ran_whole_back_to_the_queue() -> None:
    scenario = below_its_minimum(gang("a").of(4).with_repair_policy(RepairPolicy.EVICT))
    scenario.pass_time(301)
    assert scenario.bound("a") == 0


def test_i1_a_permitted_gang_that_lost_all_its_nodes_starts_whole() -> None:
    scenario = Scenario({"n1": 2, "n2": 2})
    scenario.add(gang("a").of(4))
    until(scenario, Bind)
    scenario.crash()
    scenario.change(remove_nodes=["n1", "n2"], nodes=[node("m", 3)])
    scenario.start()
    scenario.pass_time(5)
    assert scenario.bound("a") == 0, "three of four is no start"
    scenario.change(nodes=[node("k", 1)])
    scenario.pass_time(5)
    assert scenario.bound("a") == 4


def test_i1_members_replaced_while_the_old_ones_terminate_start_whole() -> None:
    scenario = Scenario({"n": 8})
    scenario.graceful = True
    built = gang("a").of(8)
    scenario.add(built)
    scenario.run()
    scenario.add_pods(plain_pod("rival", priority=10))
    for pod in built.pods():
        scenario.change(pods=[replace(scenario.cluster.pods[pod.uid], deleting=True)])
        scenario.add_pods(replace(pod, uid=f"{pod.uid}/new"))
        scenario.run()
    for pod in built.pods():
        scenario.change(remove_pods=[pod.uid])
        scenario.run()
    assert any(pod.node for pod in scenario.cluster.pods.values() if pod.name == "rival")
    assert scenario.bound("a") == 0, "the rival has one of eight places"
    assert scenario.gang("a").phase is Phase.QUEUED
    scenario.change(nodes=[node("m", 1)])
    scenario.run()
    assert scenario.bound("a") == 8


def test_i1_after_failover_pods_bound_by_others_start_no_gang() -> None:
    scenario = Scenario({"n": 3}, start=False)
    built = gang("a").of(4)
    first = built.pods()[0]
    scenario.change(gangs=[built.gang_facts()], pods=built.pods())
    scenario.bind_elsewhere(first.uid, "n")
    scenario.start()
    scenario.pass_time(5)
    assert scenario.bound("a") == 1
    assert not scenario.gang("a").permitted
    scenario.change(nodes=[node("m", 1)])
    scenario.pass_time(5)
    assert scenario.bound("a") == 4


def lost_two(built: CoreGang) -> Scenario:
    """The gang has lost the node of two of its members, which were created again; nodes z and z2 have a pod each."""
    scenario = Scenario({"z": 1, "z2": 1})
    scenario.add(gang("v").of(1), gang("v2").of(1))
    scenario.run()
    scenario.change(nodes=[node("n1", 2), node("n2", 2)])
    scenario.add(built)
    scenario.run()
    lost = [pod for pod in scenario.cluster.pods.values() if pod.node == "n2"]
    assert len(lost) == 2
    again = [replace(pod, uid=f"{pod.uid}/new", node="", phase=PodPhase.PENDING) for pod in lost]
    scenario.change(remove_nodes=["n2"], remove_pods=[pod.uid for pod in lost], pods=again)
    return scenario


DIVIDED = gang("a").of(4).in_subgroups(1, 1, 1, 1, rack=False)


@pytest.mark.parametrize("built", [gang("a").of(4), DIVIDED], ids=["gang", "subgroups"])
@pytest.mark.parametrize("fixed", [False, True], ids=["two to gain", "one to gain"])
def test_i9_a_repair_evicts_nobody_unless_the_minimum_runs_then(built: CoreGang, *, fixed: bool) -> None:
    scenario = lost_two(built.with_priority(10))
    if fixed:
        pods = [pod for pod in scenario.cluster.pods.values() if pod.gang.endswith("/v2")]
        scenario.change(pods=[replace(pod, priority=10) for pod in pods])
    scenario.pass_time(5)
    end(scenario)
    scenario.pass_time(5)
    assert (scenario.bound("a"), scenario.bound("v"), scenario.bound("v2")) == ((2, 1, 1) if fixed else (4, 0, 0))
