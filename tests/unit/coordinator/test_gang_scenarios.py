"""Gang scenarios, as the core plays them."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from builders.core.objects import gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Persist, Phase, Solve
from muster.coordinator.core.events import Solved
from muster.gangs.facts import MatchPolicy, PodFacts, PodPhase


def test_g01_too_large_a_gang_leaves_the_room_to_others() -> None:
    story = Story({"n4": 4})
    story.add(gang("a").minimum(5).of(5))
    story.run()
    assert story.bound("a") == 0
    story.add_pods(plain_pod("p"))
    story.run()
    assert story.cluster.pods["default/p"].node == "n4"
    story.pass_time(1)
    assert any("4 of 5 members fit" in note for note in story.notes())


def test_g02_a_node_comes() -> None:
    story = Story({"n4": 4})
    story.add(gang("a").minimum(5).of(5))
    story.run()
    story.change(nodes=[node("n1", 1)])
    story.run()
    assert story.bound("a") == 5
    assert len(story.solves) == 2


def test_a_gang_that_is_declared_in_other_words_is_not_tried_again() -> None:
    story = Story({"n4": 4})
    declared = gang("a").minimum(5).of(5)
    story.add(declared)
    story.run()
    assert len(story.solves) == 1
    story.change(gangs=[replace(declared.gang_facts(), terms=("min-available: 5 (pod a-1)",))])
    story.run()
    assert len(story.solves) == 1
    story.change(gangs=[replace(declared.gang_facts(), minimum=4)])
    story.run()
    assert story.bound("a") == 4


def test_g03_waits_for_its_third_member() -> None:
    story = Story({"n4": 4})
    three = gang("a").minimum(3).of(3)
    story.change(gangs=[three.gang_facts()], pods=three.pods()[:2])
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 0
    assert any("2 of 3 members" in note for note in story.notes())
    story.change(pods=three.pods()[2:])
    story.run()
    assert story.bound("a") == 3


def test_g04_all_of_a_gang_with_spare_members() -> None:
    story = Story({"n4": 4})
    story.add(gang("a").minimum(3).of(4))
    story.run()
    assert story.bound("a") == 4


def test_g05_the_spare_member_waits_alone() -> None:
    story = Story({"n3": 3})
    story.add(gang("a").minimum(3).of(4))
    story.run()
    assert story.bound("a") == 3
    assert story.gang("a").phase is Phase.SATISFIED
    story.pass_time(1)
    assert any("1 more of its pods cannot start" in note for note in story.notes())
    story.change(nodes=[node("n1", 1)])
    story.run()
    assert story.bound("a") == 4


def test_g06_the_second_gang_follows_the_first() -> None:
    story = Story({"n10": 10})
    a, b = gang("a").of(6).created(1), gang("b").of(6).created(2)
    story.add(a, b)
    story.run()
    assert (story.bound("a"), story.bound("b")) == (6, 0)
    story.delete(a)
    story.pass_time(1)
    assert story.bound("b") == 6


def test_g07_priority_goes_before_age() -> None:
    story = Story({"n10": 10}, start=False)
    story.add(gang("a").of(6).created(1), gang("b").of(6).created(2).priority(10))
    story.start()
    story.run()
    assert (story.bound("a"), story.bound("b")) == (0, 6)


def test_g12_a_group_starts_when_all_its_gangs_are_complete() -> None:
    story = Story({"n10": 10})
    a = gang("A", "a").of(3).with_group("a/A", "b/B")
    b = gang("B", "b").minimum(3).of(3).with_group("a/A", "b/B")
    story.add(a)
    story.change(gangs=[b.gang_facts()], pods=b.pods()[:2])
    story.run()
    assert (story.bound("A", "a"), story.bound("B", "b")) == (0, 0)
    story.change(pods=b.pods()[2:])
    story.run()
    assert (story.bound("A", "a"), story.bound("B", "b")) == (3, 3)
    assert len(story.solves) == 1, "the group is one solve"


def test_i1_a_partner_declared_anew_during_the_solve_is_waited_for() -> None:
    story = Story({"n10": 10})
    names = ("default/a", "default/b")
    a, b = gang("a").of(2).with_group(*names), gang("b").of(2).with_group(*names)
    story.add(a, b)
    solve = story.only(Solve)
    story.delete(b)
    anew = b.anew("2")
    story.change(gangs=[anew.gang_facts()], pods=anew.pods()[:1])
    story.tell(Solved(solve.solve_id, story.first_fit(solve)))
    story.under_way.clear()
    story.run()
    assert (story.bound("a"), story.bound("b")) == (0, 0)
    story.change(pods=anew.pods()[1:])
    story.run()
    assert (story.bound("a"), story.bound("b")) == (2, 2)


def test_g13_a_partner_that_declares_nothing_goes_alone() -> None:
    story = Story({"n10": 10})
    story.add(gang("A", "a").of(3).with_group("a/A", "b/B"), gang("B", "b").of(3))
    story.run()
    story.pass_time(1)
    assert (story.bound("A", "a"), story.bound("B", "b")) == (0, 3)
    assert any(
        'b/B of its gang group does not declare the same group; it must declare ["a/A", "b/B"]' in note
        for note in story.notes()
    )


def test_g14_a_group_that_does_not_fit_holds_nothing() -> None:
    story = Story({"n5": 5})
    story.add(
        gang("a").of(3).with_group("default/a", "default/b"), gang("b").of(3).with_group("default/a", "default/b")
    )
    story.run()
    assert story.bound("a") + story.bound("b") == 0


def test_g15_a_malformed_partner_is_named() -> None:
    story = Story({"n9": 9})
    names = ("default/a", "default/b", "default/c")
    story.add(
        gang("a").of(2).with_group(*names),
        gang("b").of(2).with_group(*names).broken('min-available "five" is not a number'),
        gang("c").of(2).with_group(*names),
    )
    story.run()
    story.pass_time(1)
    assert sum(story.bound(name) for name in "abc") == 0
    assert any('default/b of its gang group: min-available "five"' in note for note in story.notes())


def test_g16_a_member_that_comes_anew_goes_alone() -> None:
    story = Story({"n4": 4})
    a = gang("a").of(4)
    story.add(a)
    story.run()
    pod = a.pods()[0]
    story.change(remove_pods=[pod.uid])
    story.run()
    story.change(pods=[replace(pod, uid="new")])
    story.run()
    assert story.cluster.pods["new"].node == "n4"


def came_anew(story: Story, pods: list[PodFacts]) -> None:
    """Members are deleted and created anew."""
    story.change(remove_pods=[pod.uid for pod in pods])
    story.run()
    story.change(pods=[replace(pod, uid=f"{pod.uid} anew") for pod in pods])
    story.run()


def test_g17_later_members_wait_until_waiting_and_running_reach_the_minimum() -> None:
    story = Story({"n4": 4})
    a = gang("a").minimum(4).of(4).policy(MatchPolicy.WAITING_AND_RUNNING)
    story.add(a)
    story.run()
    story.change(remove_pods=[pod.uid for pod in a.pods()[:2]])
    story.run()
    came_anew(story, a.pods()[2:3])
    assert story.bound("a") == 1
    assert story.gang("a").phase is Phase.SATISFIED
    story.pass_time(1)
    assert any("gang default/a runs; 1 later pod is pending: 2 of 4 members exist" in note for note in story.notes())
    story.change(pods=[replace(pod, uid=f"{pod.uid} anew") for pod in a.pods()[:2]])
    story.run()
    assert story.bound("a") == 4


def test_g17_one_member_anew_goes_at_once_while_the_others_run() -> None:
    story = Story({"n4": 4})
    a = gang("a").minimum(4).of(4).policy(MatchPolicy.WAITING_AND_RUNNING)
    story.add(a)
    story.run()
    came_anew(story, a.pods()[:1])
    assert story.bound("a") == 4


def test_g18_later_members_wait_until_they_reach_the_minimum_alone() -> None:
    story = Story({"n4": 4})
    a = gang("a").minimum(2).of(4).policy(MatchPolicy.ONLY_WAITING)
    story.add(a)
    story.run()
    assert story.bound("a") == 4
    came_anew(story, a.pods()[:1])
    assert story.bound("a") == 3
    came_anew(story, a.pods()[1:2])
    assert story.bound("a") == 4


def test_g18_a_started_gang_is_still_repaired_pod_by_pod() -> None:
    story = Story({"n1": 2, "n2": 2})
    a = gang("a").of(2).policy(MatchPolicy.ONLY_WAITING)
    story.add(a)
    story.bind_failures[a.pods()[0].uid] = 3
    story.run()
    story.pass_time(10)
    assert story.bound("a") == 2


def test_g19_a_gang_with_bound_pods_and_no_record_counts_as_satisfied() -> None:
    story = Story({"n5": 5}, start=False)
    a = gang("a").of(5)
    pods = [replace(pod, node="n5", phase=PodPhase.RUNNING) if i < 3 else pod for i, pod in enumerate(a.pods())]
    story.change(gangs=[a.gang_facts()], pods=pods)
    story.start()
    story.run()
    assert story.bound("a") == 5


def test_g23_g24_pods_and_definition_in_any_order() -> None:
    story = Story({"n5": 5})
    pods_first, definition_first = gang("a").of(2), gang("b").of(3)
    story.change(pods=pods_first.pods())
    story.change(gangs=[definition_first.gang_facts()])
    story.run()
    assert story.bound("a") + story.bound("b") == 0
    story.change(gangs=[pods_first.gang_facts()])
    for pod in definition_first.pods():
        story.change(pods=[pod])
    story.run()
    assert (story.bound("a"), story.bound("b")) == (2, 3)


def test_g26_a_malformed_gang_waits_until_mended() -> None:
    story = Story({"n5": 5})
    story.add(gang("a").of(5).broken('min-available "five" is not a number'))
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 0
    assert any('"five"' in note for note in story.notes())
    story.change(gangs=[gang("a").of(5).gang_facts()])
    story.run()
    assert story.bound("a") == 5


def test_g30_cycles_count_tries_of_all_members() -> None:
    story = Story({"n3": 3})
    story.add(gang("a").of(4))
    assert story.gang("a").attempts.cycle.number == 1
    story.run()
    assert (story.bound("a"), story.gang("a").attempts.cycle.number, story.gang("a").attempts.cycle.valid) == (
        0,
        2,
        True,
    )


def test_g30_a_cycle_stays_invalid_while_members_are_missing() -> None:
    story = Story({"n3": 3})
    a = gang("a").minimum(4).of(5)
    story.change(gangs=[a.gang_facts()], pods=a.pods()[:4])
    story.run()
    assert (story.gang("a").attempts.cycle.number, story.gang("a").attempts.cycle.valid) == (1, False)
    story.change(nodes=[node("n1", 1)])
    story.run()
    assert story.bound("a") == 4


def test_g31_a_lower_minimum_starts_the_gang() -> None:
    story = Story({"n5": 5})
    a = gang("a").of(3)
    story.change(gangs=[a.minimum(5).gang_facts()], pods=a.pods())
    story.run()
    assert story.bound("a") == 0
    story.change(gangs=[a.minimum(3).gang_facts()])
    story.run()
    assert story.bound("a") == 3


def test_g32_a_higher_minimum_while_solving_is_respected() -> None:
    story = Story({"n5": 5})
    a = gang("a").of(3)
    story.add(a)
    assert isinstance(story.under_way[0], Solve)
    story.change(gangs=[a.minimum(5).gang_facts()])
    story.run()
    assert story.bound("a") == 0
    assert story.gang("a").phase is Phase.GATHERING


def test_g35_nothing_of_a_former_gang_of_that_name_counts() -> None:
    story = Story({"n3": 3})
    old = gang("a").of(3)
    story.add(old)
    story.run()
    assert story.bound("a") == 3
    story.delete(old)
    story.run()
    assert story.etcd == {}
    new = gang("a").of(4).anew("2")
    story.add(new)
    story.run()
    assert story.bound("a") == 0, "the new gang needs four"
    assert story.gang("a").phase is Phase.QUEUED


def test_g35_declared_anew_while_the_old_pods_terminate() -> None:
    story = Story({"n3": 3, "m3": 3})
    old = gang("a").of(3)
    story.add(old)
    story.run()
    story.change(pods=[replace(story.cluster.pods[pod.uid], deleting=True) for pod in old.pods()])
    new = gang("a").of(4).anew("2")
    story.change(gangs=[new.gang_facts()], pods=new.pods())
    story.run()
    assert sum(1 for pod in new.pods() if story.cluster.pods[pod.uid].node) == 0
    story.change(remove_pods=[pod.uid for pod in old.pods()])
    story.pass_time(1)
    assert story.bound("a") == 4


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_g40_two_sizes_fit_in_every_order_of_creation(order: tuple[int, ...]) -> None:
    story = Story({"n8": 8, "n4": 4})
    a = gang("a").of(1, cpu=7).of(1, cpu=3)
    story.change(gangs=[a.gang_facts()])
    for index in order:
        story.change(pods=[a.pods()[index]])
    story.run()
    assert story.bound("a") == 2


def test_g41_the_first_that_fit_start_and_the_others_follow_in_order() -> None:
    story = Story({f"n{i:02}": 8 for i in range(40)}, start=False)
    gangs = [gang(f"g{i:03}").of(8) for i in range(100)]
    story.add(*gangs)
    story.start()
    story.run()
    assert [story.bound(g.name) for g in gangs] == [8] * 40 + [0] * 60
    for index in range(10):
        story.delete(gangs[index])
        story.pass_time(1)
        assert story.bound(gangs[40 + index].name) == 8
    assert sum(story.bound(g.name) for g in gangs) == 8 * 40


def test_g42_a_gang_of_5000_is_one_record_and_one_permit() -> None:
    story = Story({f"n{i:03}": 100 for i in range(50)})
    story.add(gang("a").of(5000))
    story.do(0)
    persist = story.only(Persist)
    assert [len(record.seats) for record in persist.puts] == [5000]
    story.run()
    assert story.bound("a") == 5000


def test_g48_gated_pods_are_not_present() -> None:
    story = Story({"n3": 3})
    a = gang("a").of(3)
    gated = replace(a.pods()[0], gated=True)
    story.change(gangs=[a.gang_facts()], pods=[gated, *a.pods()[1:]])
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 0
    assert any("2 of 3 members exist (1 gated)" in note for note in story.notes())
    story.change(pods=[replace(gated, gated=False)])
    story.run()
    assert story.bound("a") == 3


def test_g49_ended_members_hold_no_room_and_do_not_count() -> None:
    story = Story({"n3": 3})
    a = gang("a").of(3)
    story.add(a)
    story.run()
    story.change(pods=[replace(story.cluster.pods[pod.uid], phase=PodPhase.SUCCEEDED) for pod in a.pods()])
    story.add(gang("b").of(3))
    story.run()
    assert story.bound("b") == 3
    assert story.gang("a").member_count == 0


def test_g50_what_cannot_fit_costs_nothing_while_nothing_happens() -> None:
    story = Story({"n1": 1})
    for index in range(200):
        story.add(gang(f"g{index}").of(2))
    story.run()
    story.pass_time(20)
    solved = len(story.solves)
    story.pass_time(3600)
    assert len(story.solves) == solved
