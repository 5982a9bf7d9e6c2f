"""A started gang with fewer members than its minimum is not called satisfied; one without any has ended."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from builders.core.actions import all_end, brought_back, held_back, until
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Phase
from muster.coordinator.core.report.explain import in_order
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.slices import run_to_end
from muster.dialects.progress import Stage
from muster.gangs.facts import MatchPolicy, PodPhase

A = gang("a").of(2)


def run() -> Scenario:
    scenario = Scenario({"n": 4})
    scenario.add(A)
    scenario.run()
    assert scenario.gang("a").phase is Phase.SATISFIED
    return scenario


def delete_all(scenario: Scenario) -> None:
    scenario.change(remove_pods=[pod.uid for pod in A.pods()])


def fail_all(scenario: Scenario) -> None:
    scenario.change(pods=[replace(pod, phase=PodPhase.FAILED) for pod in scenario.cluster.pods.values()])


def delete_gracefully(scenario: Scenario) -> None:
    scenario.change(pods=[replace(pod, deleting=True) for pod in scenario.cluster.pods.values()])


def delete_and_gate(scenario: Scenario) -> None:
    delete_all(scenario)
    scenario.change(pods=[replace(pod, gated=True) for pod in brought_back(A)])


@pytest.mark.parametrize("happens", [delete_all, all_end, fail_all, delete_gracefully, delete_and_gate])
def test_i6_a_gang_without_members_has_ended(happens: Callable[[Scenario], None]) -> None:
    scenario = run()
    happens(scenario)
    scenario.run()
    assert (scenario.gang("a").phase, scenario.progress("a").stage) == (Phase.ENDED, Stage.ENDED)
    scenario.crash()
    scenario.start()
    scenario.run()
    assert (scenario.gang("a").phase, scenario.progress("a").stage) == (Phase.ENDED, Stage.ENDED)


def test_a_gang_that_ended_starts_whole_when_its_pods_come_back() -> None:
    scenario = run()
    delete_all(scenario)
    first, second = brought_back(A)
    scenario.change(pods=[first])
    scenario.change(pods=[second])
    scenario.run()
    assert (scenario.gang("a").phase, scenario.bound("a")) == (Phase.SATISFIED, 2)
    phases = scenario.phases["test/default/a"]
    assert phases[phases.index(Phase.ENDED) + 1] is Phase.GATHERING


def test_i6_a_gang_of_which_all_but_one_ended_is_not_satisfied() -> None:
    scenario = run()
    first, _ = scenario.cluster.pods.values()
    scenario.change(pods=[replace(first, phase=PodPhase.FAILED)])
    scenario.run()
    assert scenario.gang("a").phase is Phase.REPAIRING


def test_i6_a_gang_of_which_one_succeeded_and_the_other_waits_is_not_satisfied() -> None:
    scenario = run()
    first, second = scenario.cluster.pods.values()
    scenario.change(pods=[replace(first, phase=PodPhase.SUCCEEDED)], remove_pods=[second.uid], remove_nodes=["n"])
    scenario.change(pods=[replace(second, uid="new", node="", phase=PodPhase.PENDING)])
    scenario.run()
    assert scenario.gang("a").phase is Phase.REPAIRING


def resuming(*, match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED, minimum: int = 4) -> tuple[Scenario, CoreGang]:
    """Of a gang of 4 one pod has succeeded, the others are gone, and a rival left capacity for one of them."""
    scenario = Scenario({"n": 4})
    built = gang("a").of(4).needing(minimum).with_match_policy(match_policy)
    scenario.add(built)
    scenario.run()
    first, *others = (scenario.cluster.pods[pod.uid] for pod in built.pods())
    scenario.change(pods=[replace(first, phase=PodPhase.SUCCEEDED)], remove_pods=[pod.uid for pod in others])
    scenario.add_pods(*(plain_pod(f"rival-{number}") for number in range(3)))
    scenario.run()
    return scenario, built


@pytest.mark.parametrize("policy", [MatchPolicy.ONCE_SATISFIED, MatchPolicy.WAITING_AND_RUNNING])
def test_i1_the_rest_of_a_gang_starts_together_after_one_has_succeeded(policy: MatchPolicy) -> None:
    scenario, built = resuming(match_policy=policy)
    _, *again = brought_back(built)
    for pod in again[:2]:
        scenario.add_pods(pod)
        scenario.run()
    assert scenario.bound("a") == 0
    assert "2 of 3 members exist, besides 1 that succeeded" in reason(scenario.gang("a"))
    scenario.add_pods(again[2])
    scenario.run()
    assert scenario.bound("a") == 0, "there is capacity for one"
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(nodes=[node("m", 2)])
    scenario.run()
    assert (scenario.bound("a"), scenario.gang("a").phase) == (3, Phase.SATISFIED)


def test_i1_the_rest_starts_together_again_if_its_node_is_lost_before_a_bind() -> None:
    scenario, built = resuming()
    scenario.add_pods(*brought_back(built)[1:])
    scenario.change(nodes=[node("m", 2)])
    held_back(scenario, Bind)
    scenario.change(remove_nodes=["m"])
    scenario.pass_time(60)
    assert scenario.bound("a") == 0


def test_i7_the_rest_needs_no_more_than_the_minimum_besides_those_that_succeeded() -> None:
    scenario, built = resuming(minimum=2)
    scenario.add_pods(brought_back(built)[1])
    scenario.run()
    assert scenario.bound("a") == 1


def test_i1_a_permit_of_which_no_pod_was_bound_ends_with_its_pods() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(A)
    until(scenario, Bind)
    delete_all(scenario)
    scenario.run()
    assert scenario.gang("a").phase is Phase.GATHERING
    assert not any("pods bound" in note for note in scenario.notes())
    assert not scenario.etcd


def test_ended_gangs_are_listed_last() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(A, gang("b").of(1), gang("c").of(8))
    scenario.run()
    delete_all(scenario)
    scenario.run()
    assert run_to_end(in_order(scenario.leader.cache)) == [f"test/default/{name}" for name in "cba"]
