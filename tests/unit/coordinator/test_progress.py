"""How far a gang is, for those that tell it: stages in their order, times, places, and who it was preempted for."""

import pytest
from msgspec.structs import replace

from builders.core.actions import end, full, until, until_planned
from builders.core.objects import gang, plain_pod, racks
from builders.core.world import Story
from muster.coordinator.core.effects import Persist
from muster.coordinator.core.events import RecordState
from muster.dialects.progress import Stage
from muster.gangs.facts import ObjectReference, PodFacts, PodPhase

G, R, A, P, B = Stage.GATHERING, Stage.READY, Stage.ASSIGNED, Stage.PERMITTED, Stage.BOUND


def anew(pods: list[PodFacts]) -> list[PodFacts]:
    """What a controller makes when these are gone."""
    return [replace(pod, uid=f"{pod.uid}/anew", node="", phase=PodPhase.PENDING, deleting=False) for pod in pods]


def test_stages_come_in_their_order() -> None:
    story = Story(nodes={"n": 4})
    built = gang("a").of(4)
    story.change(gangs=[built.gang_facts()])
    story.run()
    assert story.stages["a"] == [G]
    assert story.progress("a").began == 0
    story.now += 5
    story.change(pods=built.pods())
    story.run()
    assert story.stages["a"] == [G, R, A, P, B]
    told = story.progress("a")
    assert (told.began, told.ended) == (story.unix, story.unix)
    assert [each.bound for each in told.members] == [True] * 4
    assert {each.attempts for each in told.members} == {1}


def test_a_gang_that_waits_for_room_is_ready_since_its_members_are_there() -> None:
    story = full(gang("b").of(4), nodes={"n": 4})
    story.add(gang("a").of(4))
    began = story.unix
    story.pass_time(30)
    told = story.progress("a")
    assert (told.stage, told.began, told.ended) == (R, began, 0)
    assert "cannot start" in told.reason
    story.delete(gang("b").of(4))
    story.pass_time(30)
    told = story.progress("a")
    assert (told.stage, told.began, told.reason) == (B, began, "")
    assert told.members[0].attempts > 1


def test_members_have_their_places_ranks_and_domains_once_they_are_assigned() -> None:
    story = Story(nodes={"a1": 1, "a2": 1, "b1": 2})
    story.change(trees=[racks(ra="a1 a2", rb="b1")])
    story.add(gang("a").of(4))
    until(story, Persist)
    told = story.progress("a")
    assert (told.stage, told.root, told.levels) == (A, "racks", ("rack", "node"))
    assert sorted((each.domains, each.node) for each in told.members) == [
        (("ra",), "a1"),
        (("ra",), "a2"),
        (("rb",), "b1"),
        (("rb",), "b1"),
    ]
    assert sorted(each.rank for each in told.members if each.rank is not None) == [0, 1, 2, 3]
    assert not any(each.bound for each in told.members)


def test_what_was_taken_back_before_it_was_permitted_has_no_places() -> None:
    story = Story(nodes={"n": 4})
    story.add(gang("a").of(4))
    until(story, Persist)
    story.change(remove_nodes=["n"])
    story.run()
    told = story.progress("a")
    assert told.stage is R
    assert {(each.node, each.rank) for each in told.members} == {("", None)}


def test_the_time_that_placement_took_is_summed_over_tries() -> None:
    story = Story(nodes={"n": 2})
    story.add(gang("a").of(3))
    story.now += 2
    story.run()
    assert story.progress("a").solver_seconds == pytest.approx(2)
    story.add(gang("other").of(1))
    story.run()
    story.change(nodes=[replace(story.cluster.nodes["n"], allocatable=(("cpu", 8000), ("pods", 110)))])
    story.now += 3
    story.pass_time(10)
    told = story.progress("a")
    assert told.stage is B
    assert told.solver_seconds >= 2


def preempted(*, graceful: bool = False) -> Story:
    """A gang "v" that is evicted whole for "p"."""
    story = full(gang("v").of(4), nodes={"n": 4})
    story.graceful = graceful
    story.add(gang("p").of(4).priority(10))
    story.run_effects()
    return story


def test_a_preempted_gang_says_for_whom_until_its_pods_are_made_anew() -> None:
    story = preempted()
    end(story)
    assert story.bound("p") == 4
    told = story.progress("v")
    assert (told.stage, told.preemptor, told.members) == (Stage.PREEMPTED, "test/default/p", ())
    assert (told.began, told.ended) == (0, 0)
    story.add_pods(*anew(gang("v").of(4).pods()))
    story.run()
    told = story.progress("v")
    assert (told.stage, told.preemptor) == (R, "")
    assert told.began == story.unix
    story.delete(gang("p").of(4))
    story.pass_time(30)
    assert story.bound("v") == 4, "it starts when there is room"
    assert story.stages["v"][-6:] == [B, Stage.PREEMPTED, R, A, P, B]


def test_pods_that_are_made_anew_while_the_old_ones_end_wait_for_them() -> None:
    story = preempted(graceful=True)
    story.add_pods(*anew(gang("v").of(4).pods()))
    story.run_effects()
    assert story.bound("v") + story.bound("p") <= 4
    story.finish_deletions()
    story.pass_time(5)
    assert (story.bound("v"), story.bound("p")) == (0, 4)
    assert story.progress("v").stage is R
    story.delete(gang("p").of(4))
    story.pass_time(30)
    assert story.bound("v") == 4


def test_who_preempted_it_is_known_after_a_crash() -> None:
    story = preempted()
    end(story)
    story.crash()
    story.start()
    story.run()
    assert (story.progress("v").stage, story.progress("v").preemptor) == (Stage.PREEMPTED, "test/default/p")
    assert story.stages["v"][-1] is Stage.PREEMPTED
    story.add_pods(*anew(gang("v").of(4).pods()))
    story.run()
    assert story.progress("v").preemptor == ""
    assert "test/default/v" not in story.etcd, "nothing is left to be remembered of it"


def test_a_gang_that_is_spared_after_all_was_not_preempted() -> None:
    story = full(gang("v").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10))
    until_planned(story)
    assert story.gang("v").eviction.preempted_by == "test/default/p"
    story.delete(gang("p").of(4))
    story.run()
    assert story.bound("v") == 4
    assert (story.progress("v").stage, story.gang("v").eviction.preempted_by) == (B, "")
    assert Stage.PREEMPTED not in story.stages["v"]


def test_members_that_were_spared_do_not_make_it_preempted() -> None:
    story = full(gang("v").of(6).minimum(4), nodes={"n": 6})
    story.add(gang("p").of(2).priority(10))
    end(story)
    assert story.progress("v").stage is B
    assert Stage.PREEMPTED not in story.stages["v"]


def test_after_a_crash_a_running_gang_is_told_once_without_times() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    story.stages.clear()
    story.crash()
    story.start()
    story.run()
    assert story.stages["a"] == [B]
    told = story.progress("a")
    assert (told.began, told.ended) == (0, 0)
    assert {each.attempts for each in told.members} == {1}, "tries are in the record"


def test_after_a_crash_a_gang_that_waits_began_with_its_youngest_member() -> None:
    story = Story(nodes={"n": 2})
    story.add(gang("a").of(3).created(1_600_000_000))
    story.run()
    story.crash()
    story.start()
    story.run()
    assert story.progress("a").began == 1_600_000_000


def test_tries_of_a_permit_are_the_same_after_a_crash() -> None:
    story = full(gang("b").of(4), nodes={"n": 4})
    story.add(gang("a").of(4))
    story.run()
    story.delete(gang("b").of(4))
    while (record := story.etcd.get("test/default/a")) is None or record.state is not RecordState.BINDING:
        if story.under_way:
            story.do(0)
        else:
            story.now += 1
            story.wake()
    tries = record.tries
    assert tries >= 2
    story.crash()
    story.start()
    story.run()
    assert {each.attempts for each in story.progress("a").members} == {tries}


def test_while_a_member_that_lost_its_node_is_placed_again_the_gang_is_permitted() -> None:
    story = Story(nodes={"n": 4})
    story.add(gang("a").of(4))
    story.bind_failures["default/a-0@1"] = 3
    story.pass_time(60)
    assert story.stages["a"] == [R, A, P, B]
    assert story.bound("a") == 4


def test_a_gang_that_waited_too_long_says_so() -> None:
    story = Story(nodes={"n": 2})
    story.add(gang("a").of(4).non_strict(10))
    story.pass_time(60)
    assert story.progress("a").stage is Stage.TIMED_OUT


def test_another_object_that_defines_it_is_told_too() -> None:
    story = full(gang("a").of(2), nodes={"n": 4})
    story.stages.clear()
    facts = story.cluster.gangs["test/default/a"]
    story.change(gangs=[replace(facts, definition=ObjectReference("v1", "ConfigMap", "default", "a", "uid-2"))])
    story.run()
    assert story.stages["a"] == [B]


def test_a_plain_pod_has_no_stages() -> None:
    story = Story(nodes={"n": 4})
    story.add_pods(plain_pod("a"))
    story.run()
    assert not story.stages


def second_run(story: Story) -> list[PodFacts]:
    """The pods of "a" are gone after they were bound, and half of those of its next run are there."""
    built = gang("a").of(4).starting_anew()
    story.add(built)
    story.run()
    story.change(remove_pods=[pod.uid for pod in built.pods()])
    story.pass_time(60)
    return anew(built.pods())


def test_i1_pods_that_come_when_none_is_left_are_a_new_start() -> None:
    story = Story(nodes={"n": 4})
    pods = second_run(story)
    assert story.progress("a").stage is B, "how it ended stands until it begins again"
    story.add_pods(*pods[:2])
    story.pass_time(5)
    assert (story.bound("a"), story.progress("a").stage) == (0, G)
    story.add_pods(*pods[2:])
    began = story.unix
    story.run()
    told = story.progress("a")
    assert (story.bound("a"), told.stage, told.began, told.ended) == (4, B, began, began)
    assert {each.attempts for each in told.members} == {1}


@pytest.mark.parametrize("when", ["before its pods are there", "when half of them are there", "between"])
def test_i1_a_new_start_is_one_after_a_crash_too(when: str) -> None:
    story = Story(nodes={"n": 4})
    pods = second_run(story)
    if when == "when half of them are there":
        story.add_pods(*pods[:2])
        story.run()
    story.crash()
    if when == "between":
        story.add_pods(*pods[:2])
    story.start()
    story.run()
    if when == "before its pods are there":
        story.add_pods(*pods[:2])
    story.pass_time(5)
    assert (story.bound("a"), story.progress("a").stage) == (0, G)
    story.add_pods(*pods[2:])
    story.run()
    assert story.bound("a") == 4


def test_a_pod_in_place_of_one_that_failed_joins_those_that_run_or_have_succeeded() -> None:
    story = Story(nodes={"n": 4})
    built = gang("a").of(2).starting_anew()
    story.add(built)
    story.run()
    first, second = (story.cluster.pods[pod.uid] for pod in built.pods())
    story.change(pods=[replace(first, phase=PodPhase.SUCCEEDED), replace(second, phase=PodPhase.FAILED)])
    story.run()
    story.add_pods(*anew([second]))
    story.run()
    assert story.bound("a") == 1, "it need not wait for one that has done its work"


def test_a_gang_that_started_for_good_takes_later_pods_one_by_one() -> None:
    story = Story(nodes={"n": 4})
    built = gang("a").of(4)
    story.add(built)
    story.run()
    story.change(remove_pods=[pod.uid for pod in built.pods()])
    story.run()
    story.add_pods(*anew(built.pods())[:2])
    story.run()
    assert story.bound("a") == 2
