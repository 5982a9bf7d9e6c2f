"""NonStrict gangs that hold what others need: who gives way, who waits for whom, and for how long."""

from msgspec.structs import replace

from builders.core.actions import (
    all_end,
    answered,
    asks_for_room,
    evicted,
    held_back,
    places,
    reservations,
    until,
)
from builders.core.objects import GangBuilder, gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Phase, Solve
from muster.gangs.facts import PodPhase


def each_holds_some(first: GangBuilder, second: GangBuilder, *, first_holds: int, cpus: int = 5) -> Story:
    """There is room for the second when the first holds some: both wait."""
    story = Story({"n": cpus, "tiny": 0})
    story.intrude(plain_pod("x", cpu=cpus - first_holds), "n")
    story.add(first)
    story.run()
    story.add(second)
    story.change(remove_pods=["default/x"])
    return story


# -- deadlocks


def test_g08_a_deadlock_of_three_ends_with_all_started_one_after_another() -> None:
    story = Story({"n": 7})
    story.intrude(plain_pod("x", cpu=7), "n")
    story.add(*(gang(name).of(5).created(index).non_strict(6000) for index, name in enumerate("abc")))
    story.run_effects()
    story.change(remove_pods=["default/x"])
    story.run_effects()
    for name in "abc":
        story.pass_time(10)
        assert story.bound(name) == 5, f"{name} is next"
        all_end(story)
        story.run_effects()


def test_g08_a_deadlock_of_groups_ends_too() -> None:
    waits = {
        name: gang(name).of(2).non_strict(6000).with_group("default/a", "default/b").created(1) for name in "ab"
    } | {
        name: gang(name).of(2).non_strict(6000).with_group("default/c", "default/d").created(2).priority(5)
        for name in "cd"
    }
    story = Story({"n": 6})
    story.intrude(plain_pod("x", cpu=3), "n")
    story.add(waits["a"], waits["b"])
    story.run_effects()
    story.add(waits["c"], waits["d"])
    story.change(remove_pods=["default/x"])
    story.pass_time(10)
    assert places(story, "abcd") == {"a": 0, "b": 0, "c": 2, "d": 2}
    all_end(story)
    story.pass_time(10)
    assert places(story, "ab") == {"a": 2, "b": 2}


def test_g08_churn_does_not_put_the_end_of_a_deadlock_off() -> None:
    a, b = gang("a").of(5).created(1).non_strict(), gang("b").of(5).created(2).priority(5).non_strict()
    story = each_holds_some(a, b, first_holds=2)
    story.run()
    assert reservations(story, "ab") == {"a": 2, "b": 3}
    for index in range(60):
        story.pass_time(0.5)
        story.change(nodes=[node("tiny", 0, labels={"beat": str(index)})])
        story.run_effects()
    assert story.bound("b") == 5


def test_i9_who_waited_when_it_was_asked_and_runs_by_now_is_no_victim_of_an_equal() -> None:
    a, b = gang("a").of(5).created(1).non_strict(), gang("b").of(5).created(2).non_strict()
    story = each_holds_some(b, a, first_holds=2)
    story.run_effects()
    assert reservations(story, "ab") == {"a": 3, "b": 2}
    story.now += 2
    story.wake()
    answer = answered(story, held_back(story, Solve, asks_for_room))
    story.change(gangs=[b.minimum(2).gang_facts()])
    story.run_effects()
    assert story.bound("b") == 2
    story.graceful = True
    story.tell(answer)
    story.run_effects()
    assert not evicted(story)


# -- who gave way


def gave_way(waits: GangBuilder) -> Story:
    """Of 4 cpus, for p, which comes with 4 pods; p is not placed yet."""
    story = Story({"n": 4})
    story.add(waits)
    story.run_effects()
    assert len(story.gang(waits.name).seats) == 4
    story.add(gang("p").of(4).priority(10).created(5))
    until(story, Solve, asks_for_room)
    story.do(story.under_way.index(story.only(Solve)))
    assert not story.gang(waits.name).seats
    return story


def test_i7_who_gave_way_is_tried_when_the_other_can_never_start() -> None:
    waits = gang("w").of(5).non_strict(6000)
    story = gave_way(waits)
    story.change(nodes=[node("n", 3)], gangs=[waits.minimum(3).gang_facts()])
    story.pass_time(300)
    assert story.bound("w") == 3


def test_i7_who_gave_way_is_tried_when_others_took_the_room_of_the_first() -> None:
    story = gave_way(gang("w").of(5).created(1).non_strict(6000))
    story.intrude(plain_pod("x", cpu=1), "n")
    story.run_effects()
    story.change(nodes=[node("m", 2)])
    story.pass_time(60)
    assert story.bound("p") == 4


def test_the_clock_stands_while_a_gang_that_gave_way_holds_nothing() -> None:
    story = gave_way(gang("w").of(5).created(1).non_strict(waiting_time_seconds=100))
    story.pass_time(1000)
    assert places(story, "pw") == {"p": 4, "w": 0}
    assert story.gang("w").phase is not Phase.TIMED_OUT
    assert not any(pod.timed_out for pod in story.cluster.pods.values())
    story.change(nodes=[node("m", 1)])
    all_end(story)
    story.run_effects()
    assert story.bound("w") == 5


def test_the_clock_of_a_gang_that_gave_way_begins_anew_with_its_next_reservation() -> None:
    story = Story({"n": 4})
    story.add(gang("w").of(5).created(1).non_strict(waiting_time_seconds=100))
    story.pass_time(60)
    story.add(gang("p").of(4).priority(10).created(5))
    story.pass_time(20)
    assert places(story, "pw") == {"p": 4, "w": 0}
    all_end(story)
    story.pass_time(99)
    assert reservations(story, "w") == {"w": 4}
    story.pass_time(2)
    assert story.gang("w").phase is Phase.TIMED_OUT


def test_a_group_of_which_one_gang_gave_way_is_not_held_by_half() -> None:
    story = Story({"n": 4})
    a = gang("a").of(3).created(1).non_strict(6000).with_group("default/a", "default/b")
    b = gang("b").of(2).created(1).non_strict(6000).with_group("default/a", "default/b")
    story.add(a, b)
    story.run_effects()
    assert sum(reservations(story, "ab").values()) == 4
    story.add(gang("p").of(1).priority(10).created(9))
    story.pass_time(3)
    assert story.bound("p") == 1
    story.crash()
    story.start()
    story.change(nodes=[node("m", 2)])
    story.pass_time(5)
    assert places(story, "ab") == {"a": 3, "b": 2}


# -- started by others


def test_i5_i6_reservations_of_a_gang_that_others_started_are_bound() -> None:
    story = Story({"n": 2})
    built = gang("a").of(6).minimum(4).non_strict()
    story.add(built)
    story.run()
    held = set(story.gang("a").seats)
    assert len(held) == 2
    others = [pod for pod in built.pods() if pod.uid not in held]
    story.shared_nodes.add("m")
    story.change(nodes=[node("m", 4)], pods=[replace(pod, node="m", phase=PodPhase.RUNNING) for pod in others])
    story.pass_time(60)
    assert story.bound("a") == 6
