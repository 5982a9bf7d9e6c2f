"""NonStrict gangs: they hold reservations, start at their minimum, and release everything on timeout."""

from msgspec.structs import replace

from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Persist, Phase, Solve
from muster.coordinator.core.events import RecordState
from muster.gangs.facts import GangMode


def waiting(scenario: Scenario, *names: str) -> dict[str, int]:
    return {name: len(scenario.gang(name).seats) for name in names}


def test_g08_deadlocked_gangs_start_one_after_another() -> None:
    scenario = Scenario({"n": 5})
    gangs = [gang(name).of(5).created(index).non_strict() for index, name in enumerate("abc")]
    for built in gangs:
        scenario.change(gangs=[built.gang_facts()], pods=[])
    for index in range(5):
        for built in gangs:
            scenario.add_pods(built.pods()[index])
    scenario.run()
    scenario.pass_time(10)
    assert sorted(scenario.bound(name) for name in "abc") == [0, 0, 5]


def test_g09_a_timeout_releases_all_reservations_and_ends_scheduling() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    scenario.add(built)
    scenario.run()
    assert waiting(scenario, "a") == {"a": 4}
    assert scenario.gang("a").phase is Phase.WAITING
    scenario.pass_time(1)
    assert any("holds reservations for 4 of 5 members" in note for note in scenario.notes())
    scenario.pass_time(2.1)
    assert scenario.gang("a").phase is Phase.TIMED_OUT
    assert not scenario.leader.cache.ledger.reserved
    assert all(pod.timed_out for pod in scenario.cluster.pods.values())
    assert any(
        "4 of 5 members of gang default/a had a reservation, 1 were missing" in note for note in scenario.notes()
    )
    tries = len(scenario.solves)
    scenario.change(nodes=[node("m", 10)])
    scenario.pass_time(1000)
    assert len(scenario.solves) == tries
    scenario.add_pods(plain_pod("p", cpu=4))
    scenario.run()
    assert scenario.cluster.pods["default/p"].node
    assert scenario.bound("a") == 0


def test_g09_new_pods_are_tried_again() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    scenario.add(built)
    scenario.pass_time(4)
    scenario.change(nodes=[node("m", 1)], remove_pods=[pod.uid for pod in built.pods()])
    scenario.add_pods(*[replace(pod, uid=f"{pod.uid}/new") for pod in built.pods()])
    scenario.run()
    assert scenario.bound("a") == 5
    assert scenario.etcd[built.id].state is RecordState.SATISFIED


def test_g09_pods_without_the_mark_are_tried_again() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(5).non_strict(waiting_time_seconds=3))
    scenario.pass_time(4)
    scenario.change(
        nodes=[node("m", 1)], pods=[replace(pod, timed_out=False) for pod in scenario.cluster.pods.values()]
    )
    scenario.run()
    assert scenario.bound("a") == 5


def test_g09_editing_the_declaration_removes_the_timeout_marks() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    scenario.add(built)
    scenario.pass_time(4)
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.gang("a").phase is Phase.TIMED_OUT
    scenario.change(gangs=[built.needing(4).gang_facts()])
    scenario.run()
    assert not any(pod.timed_out for pod in scenario.cluster.pods.values())
    assert scenario.bound("a") == 4


def test_g09_the_marks_survive_a_crash_before_they_are_written() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    scenario.add(built)
    scenario.run()
    scenario.now += 3
    scenario.wake()
    scenario.do(scenario.under_way.index(scenario.only(Persist)))
    scenario.crash()
    assert not any(pod.timed_out for pod in scenario.cluster.pods.values())
    scenario.start()
    scenario.run()
    assert all(pod.timed_out for pod in scenario.cluster.pods.values())
    assert scenario.bound("a") == 0
    scenario.change(pods=[replace(pod, timed_out=False) for pod in scenario.cluster.pods.values()])
    scenario.run()
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.gang("a").phase is Phase.WAITING, "a mark that the user took off is not put on again"


def test_g10_the_last_seat_is_found_in_time() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    scenario.add(built)
    scenario.pass_time(2)
    scenario.change(nodes=[node("m", 1)])
    scenario.run()
    assert scenario.bound("a") == 5
    scenario.pass_time(10)
    assert not any(pod.timed_out for pod in scenario.cluster.pods.values())
    assert scenario.etcd[built.id].waiting_since_unix_millis == 0


def test_g11_nothing_but_the_waiting_time_ends_the_wait() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(5).non_strict(waiting_time_seconds=1200))
    scenario.pass_time(16 * 60)
    assert waiting(scenario, "a") == {"a": 4}
    scenario.pass_time(4 * 60)
    assert scenario.gang("a").phase is Phase.TIMED_OUT


def test_the_clock_runs_from_the_first_reservation_over_a_crash() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(5).non_strict(waiting_time_seconds=100))
    scenario.pass_time(60)
    scenario.crash()
    scenario.now += 20
    scenario.start()
    scenario.run()
    assert waiting(scenario, "a") == {"a": 4}
    scenario.pass_time(19)
    assert waiting(scenario, "a") == {"a": 4}
    scenario.pass_time(2)
    assert scenario.gang("a").phase is Phase.TIMED_OUT


def test_g33_a_deleted_definition_releases_the_reservations() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict()
    scenario.add(built)
    scenario.run()
    scenario.change(gangs=[built.broken("PodGroup default/a does not exist yet").gang_facts()])
    scenario.run()
    assert not scenario.leader.cache.ledger.reserved
    assert built.id not in scenario.etcd
    scenario.pass_time(2)
    assert any("PodGroup default/a does not exist" in note for note in scenario.notes())


def test_g34_a_deleted_pod_frees_its_seat() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict()
    scenario.add(built)
    scenario.run()
    uid = next(iter(scenario.gang("a").seats))
    scenario.change(remove_pods=[uid])
    scenario.run()
    assert scenario.gang("a").member_count == 4
    scenario.add_pods(plain_pod("p"))
    scenario.run()
    assert scenario.cluster.pods["default/p"].node
    assert waiting(scenario, "a") == {"a": 3}


def test_a_group_starts_when_every_gang_has_its_minimum() -> None:
    scenario = Scenario({"n": 5})
    a = gang("a").of(3).non_strict().with_group("x/b", "default/a")
    b = gang("b", "x").of(3).non_strict().with_group("x/b", "default/a")
    scenario.add(a, b)
    scenario.run()
    held = len(scenario.gang("a").seats) + len(scenario.gang("b", "x").seats)
    assert held == 5
    assert scenario.bound("a") + scenario.bound("b", "x") == 0
    scenario.change(nodes=[node("m", 1)])
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b", "x")) == (3, 3)
    assert scenario.permitted_with[a.id] == {a.id, b.id}


def test_one_gang_that_waits_too_long_times_out_its_group() -> None:
    scenario = Scenario({"n": 5})
    a = gang("a").of(3).non_strict(waiting_time_seconds=5).with_group("x/b", "default/a")
    b = gang("b", "x").of(3).non_strict().with_group("x/b", "default/a")
    scenario.add(a, b)
    scenario.pass_time(6)
    assert all(pod.timed_out for pod in scenario.cluster.pods.values())
    assert not scenario.leader.cache.ledger.reserved


def test_a_timeout_of_one_gang_releases_the_reservations_of_its_partners() -> None:
    """Before any of the pods is seen with the mark."""
    scenario = Scenario({"n": 5})
    a = gang("a").of(3).non_strict(waiting_time_seconds=5).with_group("default/a", "default/b")
    b = gang("b").of(3).non_strict().with_group("default/a", "default/b")
    scenario.add(a, b)
    scenario.run_effects()
    assert sum(waiting(scenario, "a", "b").values()) == 5
    scenario.now += 6
    scenario.wake()
    assert waiting(scenario, "a", "b") == {"a": 0, "b": 0}
    assert not scenario.leader.cache.ledger.reserved


def test_a_group_is_as_strict_as_its_strictest_gang() -> None:
    scenario = Scenario({"n": 5})
    scenario.add(gang("a").of(3).non_strict().with_group("default/a", "default/b"))
    scenario.add(gang("b").of(3).with_group("default/a", "default/b"))
    scenario.pass_time(2)
    assert not scenario.leader.cache.ledger.reserved
    assert any("default/b of its gang group is Strict" in note for note in scenario.notes())


def test_a_gang_that_becomes_strict_holds_nothing() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict()
    scenario.add(built)
    scenario.run()
    scenario.change(gangs=[replace(built.gang_facts(), mode=GangMode.STRICT)])
    scenario.run()
    assert not scenario.leader.cache.ledger.reserved


def test_a_lower_minimum_starts_it_at_once() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict()
    scenario.add(built)
    scenario.run()
    scenario.change(gangs=[built.needing(4).gang_facts()])
    assert len(scenario.only(Persist).puts[0].seats) == 4
    scenario.run()
    assert scenario.bound("a") == 4


def test_seats_on_a_removed_node_are_placed_again() -> None:
    scenario = Scenario({"n": 2, "m": 2})
    scenario.add(gang("a").of(5).non_strict())
    scenario.run()
    scenario.change(nodes=[node("k", 1)], remove_nodes=["m"])
    scenario.run()
    assert sorted(held.seat.node for held in scenario.gang("a").seats.values()) == ["k", "n", "n"]


def test_g39_a_stranger_on_a_waiting_place_moves_the_reservation() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(5).non_strict())
    scenario.run()
    scenario.intrude(plain_pod("x"), "n")
    scenario.run()
    assert waiting(scenario, "a") == {"a": 3}
    scenario.change(nodes=[node("m", 2)])
    scenario.run()
    assert scenario.bound("a") == 5


def test_members_above_the_minimum_are_placed_after_the_start() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(6).needing(4).non_strict())
    scenario.run()
    assert scenario.bound("a") == 4
    scenario.change(nodes=[node("m", 2)])
    scenario.run()
    assert scenario.bound("a") == 6


def test_an_answer_of_part_is_not_taken_for_a_gang_that_is_strict_by_now() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict()
    scenario.add(built)
    assert scenario.only(Solve).groups[0].partial
    scenario.change(gangs=[replace(built.gang_facts(), mode=GangMode.STRICT)])
    scenario.run()
    assert not scenario.leader.cache.ledger.reserved
    assert scenario.bound("a") == 0


def deadlock() -> Scenario:
    """Each of two gangs of 5 holds what the other needs: b, which comes later, is more important."""
    scenario = Scenario({"n": 5})
    scenario.intrude(plain_pod("x", cpu=3), "n")
    scenario.add(gang("a").of(5).created(1).non_strict())
    scenario.run()
    scenario.add(gang("b").of(5).created(2).with_priority(5).non_strict())
    scenario.change(remove_pods=["default/x"])
    scenario.run()
    assert waiting(scenario, "a", "b") == {"a": 2, "b": 3}
    return scenario


def test_g08_the_last_in_the_queue_releases_its_reservations() -> None:
    scenario = deadlock()
    scenario.pass_time(3)
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 5)
    assert any("released its 2 reservations: gang default/b" in note for note in scenario.notes())


def test_g08_a_released_gang_reserves_nothing_before_the_other_is_done() -> None:
    scenario = deadlock()
    scenario.lagging = True
    scenario.pass_time(3)
    scenario.lagging = False
    scenario.deliver()
    scenario.run()
    tries = len(scenario.solves)
    scenario.pass_time(60)
    assert len(scenario.solves) - tries <= 2, "it does not come and go"
    scenario.change(remove_pods=[pod.uid for pod in gang("b").of(5).pods()])
    scenario.run()
    assert scenario.bound("a") == 5


def test_g35_a_new_leader_starts_the_clock_of_a_gang_that_was_recreated_meanwhile() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=60)
    scenario.add(built)
    scenario.pass_time(30)
    assert waiting(scenario, "a") == {"a": 4}
    scenario.crash()
    scenario.delete(built)
    recreated = built.recreated("2")
    pods = [replace(pod, uid=f"{pod.uid}/new") for pod in built.pods()]
    scenario.change(gangs=[recreated.gang_facts()], pods=pods)
    scenario.start()
    scenario.pass_time(40)
    assert scenario.gang("a").phase is Phase.WAITING, "70 s after its namesake began to wait"


def test_i5_a_member_that_moves_to_another_gang_leaves_no_reservation() -> None:
    scenario = Scenario({"n": 2})
    scenario.add(gang("a").of(4).needing(3).non_strict())
    scenario.run()
    assert waiting(scenario, "a") == {"a": 2}
    moved = scenario.cluster.pods[next(iter(scenario.gang("a").seats))]
    scenario.change(gangs=[gang("b").of(5).gang_facts()], pods=[replace(moved, gang=gang("b").of(5).id)])
    scenario.run()
    assert moved.uid not in scenario.leader.cache.ledger.reserved
    assert waiting(scenario, "a") == {"a": 2}, "another member has the place"
