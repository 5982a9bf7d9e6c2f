"""NonStrict gangs: they hold what they get, start at their minimum, and give all back when they wait too long."""

from msgspec.structs import replace

from builders.core.objects import gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Persist, Phase, Solve
from muster.coordinator.core.events import RecordState
from muster.gangs.facts import GangMode


def waiting(story: Story, *names: str) -> dict[str, int]:
    return {name: len(story.gang(name).seats) for name in names}


def test_g08_gangs_that_hold_what_each_other_needs_start_one_after_another() -> None:
    story = Story({"n": 5})
    gangs = [gang(name).of(5).created(index).non_strict() for index, name in enumerate("abc")]
    for built in gangs:
        story.change(gangs=[built.gang_facts()], pods=[])
    for index in range(5):
        for built in gangs:
            story.add_pods(built.pods()[index])
    story.run()
    story.pass_time(10)
    assert sorted(story.bound(name) for name in "abc") == [0, 0, 5]


def test_g09_what_waited_too_long_gives_all_back_and_is_not_tried_again() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    story.add(built)
    story.run()
    assert waiting(story, "a") == {"a": 4}
    assert story.gang("a").phase is Phase.WAITING
    story.pass_time(1)
    assert any("holds reservations for 4 of 5 members" in note for note in story.notes())
    story.pass_time(2.1)
    assert story.gang("a").phase is Phase.TIMED_OUT
    assert not story.leader.cache.ledger.reserved
    assert all(pod.timed_out for pod in story.cluster.pods.values())
    assert any("4 of 5 members of gang default/a had a reservation, 1 were missing" in note for note in story.notes())
    tries = len(story.solves)
    story.change(nodes=[node("m", 10)])
    story.pass_time(1000)
    assert len(story.solves) == tries
    story.add_pods(plain_pod("p", cpu=4))
    story.run()
    assert story.cluster.pods["default/p"].node
    assert story.bound("a") == 0


def test_g09_new_pods_are_tried_again() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    story.add(built)
    story.pass_time(4)
    story.change(nodes=[node("m", 1)], remove_pods=[pod.uid for pod in built.pods()])
    story.add_pods(*[replace(pod, uid=f"{pod.uid}/new") for pod in built.pods()])
    story.run()
    assert story.bound("a") == 5
    assert story.etcd[built.id].state is RecordState.SATISFIED


def test_g09_pods_without_the_mark_are_tried_again() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(5).non_strict(waiting_time_seconds=3))
    story.pass_time(4)
    story.change(nodes=[node("m", 1)], pods=[replace(pod, timed_out=False) for pod in story.cluster.pods.values()])
    story.run()
    assert story.bound("a") == 5


def test_g09_editing_the_declaration_removes_the_timeout_marks() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    story.add(built)
    story.pass_time(4)
    story.crash()
    story.start()
    story.run()
    assert story.gang("a").phase is Phase.TIMED_OUT
    story.change(gangs=[built.minimum(4).gang_facts()])
    story.run()
    assert not any(pod.timed_out for pod in story.cluster.pods.values())
    assert story.bound("a") == 4


def test_g09_the_marks_survive_a_crash_before_they_are_written() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    story.add(built)
    story.run()
    story.now += 3
    story.wake()
    story.do(story.under_way.index(story.only(Persist)))
    story.crash()
    assert not any(pod.timed_out for pod in story.cluster.pods.values())
    story.start()
    story.run()
    assert all(pod.timed_out for pod in story.cluster.pods.values())
    assert story.bound("a") == 0
    story.change(pods=[replace(pod, timed_out=False) for pod in story.cluster.pods.values()])
    story.run()
    story.crash()
    story.start()
    story.run()
    assert story.gang("a").phase is Phase.WAITING, "a mark that the user took off is not put on again"


def test_g10_the_last_place_comes_in_time() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    story.add(built)
    story.pass_time(2)
    story.change(nodes=[node("m", 1)])
    story.run()
    assert story.bound("a") == 5
    story.pass_time(10)
    assert not any(pod.timed_out for pod in story.cluster.pods.values())
    assert story.etcd[built.id].waiting_since_unix_millis == 0


def test_g11_nothing_but_the_waiting_time_ends_the_wait() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(5).non_strict(waiting_time_seconds=1200))
    story.pass_time(16 * 60)
    assert waiting(story, "a") == {"a": 4}
    story.pass_time(4 * 60)
    assert story.gang("a").phase is Phase.TIMED_OUT


def test_the_clock_runs_from_the_first_reservation_over_a_crash() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(5).non_strict(waiting_time_seconds=100))
    story.pass_time(60)
    story.crash()
    story.now += 20
    story.start()
    story.run()
    assert waiting(story, "a") == {"a": 4}
    story.pass_time(19)
    assert waiting(story, "a") == {"a": 4}
    story.pass_time(2)
    assert story.gang("a").phase is Phase.TIMED_OUT


def test_g33_a_definition_that_goes_takes_the_reservations_along() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict()
    story.add(built)
    story.run()
    story.change(gangs=[built.broken("PodGroup default/a does not exist yet").gang_facts()])
    story.run()
    assert not story.leader.cache.ledger.reserved
    assert built.id not in story.etcd
    story.pass_time(2)
    assert any("PodGroup default/a does not exist" in note for note in story.notes())


def test_g34_a_deleted_pod_gives_its_place_to_others() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict()
    story.add(built)
    story.run()
    uid = next(iter(story.gang("a").seats))
    story.change(remove_pods=[uid])
    story.run()
    assert story.gang("a").member_count == 4
    story.add_pods(plain_pod("p"))
    story.run()
    assert story.cluster.pods["default/p"].node
    assert waiting(story, "a") == {"a": 3}


def test_a_group_starts_when_every_gang_has_its_minimum() -> None:
    story = Story({"n": 5})
    a = gang("a").of(3).non_strict().with_group("x/b", "default/a")
    b = gang("b", "x").of(3).non_strict().with_group("x/b", "default/a")
    story.add(a, b)
    story.run()
    held = len(story.gang("a").seats) + len(story.gang("b", "x").seats)
    assert held == 5
    assert story.bound("a") + story.bound("b", "x") == 0
    story.change(nodes=[node("m", 1)])
    story.run()
    assert (story.bound("a"), story.bound("b", "x")) == (3, 3)
    assert story.permitted_with[a.id] == {a.id, b.id}


def test_one_gang_that_waits_too_long_times_out_its_group() -> None:
    story = Story({"n": 5})
    a = gang("a").of(3).non_strict(waiting_time_seconds=5).with_group("x/b", "default/a")
    b = gang("b", "x").of(3).non_strict().with_group("x/b", "default/a")
    story.add(a, b)
    story.pass_time(6)
    assert all(pod.timed_out for pod in story.cluster.pods.values())
    assert not story.leader.cache.ledger.reserved


def test_one_gang_that_waits_too_long_takes_the_reservations_of_its_partners_along_at_once() -> None:
    """Before any of the pods is seen with the mark."""
    story = Story({"n": 5})
    a = gang("a").of(3).non_strict(waiting_time_seconds=5).with_group("default/a", "default/b")
    b = gang("b").of(3).non_strict().with_group("default/a", "default/b")
    story.add(a, b)
    story.run_effects()
    assert sum(waiting(story, "a", "b").values()) == 5
    story.now += 6
    story.wake()
    assert waiting(story, "a", "b") == {"a": 0, "b": 0}
    assert not story.leader.cache.ledger.reserved


def test_a_group_is_as_strict_as_its_strictest_gang() -> None:
    story = Story({"n": 5})
    story.add(gang("a").of(3).non_strict().with_group("default/a", "default/b"))
    story.add(gang("b").of(3).with_group("default/a", "default/b"))
    story.pass_time(2)
    assert not story.leader.cache.ledger.reserved
    assert any("default/b of its gang group is Strict" in note for note in story.notes())


def test_a_gang_that_becomes_strict_holds_nothing() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict()
    story.add(built)
    story.run()
    story.change(gangs=[replace(built.gang_facts(), mode=GangMode.STRICT)])
    story.run()
    assert not story.leader.cache.ledger.reserved


def test_a_lower_minimum_starts_it_at_once() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict()
    story.add(built)
    story.run()
    story.change(gangs=[built.minimum(4).gang_facts()])
    assert len(story.only(Persist).puts[0].seats) == 4
    story.run()
    assert story.bound("a") == 4


def test_places_on_a_node_that_goes_are_found_elsewhere() -> None:
    story = Story({"n": 2, "m": 2})
    story.add(gang("a").of(5).non_strict())
    story.run()
    story.change(nodes=[node("k", 1)], remove_nodes=["m"])
    story.run()
    assert sorted(held.seat.node for held in story.gang("a").seats.values()) == ["k", "n", "n"]


def test_g39_a_stranger_on_a_waiting_place_moves_the_reservation() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(5).non_strict())
    story.run()
    story.intrude(plain_pod("x"), "n")
    story.run()
    assert waiting(story, "a") == {"a": 3}
    story.change(nodes=[node("m", 2)])
    story.run()
    assert story.bound("a") == 5


def test_what_goes_beyond_the_minimum_comes_after_the_start() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(6).minimum(4).non_strict())
    story.run()
    assert story.bound("a") == 4
    story.change(nodes=[node("m", 2)])
    story.run()
    assert story.bound("a") == 6


def test_an_answer_of_part_is_not_taken_for_a_gang_that_is_strict_by_now() -> None:
    story = Story({"n": 4})
    built = gang("a").of(5).non_strict()
    story.add(built)
    assert story.only(Solve).groups[0].partial
    story.change(gangs=[replace(built.gang_facts(), mode=GangMode.STRICT)])
    story.run()
    assert not story.leader.cache.ledger.reserved
    assert story.bound("a") == 0


def deadlock() -> Story:
    """Each of two gangs of 5 holds what the other needs: b, which comes later, is more important."""
    story = Story({"n": 5})
    story.intrude(plain_pod("x", cpu=3), "n")
    story.add(gang("a").of(5).created(1).non_strict())
    story.run()
    story.add(gang("b").of(5).created(2).priority(5).non_strict())
    story.change(remove_pods=["default/x"])
    story.run()
    assert waiting(story, "a", "b") == {"a": 2, "b": 3}
    return story


def test_g08_the_last_in_the_queue_gives_way() -> None:
    story = deadlock()
    story.pass_time(3)
    assert (story.bound("a"), story.bound("b")) == (0, 5)
    assert any("released its 2 reservations: gang default/b" in note for note in story.notes())


def test_g08_who_gave_way_takes_nothing_before_the_other_is_done() -> None:
    story = deadlock()
    story.lagging = True
    story.pass_time(3)
    story.lagging = False
    story.deliver()
    story.run()
    tries = len(story.solves)
    story.pass_time(60)
    assert len(story.solves) - tries <= 2, "it does not come and go"
    story.change(remove_pods=[pod.uid for pod in gang("b").of(5).pods()])
    story.run()
    assert story.bound("a") == 5
