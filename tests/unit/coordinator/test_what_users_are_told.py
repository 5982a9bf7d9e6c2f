"""What users are told on their objects: current, true, and again after a restart (I10)."""

from collections import Counter
from statistics import median

import pytest
from msgspec.structs import replace

from builders.core.objects import GangBuilder, gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Phase, Solve
from muster.coordinator.core.events import BindResults, SolveFailed
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.report.explain import AmbiguousGang, find
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.report.reports import CHANGES_PER_SECOND, MAX_CHANGES_SAVED
from muster.gangs.facts import ObjectReference, PodPhase, Problem, Severity

NAMES = ("default/a", "default/b")


def conditions_of(story: Story, uid: str) -> list[str]:
    """What was written on the pod, in order."""
    return [said.message for report in story.reports for said in report.conditions if said.uid == uid]


def test_a_warning_is_told_again_when_it_comes_back() -> None:
    story = Story({"n2": 2})
    a = gang("a").of(3)
    odd = replace(a.gang_facts(), problems=(Problem(Severity.WARNING, 'mode "Strct" is unknown'),))
    for facts in (odd, a.gang_facts(), odd):
        story.change(gangs=[facts], pods=a.pods())
    assert sum('"Strct"' in note for note in story.notes()) == 2


def test_i10_a_pod_that_ended_is_not_said_to_wait_after_a_restart() -> None:
    story = Story({"n4": 4})
    story.add_pods(plain_pod("p"))
    story.run()
    story.change(pods=[replace(story.cluster.pods["default/p"], phase=PodPhase.SUCCEEDED)])
    story.run()
    story.crash()
    story.start()
    story.run()
    found = story.leader.cache.gangs["plain/default/p"]
    assert (found.phase, reason(found)) == (Phase.SATISFIED, "")


def test_a_gang_whose_binds_nobody_led_to_see_is_not_said_to_have_taken_any_time() -> None:
    story = Story({"n2": 2})
    a = gang("a").of(2)
    story.add(a)
    while story.gang("a").phase is not Phase.BINDING:
        story.do(0)
    story.crash()
    story.now += 5_000.0
    for pod in a.pods():
        story.bind_elsewhere(pod.uid, "n2")
    story.start()
    story.run()
    assert story.gang("a").phase is Phase.SATISFIED
    assert [note for note in story.notes() if "pods bound" in note] == ["2 of 2 pods bound"]


def test_i10_an_invalid_pod_of_a_running_gang_is_told() -> None:
    story = Story({"n4": 4})
    a = gang("a").minimum(2).of(3)
    bad = replace(a.pods()[2], problem='request "x" is no amount')
    story.change(gangs=[a.gang_facts()], pods=[*a.pods()[:2], bad])
    story.run()
    story.pass_time(2)
    assert story.gang("a").phase is Phase.SATISFIED
    assert conditions_of(story, bad.uid) == ['request "x" is no amount']
    story.change(pods=[replace(bad, problem='request "y" is no amount')])
    story.pass_time(2)
    assert conditions_of(story, bad.uid)[-1] == 'request "y" is no amount'


def test_i10_a_pod_that_was_mended_is_told_what_it_waits_for_now() -> None:
    story = Story({"n2": 2})
    a = gang("a").minimum(3).of(4)
    bad = replace(a.pods()[3], problem='request "x" is no amount')
    story.change(gangs=[a.gang_facts()], pods=[*a.pods()[:3], bad])
    story.run()
    story.pass_time(2)
    assert conditions_of(story, bad.uid) == ['request "x" is no amount']
    story.change(pods=[a.pods()[3]])
    story.run()
    story.pass_time(2)
    assert conditions_of(story, bad.uid)[-1] == reason(story.gang("a"))


def test_i10_a_pod_that_joins_a_waiting_gang_is_told_too() -> None:
    story = Story({"n2": 2})
    a = gang("a").minimum(3).of(4)
    story.change(gangs=[a.gang_facts()], pods=a.pods()[:3])
    story.run()
    story.pass_time(2)
    story.change(pods=a.pods()[3:])
    story.run()
    story.pass_time(2)
    assert conditions_of(story, a.pods()[3].uid) == [reason(story.gang("a"))]


def test_i10_reasons_are_told_again_after_a_restart() -> None:
    story = Story({"n2": 2})
    a = gang("a").of(3)
    story.add(a)
    story.run()
    story.pass_time(2)
    story.crash()
    story.reports.clear()
    story.start()
    story.run()
    story.pass_time(2)
    assert all(conditions_of(story, pod.uid) == [reason(story.gang("a"))] for pod in a.pods())


def test_i10_binding_that_cannot_be_reached_is_told_of_a_gang_half_started() -> None:
    story = Story({"n3": 3})
    a = gang("a").of(3)
    story.add(a)
    story.do(0)
    story.do(0)
    bind = story.only(Bind)
    story.tell(BindResults((story.bind(bind.seats[0]),)))
    story.break_call(0)
    assert "2 of its pods are not bound yet: connection refused" in reason(story.gang("a"))
    story.pass_time(2)
    assert story.bound("a") == 3
    assert reason(story.gang("a")) == ""


# -- many gangs wait: news at once, changed numbers in turn


def waiting_gangs() -> tuple[Story, list[GangBuilder]]:
    """45 gangs of 8 to 16, none like another, that do not fit; each is told so."""
    story = Story({"n2": 2})
    sizes = [(size, minimum) for size in range(8, 17) for minimum in range(8, size + 1)]
    gangs = [gang(f"g{number:03}").minimum(least).of(size) for number, (size, least) in enumerate(sizes)]
    story.add(*gangs)
    story.pass_time(5)
    assert all(conditions_of(story, pod.uid) for each in gangs for pod in each.pods())
    story.reports.clear()
    return story, gangs


def conditions_written(story: Story) -> int:
    return sum(len(report.conditions) for report in story.reports)


def test_i10_changed_numbers_of_all_gangs_are_told_in_turn_and_all_in_the_end() -> None:
    story, gangs = waiting_gangs()
    story.change(nodes=[node("n4", 4)])
    story.pass_time(1)
    pods = sum(len(each.pods()) for each in gangs)
    assert 0 < conditions_written(story) < MAX_CHANGES_SAVED + 16 + CHANGES_PER_SECOND < pods
    story.pass_time(pods / CHANGES_PER_SECOND)
    for each in gangs:
        why = reason(story.gang(each.name))
        assert "6 of " in why
        assert all(conditions_of(story, pod.uid) == [why] for pod in each.pods())
    assert not [event for report in story.reports for event in report.events], "the kind of the reasons is the same"


def test_i10_every_gang_is_told_though_numbers_never_stop_changing() -> None:
    story, gangs = waiting_gangs()
    for round_ in range(40):
        story.change(nodes=[node("n4", 2 + round_ % 4)])
        story.pass_time(0.5)
    assert conditions_written(story) <= MAX_CHANGES_SAVED + 16 + 20 * CHANGES_PER_SECOND
    assert {report.gang for report in story.reports} == {each.id for each in gangs}


def test_the_first_in_the_queue_is_told_more_often_than_others() -> None:
    story, gangs = waiting_gangs()
    for round_ in range(40):
        story.change(nodes=[node("n4", 2 + round_ % 4)])
        story.pass_time(0.5)
    told = Counter(report.gang for report in story.reports)
    assert told[gangs[0].id] > 2 * median(told[each.id] for each in gangs)


def test_i10_news_do_not_wait_for_changed_numbers() -> None:
    story, gangs = waiting_gangs()
    late = gang("late").minimum(5).of(4)
    story.change(nodes=[node("n4", 4)])
    story.add(late)
    first, second = gangs[0], gangs[30]
    gone = first.pods()[0].uid
    bad = replace(second.pods()[0], problem='request "x" is no amount')
    story.change(remove_pods=[gone], pods=[bad])
    story.pass_time(1)
    assert conditions_of(story, late.pods()[0].uid) == [reason(story.gang("late"))]
    assert conditions_of(story, first.pods()[1].uid)[-1] == "gang default/g000 is pending: 7 of 8 members exist"
    assert conditions_of(story, bad.uid)[-1] == 'request "x" is no amount'
    noted = {event.note for report in story.reports for event in report.events}
    assert {"gang default/g000 is pending: 7 of 8 members exist", 'request "x" is no amount'} <= noted


def test_who_gathers_is_told_of_every_new_lack_and_without_events_of_numbers() -> None:
    story = Story({"n2": 2})
    a = gang("a").minimum(6).of(6)
    for count in (2, 4):
        story.change(gangs=[a.gang_facts()], pods=a.pods()[:count])
        story.pass_time(3)
    first, third = a.pods()[0].uid, a.pods()[2].uid
    waits = "gang default/a is pending: {} of 6 members exist"
    assert conditions_of(story, first) == [waits.format(2), waits.format(4)]
    assert conditions_of(story, third) == [waits.format(4)]
    events = [(event.regarding.uid, event.note) for report in story.reports for event in report.events]
    assert (first, waits.format(4)) not in events
    assert (third, waits.format(4)) in events
    blocked = replace(a.gang_facts(), problems=(Problem(Severity.BLOCKING, 'min-available "6x" is no number'),))
    story.change(gangs=[blocked])
    story.pass_time(2)
    assert conditions_of(story, first)[-1] == 'gang default/a is pending: min-available "6x" is no number'
    assert any("6x" in event.note for report in story.reports for event in report.events)


def test_that_placement_is_away_for_a_moment_is_no_news_to_who_knows_that_there_is_no_room() -> None:
    story = Story({"n2": 2})
    a = gang("a").of(4)
    story.add(a)
    story.pass_time(5)
    assert len(conditions_of(story, a.pods()[0].uid)) == 1
    story.reports.clear()
    story.change(nodes=[node("n3", 1)])
    story.tell(SolveFailed(story.only(Solve).solve_id, "connection refused"))
    story.under_way.clear()
    solver, story.solver = story.solver, lambda _solve: ()
    story.pass_time(5)
    assert "placement" in conditions_of(story, a.pods()[0].uid)[-1]
    story.solver = solver
    story.pass_time(15)
    assert conditions_of(story, a.pods()[0].uid)[-1] == reason(story.gang("a"))
    assert "members fit" in reason(story.gang("a"))
    assert not [event for report in story.reports for event in report.events]


def test_i10_g37_what_the_api_server_answers_to_a_bind_is_told_until_the_pod_is_bound() -> None:
    story = Story({"n2": 2})
    a = gang("a").of(2)
    story.add(a)
    failing = a.pods()[0].uid
    story.bind_failures[failing] = 5
    seen = []
    for _ in range(200):
        story.pass_time(0.1)
        if story.bound("a") == 1:
            seen.append(reason(story.gang("a")))
    assert story.bound("a") == 2
    assert len(seen) > 20
    assert all("500: try again" in why for why in seen), "also while it is placed again"
    assert any("500: try again" in text for text in conditions_of(story, failing))
    assert reason(story.gang("a")) == ""
    assert not story.gang("a").bind.failure


def test_of_a_gang_that_started_and_of_which_nothing_is_left_is_not_said_that_it_runs() -> None:
    story = Story(nodes={"n": 2})
    built = gang("a").of(2)
    story.add(built)
    story.run()
    story.change(remove_pods=[pod.uid for pod in built.pods()])
    story.add_pods(*gang("a").of(4).pods())
    story.pass_time(5)
    assert story.bound("a") == 2
    assert "gang default/a runs; 2 more of its pods cannot start" in reason(story.gang("a"))
    story.change(remove_pods=[pod.uid for pod in story.cluster.pods.values() if pod.node], remove_nodes=["n"])
    story.pass_time(5)
    told = reason(story.gang("a"))
    assert told.startswith("gang default/a started earlier and has no running pods; 2 more of its pods cannot start")


@pytest.mark.parametrize(
    "name", ["training", "ml/training", "QueueJob.training", "kube-arbitrator/ml/QueueJob.training"]
)
def test_a_gang_that_is_named_after_a_controller_is_found_by_its_name(name: str) -> None:
    ids = ("kube-arbitrator/ml/QueueJob.training", "koordinator/ml/v1.training")
    gangs = {id_: Gang(id_, Group(id_)) for id_ in ids}
    assert find(gangs, name).id == ids[0]
    named_alike = "sakkara/ml/training"
    gangs[named_alike] = Gang(named_alike, Group(named_alike))
    assert find(gangs, "training").id == named_alike, "whose own name it is goes first"


def test_a_name_of_several_controllers_is_met_with_their_gangs() -> None:
    ids = ("kube-arbitrator/ml/QueueJob.training", "kube-arbitrator/ml/Job.training")
    with pytest.raises(AmbiguousGang, match=r"QueueJob\.training"):
        find({id_: Gang(id_, Group(id_)) for id_ in ids}, "training")


def test_a_definition_that_is_spoiled_after_the_start_says_so() -> None:
    story = Story(nodes={"n": 2})
    built = gang("a").of(2)
    defined = ObjectReference("v1", "ConfigMap", "default", "a", "uid-1")
    story.change(gangs=[replace(built.gang_facts(), definition=defined)])
    story.add_pods(*built.pods())
    story.run()
    spoiled = built.broken('its size is "abc"').gang_facts()
    story.change(gangs=[replace(spoiled, definition=defined)])
    story.pass_time(5)
    assert story.bound("a") == 2
    assert story.notes().count('its size is "abc"; pods that have started keep running') == 1
    story.change(gangs=[spoiled])
    story.pass_time(5)
    assert story.notes().count('its size is "abc"; pods that have started keep running') == 1, "who deletes it knows"
