"""Capacity reserved for the starving head of the queue remains its own (I8)."""

from collections.abc import Callable

import pytest

from builders.core.actions import answered, asks_for_room, crowded, ends, evicted, held_back
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Delta
from muster.gangs.facts import Batch, PodFacts


def starved(scenario: Scenario, *gangs: CoreGang) -> None:
    """Lets pass the time after which capacity is reserved for a starving gang."""
    scenario.add(*gangs)
    scenario.pass_time(31)
    assert scenario.leader.cache.nominations


def test_i9_capacity_reserved_for_one_gang_is_not_preempted_by_another() -> None:
    scenario = crowded({"n": 4})
    scenario.add(gang("x").of(4).running_for(1000))
    scenario.run_effects()
    starved(scenario, gang("head").of(4).with_priority(20).created(5).never_preempting())
    scenario.add(gang("p").of(4).with_priority(10).created(6))
    scenario.pass_time(5)
    assert not evicted(scenario), "x would go for p, which may not have the room"
    assert scenario.leader.cache.nominations


def goes_with(scenario: Scenario, head: CoreGang, question: Solve) -> None:
    """The head of the queue is deleted in the step in which the answer about it arrives."""
    answer = answered(scenario, question)
    uids = tuple(pod.uid for pod in head.pods())
    for uid in uids:
        scenario.cluster.drop_pod(uid)
    scenario.cluster.gangs.pop(head.id)
    scenario.tell(Delta(Batch(removed_pods=uids, removed_gangs=(head.id,))), answer)
    scenario.run_effects()
    assert head.id not in {kept.owner for kept in scenario.leader.cache.nominations.values()}


def test_a_head_deleted_in_the_step_of_an_answer() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(2))
    scenario.run()
    head = gang("head").of(4).created(5)
    starved(scenario, head)
    scenario.change(nodes=[node("m", 1)])
    scenario.run_effects()
    scenario.add(gang("other").of(1).created(50))
    goes_with(scenario, head, held_back(scenario, Solve))
    assert scenario.bound("other") == 1


def test_a_head_deleted_in_the_step_of_an_answer_about_victims() -> None:
    scenario = crowded({"n": 4})
    scenario.add(gang("runs").of(2))
    scenario.run_effects()
    head = gang("head").of(4).created(5)
    starved(scenario, head)
    scenario.add(gang("p").of(4).with_priority(9).created(6))
    goes_with(scenario, head, held_back(scenario, Solve, asks_for_room))
    assert evicted(scenario) == {"runs"}


def test_i8_a_later_pod_of_an_older_gang_placed_elsewhere_keeps_the_reservation() -> None:
    scenario = Scenario({"n": 4, "m": 2})
    old = gang("old").of(2).created(0)
    scenario.add(old)
    scenario.run_effects()
    assert {pod.node for pod in scenario.cluster.pods.values()} == {"m"}
    scenario.add(gang("runs").of(2).created(1))
    scenario.run_effects()
    starved(scenario, gang("head").of(4).created(5))
    scenario.change(nodes=[node("k", 1)])
    late = old.and_of(1).pods()[2]
    scenario.add_pods(late)
    scenario.run_effects()
    assert scenario.cluster.pods[late.uid].node == "k"
    assert scenario.leader.cache.nominations


def test_i8_a_non_strict_gang_reserves_no_backfill_capacity() -> None:
    """A gang whose pods run for a short time, but whose start is unknown."""
    scenario = Scenario({"n": 4, "m": 4})
    runs = gang("runs").of(4).running_for(100)
    scenario.add(runs)
    scenario.run()
    starved(scenario, gang("head").of(8).created(5))
    scenario.add(gang("w").of(5).running_for(10).created(40).non_strict(waiting_time_seconds=6000))
    scenario.pass_time(70)
    assert not scenario.gang("w").seats
    ends(scenario, *(pod.uid for pod in runs.pods()))
    scenario.pass_time(100)
    assert scenario.bound("head") == 8


def test_i8_overrunning_backfill_does_not_delay_the_start_repeatedly() -> None:
    """Each short gang says 10 s and runs on: the head waits for those that are in, but new ones come in no more."""
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(2).running_for(100))
    scenario.run()
    starved(scenario, gang("head").of(4).created(5))
    for index in range(20):
        scenario.add(gang(f"s{index}").of(1).running_for(10).created(40 + index))
        scenario.pass_time(8)
    started = [pod for pod in scenario.cluster.pods.values() if pod.seated]
    assert {pod.name for pod in started} > {"runs-0", "runs-1"}, "short work used the room"
    for pod in started:
        ends(scenario, pod.uid)
    scenario.run_effects()
    assert scenario.bound("head") == 4


def is_small(pod: PodFacts) -> bool:
    return pod.name.startswith("s")


def starts_in_a_stream(
    scenario: Scenario, name: str, *, seconds: int, may_end: Callable[[PodFacts], bool] = is_small
) -> bool:
    """Each second a small pod ends, the oldest first, and another one comes before that."""
    for index in range(seconds):
        oldest = next((pod.uid for pod in scenario.cluster.pods.values() if pod.seated and may_end(pod)), None)
        scenario.add_pods(plain_pod(f"s-late{index}", age=200 + index))
        if oldest is not None:
            ends(scenario, oldest)
        scenario.pass_time(1)
        if scenario.bound(name):
            return True
    return False


@pytest.mark.parametrize("built", [gang("big"), gang("big").non_strict(60)], ids=["strict", "non_strict"])
def test_i8_a_gang_of_large_pods_starts_under_a_stream_of_small_ones(built: CoreGang) -> None:
    scenario = Scenario({"n": 4})
    scenario.add_pods(*[plain_pod(f"s{index}", age=1) for index in range(4)])
    scenario.run_effects()
    scenario.add(built.of(1, cpu=4).created(5))
    assert starts_in_a_stream(scenario, "big", seconds=300)


def test_i8_a_reservation_moves_to_capacity_that_is_freed_earlier() -> None:
    scenario = Scenario({"a": 4, "z": 4})
    scenario.add_pods(plain_pod("a-service", cpu=4, age=1))
    scenario.run_effects()
    scenario.add_pods(*[plain_pod(f"s{index}", age=1) for index in range(4)])
    scenario.run_effects()
    service = scenario.cluster.pods["default/a-service"].node
    assert all(pod.node and pod.node != service for pod in scenario.cluster.pods.values() if is_small(pod))
    scenario.add(gang("big").of(1, cpu=4).created(5))
    assert starts_in_a_stream(scenario, "big", seconds=400)


def test_i8_a_head_of_higher_priority_gets_its_own_reservation() -> None:
    scenario = Scenario({"a": 4, "z": 2})
    scenario.add_pods(plain_pod("a-service", cpu=4, age=1))
    scenario.run_effects()
    scenario.add(gang("low").of(1, cpu=4).created(2))
    scenario.add_pods(*[plain_pod(f"s{index}", age=3) for index in range(2)])
    scenario.pass_time(31)
    assert scenario.leader.cache.nominations
    scenario.add(gang("high").of(1, cpu=2).with_priority(10).created(100).never_preempting())
    assert starts_in_a_stream(scenario, "high", seconds=200, may_end=lambda pod: pod.node == "z" and is_small(pod))
