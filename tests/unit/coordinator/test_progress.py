"""Progress for dialects: stages in order, times, nodes and preemptor."""

import pytest
from msgspec.structs import replace

from builders.core.actions import end, full, until, until_planned
from builders.core.objects import plain_pod, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Persist
from muster.coordinator.core.events import RecordState
from muster.dialects.progress import Stage
from muster.gangs.facts import ObjectReference, PodFacts, PodPhase

G, R, A, P, B = Stage.GATHERING, Stage.READY, Stage.ASSIGNED, Stage.PERMITTED, Stage.BOUND


def anew(pods: list[PodFacts]) -> list[PodFacts]:
    """Pods that a controller creates when the earlier ones are deleted."""
    return [replace(pod, uid=f"{pod.uid}/anew", node="", phase=PodPhase.PENDING, deleting=False) for pod in pods]


def test_stages_come_in_their_order() -> None:
    scenario = Scenario(nodes={"n": 4})
    built = gang("a").of(4)
    scenario.change(gangs=[built.gang_facts()])
    scenario.run()
    assert scenario.stages["a"] == [G]
    assert scenario.progress("a").began == 0
    scenario.now += 5
    scenario.change(pods=built.pods())
    scenario.run()
    assert scenario.stages["a"] == [G, R, A, P, B]
    progress = scenario.progress("a")
    assert (progress.began, progress.ended) == (scenario.unix, scenario.unix)
    assert [each.bound for each in progress.members] == [True] * 4
    assert {each.attempts for each in progress.members} == {1}


def test_an_unschedulable_gang_is_ready_since_its_members_exist() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4})
    scenario.add(gang("a").of(4))
    began = scenario.unix
    scenario.pass_time(30)
    progress = scenario.progress("a")
    assert (progress.stage, progress.began, progress.ended) == (R, began, 0)
    assert "cannot start" in progress.reason
    scenario.delete(gang("b").of(4))
    scenario.pass_time(30)
    progress = scenario.progress("a")
    assert (progress.stage, progress.began, progress.reason) == (B, began, "")
    assert progress.members[0].attempts > 1


def test_members_have_their_places_ranks_and_domains_once_they_are_assigned() -> None:
    scenario = Scenario(nodes={"a1": 1, "a2": 1, "b1": 2})
    scenario.change(trees=[racks(ra="a1 a2", rb="b1")])
    scenario.add(gang("a").of(4))
    until(scenario, Persist)
    progress = scenario.progress("a")
    assert (progress.stage, progress.root, progress.levels) == (A, "racks", ("rack", "node"))
    assert sorted((each.domains, each.node) for each in progress.members) == [
        (("ra",), "a1"),
        (("ra",), "a2"),
        (("rb",), "b1"),
        (("rb",), "b1"),
    ]
    assert sorted(each.rank for each in progress.members if each.rank is not None) == [0, 1, 2, 3]
    assert not any(each.bound for each in progress.members)


def test_a_gang_revoked_before_its_permit_has_no_nodes() -> None:
    scenario = Scenario(nodes={"n": 4})
    scenario.add(gang("a").of(4))
    until(scenario, Persist)
    scenario.change(remove_nodes=["n"])
    scenario.run()
    progress = scenario.progress("a")
    assert progress.stage is R
    assert {(each.node, each.rank) for each in progress.members} == {("", None)}


def test_the_time_that_placement_took_is_summed_over_tries() -> None:
    scenario = Scenario(nodes={"n": 2})
    scenario.add(gang("a").of(3))
    scenario.now += 2
    scenario.run()
    assert scenario.progress("a").solver_seconds == pytest.approx(2)
    scenario.add(gang("other").of(1))
    scenario.run()
    scenario.change(nodes=[replace(scenario.cluster.nodes["n"], allocatable=(("cpu", 8000), ("pods", 110)))])
    scenario.now += 3
    scenario.pass_time(10)
    progress = scenario.progress("a")
    assert progress.stage is B
    assert progress.solver_seconds >= 2


def preempted(*, graceful: bool = False) -> Scenario:
    """A gang "v" that is evicted whole for "p"."""
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.graceful = graceful
    scenario.add(gang("p").of(4).with_priority(10))
    scenario.run_effects()
    return scenario


def test_a_preempted_gang_reports_its_preemptor_until_its_pods_are_recreated() -> None:
    scenario = preempted()
    end(scenario)
    assert scenario.bound("p") == 4
    progress = scenario.progress("v")
    assert (progress.stage, progress.preemptor, progress.members) == (Stage.PREEMPTED, "test/default/p", ())
    assert (progress.began, progress.ended) == (0, 0)
    scenario.add_pods(*anew(gang("v").of(4).pods()))
    scenario.run()
    progress = scenario.progress("v")
    assert (progress.stage, progress.preemptor) == (R, "")
    assert progress.began == scenario.unix
    scenario.delete(gang("p").of(4))
    scenario.pass_time(30)
    assert scenario.bound("v") == 4, "it starts when there is room"
    assert scenario.stages["v"][-6:] == [B, Stage.PREEMPTED, R, A, P, B]


def test_recreated_pods_wait_until_the_old_ones_have_ended() -> None:
    scenario = preempted(graceful=True)
    scenario.add_pods(*anew(gang("v").of(4).pods()))
    scenario.run_effects()
    assert scenario.bound("v") + scenario.bound("p") <= 4
    scenario.finish_deletions()
    scenario.pass_time(5)
    assert (scenario.bound("v"), scenario.bound("p")) == (0, 4)
    assert scenario.progress("v").stage is R
    scenario.delete(gang("p").of(4))
    scenario.pass_time(30)
    assert scenario.bound("v") == 4


def test_the_preemptor_is_known_after_a_crash() -> None:
    scenario = preempted()
    end(scenario)
    scenario.crash()
    scenario.start()
    scenario.run()
    assert (scenario.progress("v").stage, scenario.progress("v").preemptor) == (Stage.PREEMPTED, "test/default/p")
    assert scenario.stages["v"][-1] is Stage.PREEMPTED
    scenario.add_pods(*anew(gang("v").of(4).pods()))
    scenario.run()
    assert scenario.progress("v").preemptor == ""
    assert "test/default/v" not in scenario.etcd, "nothing is left to be remembered of it"


def test_a_gang_that_is_spared_after_all_was_not_preempted() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    until_planned(scenario)
    assert scenario.gang("v").eviction.preempted_by == "test/default/p"
    scenario.delete(gang("p").of(4))
    scenario.run()
    assert scenario.bound("v") == 4
    assert (scenario.progress("v").stage, scenario.gang("v").eviction.preempted_by) == (B, "")
    assert Stage.PREEMPTED not in scenario.stages["v"]


def test_members_that_were_spared_do_not_make_it_preempted() -> None:
    scenario = full(gang("v").of(6).needing(4), nodes={"n": 6})
    scenario.add(gang("p").of(2).with_priority(10))
    end(scenario)
    assert scenario.progress("v").stage is B
    assert Stage.PREEMPTED not in scenario.stages["v"]


def test_after_a_crash_a_running_gang_is_reported_once_without_times() -> None:
    scenario = full(gang("a").of(4), nodes={"n": 4})
    scenario.stages.clear()
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.stages["a"] == [B]
    progress = scenario.progress("a")
    assert (progress.began, progress.ended) == (0, 0)
    assert {each.attempts for each in progress.members} == {1}, "tries are in the record"


def test_after_a_crash_a_gang_that_waits_began_with_its_youngest_member() -> None:
    scenario = Scenario(nodes={"n": 2})
    scenario.add(gang("a").of(3).created(1_600_000_000))
    scenario.run()
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.progress("a").began == 1_600_000_000


def test_tries_of_a_permit_are_the_same_after_a_crash() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4})
    scenario.add(gang("a").of(4))
    scenario.run()
    scenario.delete(gang("b").of(4))
    while (record := scenario.etcd.get("test/default/a")) is None or record.state is not RecordState.BINDING:
        if scenario.under_way:
            scenario.do(0)
        else:
            scenario.now += 1
            scenario.wake()
    tries = record.tries
    assert tries >= 2
    scenario.crash()
    scenario.start()
    scenario.run()
    assert {each.attempts for each in scenario.progress("a").members} == {tries}


def test_while_a_member_that_lost_its_node_is_placed_again_the_gang_is_permitted() -> None:
    scenario = Scenario(nodes={"n": 4})
    scenario.add(gang("a").of(4))
    scenario.bind_failures["default/a-0@1"] = 3
    scenario.pass_time(60)
    assert scenario.stages["a"] == [R, A, P, B]
    assert scenario.bound("a") == 4


def test_a_gang_that_waited_too_long_says_so() -> None:
    scenario = Scenario(nodes={"n": 2})
    scenario.add(gang("a").of(4).non_strict(10))
    scenario.pass_time(60)
    assert scenario.progress("a").stage is Stage.TIMED_OUT


def test_another_definition_object_is_reported_too() -> None:
    scenario = full(gang("a").of(2), nodes={"n": 4})
    scenario.stages.clear()
    facts = scenario.cluster.gangs["test/default/a"]
    scenario.change(gangs=[replace(facts, definition=ObjectReference("v1", "ConfigMap", "default", "a", "uid-2"))])
    scenario.run()
    assert scenario.stages["a"] == [B]


def test_a_plain_pod_has_no_stages() -> None:
    scenario = Scenario(nodes={"n": 4})
    scenario.add_pods(plain_pod("a"))
    scenario.run()
    assert not scenario.stages


def second_run(scenario: Scenario) -> list[PodFacts]:
    """The pods of "a" are gone after they were bound, and half of those of its next run are there."""
    built = gang("a").of(4)
    scenario.add(built)
    scenario.run()
    scenario.change(remove_pods=[pod.uid for pod in built.pods()])
    scenario.pass_time(60)
    return anew(built.pods())


def test_i1_pods_that_come_when_none_is_left_are_a_new_start() -> None:
    scenario = Scenario(nodes={"n": 4})
    pods = second_run(scenario)
    assert scenario.progress("a").stage is Stage.ENDED
    scenario.add_pods(*pods[:2])
    scenario.pass_time(5)
    assert (scenario.bound("a"), scenario.progress("a").stage) == (0, G)
    scenario.add_pods(*pods[2:])
    began = scenario.unix
    scenario.run()
    progress = scenario.progress("a")
    assert (scenario.bound("a"), progress.stage, progress.began, progress.ended) == (4, B, began, began)
    assert {each.attempts for each in progress.members} == {1}


@pytest.mark.parametrize("when", ["before its pods are there", "when half of them are there", "between"])
def test_i1_a_new_start_is_one_after_a_crash_too(when: str) -> None:
    scenario = Scenario(nodes={"n": 4})
    pods = second_run(scenario)
    if when == "when half of them are there":
        scenario.add_pods(*pods[:2])
        scenario.run()
    scenario.crash()
    if when == "between":
        scenario.add_pods(*pods[:2])
    scenario.start()
    scenario.run()
    if when == "before its pods are there":
        scenario.add_pods(*pods[:2])
    scenario.pass_time(5)
    assert (scenario.bound("a"), scenario.progress("a").stage) == (0, G)
    scenario.add_pods(*pods[2:])
    scenario.run()
    assert scenario.bound("a") == 4


def test_a_pod_in_place_of_one_that_failed_joins_those_that_run_or_have_succeeded() -> None:
    scenario = Scenario(nodes={"n": 4})
    built = gang("a").of(2)
    scenario.add(built)
    scenario.run()
    first, second = (scenario.cluster.pods[pod.uid] for pod in built.pods())
    scenario.change(pods=[replace(first, phase=PodPhase.SUCCEEDED), replace(second, phase=PodPhase.FAILED)])
    scenario.run()
    scenario.add_pods(*anew([second]))
    scenario.run()
    assert scenario.bound("a") == 1, "it need not wait for one that has done its work"


def test_i1_pods_in_place_of_all_others_wait_for_each_other() -> None:
    scenario = Scenario(nodes={"n": 4})
    built = gang("a").of(4)
    scenario.add(built)
    scenario.run()
    scenario.change(remove_pods=[pod.uid for pod in built.pods()])
    scenario.run()
    scenario.add_pods(*anew(built.pods())[:2])
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.add_pods(*anew(built.pods())[2:])
    scenario.run()
    assert scenario.bound("a") == 4
