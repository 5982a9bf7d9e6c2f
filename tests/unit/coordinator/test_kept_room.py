"""Room that drains for the head of the queue stays its own, whoever comes, goes or stands beside it (I8)."""

from collections.abc import Callable

import pytest

from builders.core.actions import answered, asks_for_room, crowded, ends, evicted, held_back
from builders.core.objects import GangBuilder, gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Delta
from muster.gangs.facts import Batch, PodFacts


def starved(story: Story, *gangs: GangBuilder) -> None:
    """What cannot be placed has waited long enough to get room kept."""
    story.add(*gangs)
    story.pass_time(31)
    assert story.leader.cache.kept


def test_i9_room_that_drains_for_one_is_not_preempted_by_another() -> None:
    story = crowded({"n": 4})
    story.add(gang("x").of(4).expected(1000))
    story.run_effects()
    starved(story, gang("head").of(4).priority(20).created(5).never_preempts())
    story.add(gang("p").of(4).priority(10).created(6))
    story.pass_time(5)
    assert not evicted(story), "x would go for p, which may not have the room"
    assert story.leader.cache.kept


def goes_with(story: Story, head: GangBuilder, question: Solve) -> None:
    """That the head is gone, and the answer to a question, come in one step."""
    answer = answered(story, question)
    uids = tuple(pod.uid for pod in head.pods())
    for uid in uids:
        story.cluster.drop_pod(uid)
    story.cluster.gangs.pop(head.id)
    story.tell(Delta(Batch(removed_pods=uids, removed_gangs=(head.id,))), answer)
    story.run_effects()
    assert head.id not in {kept.owner for kept in story.leader.cache.kept.values()}


def test_a_head_that_goes_in_the_step_of_an_answer() -> None:
    story = Story({"n": 4})
    story.add(gang("runs").of(2))
    story.run()
    head = gang("head").of(4).created(5)
    starved(story, head)
    story.change(nodes=[node("m", 1)])
    story.run_effects()
    story.add(gang("other").of(1).created(50))
    goes_with(story, head, held_back(story, Solve))
    assert story.bound("other") == 1


def test_a_head_that_goes_in_the_step_of_an_answer_about_victims() -> None:
    story = crowded({"n": 4})
    story.add(gang("runs").of(2))
    story.run_effects()
    head = gang("head").of(4).created(5)
    starved(story, head)
    story.add(gang("p").of(4).priority(9).created(6))
    goes_with(story, head, held_back(story, Solve, asks_for_room))
    assert evicted(story) == {"runs"}


def test_i8_a_later_pod_of_an_older_gang_that_goes_elsewhere_leaves_the_room_kept() -> None:
    story = Story({"n": 4, "m": 2})
    old = gang("old").of(2).created(0)
    story.add(old)
    story.run_effects()
    assert {pod.node for pod in story.cluster.pods.values()} == {"m"}
    story.add(gang("runs").of(2).created(1))
    story.run_effects()
    starved(story, gang("head").of(4).created(5))
    story.change(nodes=[node("k", 1)])
    late = old.of(1).pods()[2]
    story.add_pods(late)
    story.run_effects()
    assert story.cluster.pods[late.uid].node == "k"
    assert story.leader.cache.kept


def test_i8_a_non_strict_gang_holds_no_room_that_drains() -> None:
    """Its pods run for a short time, but nobody knows when it starts."""
    story = Story({"n": 4, "m": 4})
    runs = gang("runs").of(4).expected(100)
    story.add(runs)
    story.run()
    starved(story, gang("head").of(8).created(5))
    story.add(gang("w").of(5).expected(10).created(40).non_strict(waiting_time_seconds=6000))
    story.pass_time(70)
    assert not story.gang("w").seats
    ends(story, *(pod.uid for pod in runs.pods()))
    story.pass_time(100)
    assert story.bound("head") == 8


def test_i8_short_work_that_overruns_does_not_put_the_start_off_again_and_again() -> None:
    """Each short gang says 10 s and runs on: the head waits for those that are in, but new ones come in no more."""
    story = Story({"n": 4})
    story.add(gang("runs").of(2).expected(100))
    story.run()
    starved(story, gang("head").of(4).created(5))
    for index in range(20):
        story.add(gang(f"s{index}").of(1).expected(10).created(40 + index))
        story.pass_time(8)
    started = [pod for pod in story.cluster.pods.values() if pod.seated]
    assert {pod.name for pod in started} > {"runs-0", "runs-1"}, "short work used the room"
    for pod in started:
        ends(story, pod.uid)
    story.run_effects()
    assert story.bound("head") == 4


def is_small(pod: PodFacts) -> bool:
    return pod.name.startswith("s")


def starts_in_a_stream(
    story: Story, name: str, *, seconds: int, may_end: Callable[[PodFacts], bool] = is_small
) -> bool:
    """Each second a small pod ends, the oldest first, and another one comes before that."""
    for index in range(seconds):
        oldest = next((pod.uid for pod in story.cluster.pods.values() if pod.seated and may_end(pod)), None)
        story.add_pods(plain_pod(f"s-late{index}", age=200 + index))
        if oldest is not None:
            ends(story, oldest)
        story.pass_time(1)
        if story.bound(name):
            return True
    return False


@pytest.mark.parametrize("built", [gang("big"), gang("big").non_strict(60)], ids=["strict", "non_strict"])
def test_i8_a_gang_of_large_pods_starts_under_a_stream_of_small_ones(built: GangBuilder) -> None:
    story = Story({"n": 4})
    story.add_pods(*[plain_pod(f"s{index}", age=1) for index in range(4)])
    story.run_effects()
    story.add(built.of(1, cpu=4).created(5))
    assert starts_in_a_stream(story, "big", seconds=300)


def test_i8_room_that_does_not_come_free_is_not_waited_for_while_another_would() -> None:
    story = Story({"a": 4, "z": 4})
    story.add_pods(plain_pod("a-service", cpu=4, age=1))
    story.run_effects()
    story.add_pods(*[plain_pod(f"s{index}", age=1) for index in range(4)])
    story.run_effects()
    service = story.cluster.pods["default/a-service"].node
    assert all(pod.node and pod.node != service for pod in story.cluster.pods.values() if is_small(pod))
    story.add(gang("big").of(1, cpu=4).created(5))
    assert starts_in_a_stream(story, "big", seconds=400)


def test_i8_a_more_important_head_gets_room_although_one_behind_it_has_some() -> None:
    story = Story({"a": 4, "z": 2})
    story.add_pods(plain_pod("a-service", cpu=4, age=1))
    story.run_effects()
    story.add(gang("low").of(1, cpu=4).created(2))
    story.add_pods(*[plain_pod(f"s{index}", age=3) for index in range(2)])
    story.pass_time(31)
    assert story.leader.cache.kept
    story.add(gang("high").of(1, cpu=2).priority(10).created(100).never_preempts())
    assert starts_in_a_stream(story, "high", seconds=200, may_end=lambda pod: pod.node == "z" and is_small(pod))
