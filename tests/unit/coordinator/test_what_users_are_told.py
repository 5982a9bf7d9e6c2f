"""What users are told on their objects: current, true, and again after a restart (I10)."""

from msgspec.structs import replace

from builders.story import Story
from builders.story_cast import gang, plain_pod
from muster.coordinator.core.events import (
    Bind,
    BindResults,
    Phase,
)
from muster.coordinator.core.reasons import reason
from muster.gangs.facts import PodPhase, Problem, Severity

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
    found = story.leader.knowledge.gangs["plain/default/p"]
    assert (found.phase, reason(found)) == (Phase.SATISFIED, "")


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
