"""Right to preempt: the lowest priority that admission gave to a pod of the gang (I13).

A gang is protected by the highest priority of its pods. What group-level objects declare only orders the queue.
"""

from dataclasses import replace as built_with

from msgspec.structs import replace

from builders.core.actions import end, evicted, full, until_planned
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.events import Rules
from muster.gangs.facts import PodFacts, PodPhase

SYSTEM_CLUSTER_CRITICAL = 2_000_000_000
HIGHEST = 2_147_483_647


def mixed(built: CoreGang, first: int, others: int = 0) -> list[PodFacts]:
    """The gang's pods: the first has one priority, the others another."""
    return [replace(pod, priority=first if number == 0 else others) for number, pod in enumerate(built.pods())]


def add(scenario: Scenario, built: CoreGang, pods: list[PodFacts]) -> None:
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    scenario.run_effects()
    scenario.pass_time(100)


def test_i13_one_pod_of_high_priority_does_not_let_seven_others_preempt() -> None:
    scenario = full(gang("v").of(8).with_priority(5), nodes={"n": 8})
    preemptor = gang("p").of(8)
    add(scenario, preemptor, mixed(preemptor, first=1000))
    assert not evicted(scenario)


def test_i13_gated_pods_of_low_priority_count_for_the_right() -> None:
    scenario = full(gang("v").of(1).with_priority(5), nodes={"n": 1})
    preemptor = gang("p").of(2).needing(1)
    high, low = mixed(preemptor, first=1000)
    add(scenario, preemptor, [high, replace(low, gated=True)])
    assert not evicted(scenario)


def test_i13_declared_priority_is_no_right_to_preempt() -> None:
    scenario = full(gang("v").of(4).with_priority(5), nodes={"n": 4})
    preemptor = built_with(gang("p").of(4), declared_priority=HIGHEST)
    add(scenario, preemptor, preemptor.pods())
    assert not evicted(scenario)
    assert scenario.gang("p").priority == HIGHEST, "it orders the queue"


def test_i13_declared_priority_takes_no_reservations() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("w").of(5).non_strict().with_priority(5))
    scenario.run()
    preemptor = built_with(gang("p").of(3), declared_priority=HIGHEST)
    add(scenario, preemptor, preemptor.pods())
    assert len(scenario.gang("w").seats) == 4


def test_i13_declared_priority_takes_no_reservations_by_a_deadlock() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("w").of(9).non_strict().with_priority(5))
    scenario.run()
    hostile = built_with(gang("p").of(4).non_strict(), declared_priority=HIGHEST)
    add(scenario, hostile, hostile.pods())
    scenario.change(nodes=[node("m", 1)])  # the first in the queue gets it, and blocks w
    scenario.pass_time(100)
    assert [len(scenario.gang(name).seats) for name in "wp"] == [4, 1]


def test_i13_declared_priority_keeps_no_reservations_either() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("w").of(5).non_strict().with_priority(5))
    scenario.run()
    hostile = built_with(gang("p").of(5).non_strict(), declared_priority=HIGHEST)
    scenario.change(gangs=[hostile.gang_facts()], pods=hostile.pods(), nodes=[node("m", 1)])
    scenario.run_effects()
    scenario.pass_time(100)
    assert scenario.bound("w") == 5


def test_i13_a_low_declared_priority_does_not_take_protection_away() -> None:
    victim = built_with(gang("v").of(4).with_priority(10), declared_priority=0)
    scenario = full(victim, nodes={"n": 4})
    preemptor = gang("p").of(4).with_priority(10)
    add(scenario, preemptor, preemptor.pods())
    assert not evicted(scenario)


def test_i13_a_gang_is_protected_by_its_most_important_pod() -> None:
    victim = gang("v").of(4)
    scenario = Scenario({"n": 4})
    scenario.graceful = True
    add(scenario, victim, mixed(victim, first=10))
    assert scenario.bound("v") == 4
    preemptor = gang("p").of(4).with_priority(10)
    add(scenario, preemptor, preemptor.pods())
    assert not evicted(scenario)


def test_i13_an_ended_pod_of_high_priority_protects_nobody() -> None:
    victim = gang("v").of(4).needing(3)
    scenario = Scenario({"n": 4})
    scenario.graceful = True
    add(scenario, victim, mixed(victim, first=100))
    done = next(pod for pod in scenario.cluster.pods.values() if pod.priority == 100)
    preemptor = gang("p").of(4).with_priority(10)
    add(scenario, preemptor, preemptor.pods())
    assert not evicted(scenario)
    scenario.change(pods=[replace(done, phase=PodPhase.SUCCEEDED)])
    scenario.pass_time(10)
    assert evicted(scenario) == {"v"}


def test_i13_system_critical_pods_are_never_evicted() -> None:
    for priority in (SYSTEM_CLUSTER_CRITICAL, SYSTEM_CLUSTER_CRITICAL + 1000):
        scenario = full(gang("v").of(4).with_priority(priority), nodes={"n": 4})
        preemptor = gang("p").of(4).with_priority(HIGHEST)
        add(scenario, preemptor, preemptor.pods())
        assert not evicted(scenario)


def test_i13_trusted_declarations_preempt() -> None:
    scenario = full(gang("v").of(4).with_priority(5), nodes={"n": 4}, rules=Rules(trust_declared_priority=True))
    preemptor = built_with(gang("p").of(4), declared_priority=10)
    add(scenario, preemptor, preemptor.pods())
    assert evicted(scenario) == {"v"}


def test_i13_trusted_declarations_evict_no_system_critical_pods() -> None:
    critical = gang("v").of(4).with_priority(SYSTEM_CLUSTER_CRITICAL)
    scenario = full(critical, nodes={"n": 4}, rules=Rules(trust_declared_priority=True))
    preemptor = built_with(gang("p").of(4), declared_priority=HIGHEST)
    add(scenario, preemptor, preemptor.pods())
    assert not evicted(scenario)


def test_i7_preemption_is_tried_when_the_pod_of_lowest_priority_is_gone() -> None:
    scenario = full(gang("v").of(4).with_priority(5), nodes={"n": 4})
    preemptor = gang("p").of(4).needing(3)
    pods = [replace(pod, priority=0 if number == 3 else 10) for number, pod in enumerate(preemptor.pods())]
    add(scenario, preemptor, pods)
    assert not evicted(scenario)
    scenario.change(remove_pods=[pods[3].uid])
    scenario.pass_time(5)
    assert evicted(scenario) == {"v"}


def test_i7_equal_groups_of_which_a_later_one_may_preempt() -> None:
    scenario = full(gang("v").of(1).with_priority(5), nodes={"n": 1})
    scenario.change(nodes=[node("n", 1)])
    first = built_with(gang("a").of(1), declared_priority=100)
    scenario.add(first)
    scenario.pass_time(5)
    scenario.add_pods(plain_pod("b", priority=10))
    scenario.pass_time(5)
    assert evicted(scenario) == {"v"}


def test_i13_a_pod_of_low_priority_that_joins_stops_evictions() -> None:
    scenario = full(gang("v").of(4).with_priority(5), nodes={"n": 4})
    preemptor = gang("p").of(5).needing(4).with_priority(10)
    *pods, late = preemptor.pods()
    scenario.change(gangs=[preemptor.gang_facts()], pods=pods)
    until_planned(scenario)
    scenario.change(pods=[replace(late, priority=0)])
    scenario.run_effects()
    end(scenario)
    assert scenario.bound("v") == 4
    assert not scenario.leader.cache.nominations


def test_i13_a_pod_of_low_priority_that_joins_stops_evictions_that_are_retried() -> None:
    scenario = full(gang("v").of(4).with_priority(5), nodes={"n": 4})
    for pod in scenario.cluster.pods.values():
        scenario.evict_failures[pod.uid] = 2
    preemptor = gang("p").of(5).needing(4).with_priority(10)
    *pods, late = preemptor.pods()
    scenario.change(gangs=[preemptor.gang_facts()], pods=pods)
    scenario.run_effects()
    assert scenario.leader.cache.nominations
    scenario.change(pods=[replace(late, priority=0)])
    scenario.pass_time(20)
    assert scenario.bound("v") == 4
    assert not evicted(scenario)


def test_i9_gangs_of_the_same_priority_are_not_even_offered_as_victims() -> None:
    scenario = full(gang("v").of(4).with_priority(10), gang("w").of(2), nodes={"n": 6})
    scenario.add(gang("p").of(4).with_priority(10))
    scenario.pass_time(5)
    offers = [{each.id for each in solve.potential_victims} for solve in scenario.solves if solve.potential_victims]
    assert offers
    assert set().union(*offers) == {"test/default/w"}
    assert not evicted(scenario)
