"""Deadlocks of NonStrict gangs: which releases its reservations, and when it is retried."""

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
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Phase, Solve
from muster.gangs.facts import PodPhase


def each_holds_some(first: CoreGang, second: CoreGang, *, first_holds: int, cpus: int = 5) -> Scenario:
    """There is room for the second when the first holds some: both wait."""
    scenario = Scenario({"n": cpus, "tiny": 0})
    scenario.intrude(plain_pod("x", cpu=cpus - first_holds), "n")
    scenario.add(first)
    scenario.run()
    scenario.add(second)
    scenario.change(remove_pods=["default/x"])
    return scenario


# -- deadlocks


def test_g08_a_deadlock_of_three_ends_with_all_started_one_after_another() -> None:
    scenario = Scenario({"n": 7})
    scenario.intrude(plain_pod("x", cpu=7), "n")
    scenario.add(*(gang(name).of(5).created(index).non_strict(6000) for index, name in enumerate("abc")))
    scenario.run_effects()
    scenario.change(remove_pods=["default/x"])
    scenario.run_effects()
    for name in "abc":
        scenario.pass_time(10)
        assert scenario.bound(name) == 5, f"{name} is next"
        all_end(scenario)
        scenario.run_effects()


def test_g08_a_deadlock_of_groups_ends_too() -> None:
    waits = {
        name: gang(name).of(2).non_strict(6000).with_group("default/a", "default/b").created(1) for name in "ab"
    } | {
        name: gang(name).of(2).non_strict(6000).with_group("default/c", "default/d").created(2).with_priority(5)
        for name in "cd"
    }
    scenario = Scenario({"n": 6})
    scenario.intrude(plain_pod("x", cpu=3), "n")
    scenario.add(waits["a"], waits["b"])
    scenario.run_effects()
    scenario.add(waits["c"], waits["d"])
    scenario.change(remove_pods=["default/x"])
    scenario.pass_time(10)
    assert places(scenario, "abcd") == {"a": 0, "b": 0, "c": 2, "d": 2}
    all_end(scenario)
    scenario.pass_time(10)
    assert places(scenario, "ab") == {"a": 2, "b": 2}


def test_g08_churn_does_not_put_the_end_of_a_deadlock_off() -> None:
    a, b = gang("a").of(5).created(1).non_strict(), gang("b").of(5).created(2).with_priority(5).non_strict()
    scenario = each_holds_some(a, b, first_holds=2)
    scenario.run()
    assert reservations(scenario, "ab") == {"a": 2, "b": 3}
    for index in range(60):
        scenario.pass_time(0.5)
        scenario.change(nodes=[node("tiny", 0, labels={"beat": str(index)})])
        scenario.run_effects()
    assert scenario.bound("b") == 5


def test_i9_a_waiting_gang_that_starts_during_the_solve_is_no_victim_of_an_equal() -> None:
    a, b = gang("a").of(5).created(1).non_strict(), gang("b").of(5).created(2).non_strict()
    scenario = each_holds_some(b, a, first_holds=2)
    scenario.run_effects()
    assert reservations(scenario, "ab") == {"a": 3, "b": 2}
    scenario.now += 2
    scenario.wake()
    answer = answered(scenario, held_back(scenario, Solve, asks_for_room))
    scenario.change(gangs=[b.needing(2).gang_facts()])
    scenario.run_effects()
    assert scenario.bound("b") == 2
    scenario.graceful = True
    scenario.tell(answer)
    scenario.run_effects()
    assert not evicted(scenario)


# -- who gave way


def gave_way(waits: CoreGang) -> Scenario:
    """Of 4 cpus, for p, which comes with 4 pods; p is not placed yet."""
    scenario = Scenario({"n": 4})
    scenario.add(waits)
    scenario.run_effects()
    assert len(scenario.gang(waits.name).seats) == 4
    scenario.add(gang("p").of(4).with_priority(10).created(5))
    until(scenario, Solve, asks_for_room)
    scenario.do(scenario.under_way.index(scenario.only(Solve)))
    assert not scenario.gang(waits.name).seats
    return scenario


def test_i7_a_released_gang_is_retried_when_the_other_can_never_start() -> None:
    waits = gang("w").of(5).non_strict(6000)
    scenario = gave_way(waits)
    scenario.change(nodes=[node("n", 3)], gangs=[waits.needing(3).gang_facts()])
    scenario.pass_time(300)
    assert scenario.bound("w") == 3


def test_i7_a_released_gang_is_retried_when_others_took_the_capacity() -> None:
    scenario = gave_way(gang("w").of(5).created(1).non_strict(6000))
    scenario.intrude(plain_pod("x", cpu=1), "n")
    scenario.run_effects()
    scenario.change(nodes=[node("m", 2)])
    scenario.pass_time(60)
    assert scenario.bound("p") == 4


def test_the_waiting_time_stops_while_a_released_gang_holds_nothing() -> None:
    scenario = gave_way(gang("w").of(5).created(1).non_strict(waiting_time_seconds=100))
    scenario.pass_time(1000)
    assert places(scenario, "pw") == {"p": 4, "w": 0}
    assert scenario.gang("w").phase is not Phase.TIMED_OUT
    assert not any(pod.timed_out for pod in scenario.cluster.pods.values())
    scenario.change(nodes=[node("m", 1)])
    all_end(scenario)
    scenario.run_effects()
    assert scenario.bound("w") == 5


def test_the_waiting_time_of_a_released_gang_restarts_with_its_next_reservation() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("w").of(5).created(1).non_strict(waiting_time_seconds=100))
    scenario.pass_time(60)
    scenario.add(gang("p").of(4).with_priority(10).created(5))
    scenario.pass_time(20)
    assert places(scenario, "pw") == {"p": 4, "w": 0}
    all_end(scenario)
    scenario.pass_time(99)
    assert reservations(scenario, "w") == {"w": 4}
    scenario.pass_time(2)
    assert scenario.gang("w").phase is Phase.TIMED_OUT


def test_a_group_with_one_released_gang_is_not_partly_held() -> None:
    scenario = Scenario({"n": 4})
    a = gang("a").of(3).created(1).non_strict(6000).with_group("default/a", "default/b")
    b = gang("b").of(2).created(1).non_strict(6000).with_group("default/a", "default/b")
    scenario.add(a, b)
    scenario.run_effects()
    assert sum(reservations(scenario, "ab").values()) == 4
    scenario.add(gang("p").of(1).with_priority(10).created(9))
    scenario.pass_time(3)
    assert scenario.bound("p") == 1
    scenario.crash()
    scenario.start()
    scenario.change(nodes=[node("m", 2)])
    scenario.pass_time(5)
    assert places(scenario, "ab") == {"a": 3, "b": 2}


# -- started by others


def test_i5_i6_reservations_of_a_gang_that_others_started_are_bound() -> None:
    scenario = Scenario({"n": 2})
    built = gang("a").of(6).needing(4).non_strict()
    scenario.add(built)
    scenario.run()
    held = set(scenario.gang("a").seats)
    assert len(held) == 2
    others = [pod for pod in built.pods() if pod.uid not in held]
    scenario.shared_nodes.add("m")
    scenario.change(nodes=[node("m", 4)], pods=[replace(pod, node="m", phase=PodPhase.RUNNING) for pod in others])
    scenario.pass_time(60)
    assert scenario.bound("a") == 6
