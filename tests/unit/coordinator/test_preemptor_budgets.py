"""Budgets of preemptors by namespace: many preemptors, or new ones, whose plans are in vain (I13)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from builders.core.actions import evicted, full
from builders.core.entries import entries
from builders.core.objects import plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.events import Rules
from muster.coordinator.core.machine import DEFAULTS
from muster.coordinator.core.preemption.budgets import FORGET_SECONDS, MAX_IN_VAIN
from muster.gangs.facts import PodPhase

VICTIMS = 40


def crowd(rules: Rules = DEFAULTS) -> Scenario:
    """Gangs of four, each on a node of its own."""
    nodes = {f"n{number}": 4 for number in range(VICTIMS)}
    return full(*(gang(f"v{number}").of(4).created(number) for number in range(VICTIMS)), nodes=nodes, rules=rules)


def preemptor(number: int, namespace: str = "a") -> CoreGang:
    return gang(f"p{number}", namespace).of(4).with_priority(10).created(500 + number)


def steal(scenario: Scenario) -> int:
    """Another scheduler takes the capacity of all terminating pods as they end. Returns how many ended."""
    ended = [pod for pod in scenario.cluster.pods.values() if pod.deleting]
    scenario.change(remove_pods=[pod.uid for pod in ended])
    for pod in ended:
        scenario.intrude(plain_pod(f"thief-{pod.name}-{scenario.now}"), pod.node)
    return len(ended)


def stolen(scenario: Scenario, seconds: float, after: Callable[[], object] = lambda: None) -> int:
    """Lets time pass while another scheduler takes what becomes free; `after`: what happens each time. Returns the
    number of evicted pods.
    """
    count, until = 0, scenario.now + seconds
    while scenario.now < until:
        scenario.pass_time(max(0.5, seconds / 200))
        if number := steal(scenario):
            count += number
            after()
    return count


def test_i13_many_preemptors_of_a_namespace_evict_no_more_in_vain_than_one() -> None:
    scenario = crowd()
    scenario.add(*map(preemptor, range(VICTIMS)))
    assert stolen(scenario, 60) <= 4 * MAX_IN_VAIN
    assert stolen(scenario, 3600) <= 4 * (MAX_IN_VAIN + 1)
    assert any(
        "too many preemptors of namespace a did not get what was evicted for them" in each for each in scenario.notes()
    )


def test_i13_many_pods_that_preempt_alone_share_a_budget() -> None:
    scenario = full(*(gang(f"v{number}").of(1) for number in range(40)), nodes={"n": 40})
    scenario.add_pods(*(replace(plain_pod(f"p{number}", age=500), priority=10) for number in range(40)))
    assert stolen(scenario, 60) <= MAX_IN_VAIN


def test_i13_a_preemptor_that_is_created_again_under_another_name_has_no_new_budget() -> None:
    scenario, last = crowd(), [preemptor(0)]
    scenario.add(*last)

    def again() -> None:
        scenario.delete(last[-1])
        last.append(preemptor(len(last)))
        scenario.add(last[-1])

    assert stolen(scenario, 120, again) <= 4 * MAX_IN_VAIN
    assert stolen(scenario, 3600, again) <= 4 * (MAX_IN_VAIN + 1)


def test_i13_a_new_leader_trusts_preemptors_less() -> None:
    scenario, last = crowd(), [preemptor(0)]
    scenario.add(*last)
    assert stolen(scenario, 3 * 3600) > 4 * MAX_IN_VAIN
    scenario.crash()
    scenario.start()
    scenario.add(*map(preemptor, range(1, 20)))
    assert 0 < stolen(scenario, 60) <= 4 * MAX_IN_VAIN / 2


@pytest.mark.parametrize("how", ["deleted", "edited", "grouped", "replaced"])
def test_i13_plans_that_the_preemptor_ends_while_its_victims_terminate_are_in_vain(how: str) -> None:
    scenario = crowd()
    for number in range(60):
        built = preemptor(number if how == "deleted" else 0)
        if number == 0 or how == "deleted":
            scenario.add(built)
        scenario.pass_time(5)
        first, *_ = (pod for pod in scenario.cluster.pods.values() if pod.namespace == "a")
        if how == "deleted":
            scenario.delete(built)
        elif how == "edited":
            scenario.change(gangs=[built.needing(5).gang_facts()])
            scenario.change(gangs=[built.gang_facts()])
        elif how == "grouped":
            grouped = built.with_group("a/p0", "a/q")
            scenario.change(gangs=[grouped.gang_facts() if number % 2 else built.gang_facts()])
        else:
            scenario.change(remove_pods=[first.uid])
            scenario.change(pods=[replace(first, uid=f"{first.uid}/")])
        scenario.run_effects()
    assert 1 <= len(evicted(scenario)) <= MAX_IN_VAIN


def test_i13_another_namespace_has_a_budget_of_its_own() -> None:
    scenario = crowd()
    scenario.add(*map(preemptor, range(20)))
    stolen(scenario, 60)
    scenario.add(preemptor(100, "b"))
    scenario.pass_time(1)
    scenario.finish_deletions()
    scenario.run_effects()
    assert scenario.bound("p100", "b") == 4


def test_i13_preemptors_that_start_make_room_for_more_plans() -> None:
    scenario = crowd()
    scenario.add(*map(preemptor, range(VICTIMS)))
    rounds, under_way = 0, list[int]()
    while sum(scenario.bound(f"p{number}", "a") for number in range(VICTIMS)) < 4 * VICTIMS:
        scenario.pass_time(30)
        under_way.append(len(evicted(scenario)))
        scenario.finish_deletions()
        scenario.run_effects()
        rounds += 1
        assert rounds < 9
    assert under_way[0] <= MAX_IN_VAIN
    assert max(under_way) > 2 * MAX_IN_VAIN


def test_plans_of_a_namespace_begin_at_once_while_none_in_vain_is_remembered() -> None:
    scenario = crowd()
    scenario.pass_time(MAX_IN_VAIN * FORGET_SECONDS)
    scenario.add(*map(preemptor, range(VICTIMS)))
    scenario.pass_time(30)
    assert len(evicted(scenario)) == VICTIMS
    steal(scenario)
    scenario.add(*map(preemptor, range(VICTIMS, 2 * VICTIMS)))
    assert stolen(scenario, 60) == 0


def test_i13_the_budget_is_used_again_when_plans_in_vain_are_forgotten() -> None:
    scenario = crowd()
    scenario.add(*map(preemptor, range(20)))
    assert stolen(scenario, 60)
    assert not stolen(scenario, FORGET_SECONDS / 3)
    assert stolen(scenario, FORGET_SECONDS) == 4


def test_i13_a_start_that_loses_its_places_at_once_was_in_vain() -> None:
    """The kubelet rejects pods, as another scheduler has bound others to the same node, and they are replaced."""
    scenario = full(
        *(gang(f"v{number}").of(1) for number in range(40)), nodes={f"n{number}": 1 for number in range(40)}
    )
    scenario.add_pods(replace(plain_pod("p0", age=500), priority=10))
    count = 0
    for number in range(1, 200):
        scenario.pass_time(0.5)
        count += sum(pod.deleting for pod in scenario.cluster.pods.values())
        scenario.finish_deletions()
        scenario.run_effects()
        running = [pod for pod in scenario.cluster.pods.values() if pod.name.startswith("p") and pod.seated]
        if running:
            scenario.change(pods=[replace(pod, phase=PodPhase.FAILED) for pod in running])
            scenario.intrude(plain_pod(f"thief-{number}"), running[0].node)
            scenario.add_pods(replace(plain_pod(f"p{number}", age=500), priority=10))
    assert 1 <= count <= MAX_IN_VAIN


def test_i13_pods_that_succeed_at_once_are_not_in_vain() -> None:
    scenario = full(
        *(gang(f"v{number}").of(1) for number in range(40)), nodes={f"n{number}": 1 for number in range(40)}
    )
    for number in range(20):
        name = f"p{number}"
        scenario.add_pods(replace(plain_pod(name, age=500), priority=10), plain_pod(f"w{number}", age=600))
        scenario.pass_time(1)
        scenario.finish_deletions()
        scenario.run_effects()
        pod = scenario.cluster.pods[f"default/{name}"]
        assert pod.seated
        scenario.change(pods=[replace(pod, phase=PodPhase.SUCCEEDED)])
        scenario.run_effects()


@pytest.mark.parametrize("grace", [False, True])
def test_pods_that_are_deleted_one_by_one_after_their_start_are_not_in_vain(grace: bool) -> None:
    scenario, built = crowd(), preemptor(0)
    scenario.add(built)
    scenario.pass_time(1)
    scenario.finish_deletions()
    scenario.run_effects()
    assert scenario.bound(built.name, "a") == 4
    for pod in built.pods():
        if grace:
            scenario.change(pods=[replace(scenario.cluster.pods[pod.uid], deleting=True)])
            scenario.run_effects()
        scenario.change(remove_pods=[pod.uid])
        scenario.run_effects()
    assert entries(scenario.leader)["_plans.budgets._in_vain"] == 0


def test_i11_budgets_end_when_all_is_forgotten() -> None:
    scenario = crowd()
    for number in range(8):
        built = preemptor(0, f"ns{number}")
        scenario.add(built)
        stolen(scenario, 2)
        scenario.delete(built)
        scenario.run_effects()
    kept = entries(scenario.leader)
    assert kept["_plans.budgets._in_vain"] == 8
    scenario.pass_time(4 * FORGET_SECONDS)
    after = entries(scenario.leader)
    assert not [path for path, count in after.items() if "budgets" in path and count and not path.endswith("_cache")]
