"""Conditions and events are current, true, and reported again after a restart (I10)."""

from collections import Counter
from statistics import median

import pytest
from msgspec.structs import replace

from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Phase, Solve
from muster.coordinator.core.events import BindResults, SolveFailed
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.report.explain import AmbiguousGang, find
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.report.reports import (
    BETWEEN_PODS_SECONDS,
    CHANGES_APART_SECONDS,
    CHANGES_PER_SECOND,
    CREATION_SECONDS,
    MAX_CHANGES_SAVED,
    SETTLE_SECONDS,
)
from muster.coordinator.core.slices import run_to_end
from muster.gangs.facts import ObjectReference, PodPhase, Problem, Severity

NAMES = ("default/a", "default/b")


def conditions_of(scenario: Scenario, uid: str) -> list[str]:
    """Messages of the conditions of the pod, in order."""
    return [condition.message for report in scenario.reports for condition in report.conditions if condition.uid == uid]


def test_a_returning_warning_is_reported_again() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(3)
    odd = replace(a.gang_facts(), problems=(Problem(Severity.WARNING, 'mode "Strct" is unknown'),))
    for facts in (odd, a.gang_facts(), odd):
        scenario.change(gangs=[facts], pods=a.pods())
    assert sum('"Strct"' in note for note in scenario.notes()) == 2


def create_one_by_one(scenario: Scenario, built: CoreGang, seconds: float) -> None:
    """The controller creates a pod of the gang each time that so many seconds have passed."""
    scenario.change(gangs=[built.gang_facts()])
    for pod in built.pods():
        scenario.change(pods=[pod])
        scenario.pass_time(seconds)


def test_pods_that_are_still_being_created_are_not_reported_as_too_few() -> None:
    scenario = Scenario({"n2": 2})
    built = gang("a").of(5)
    create_one_by_one(scenario, built, BETWEEN_PODS_SECONDS * 0.8)
    scenario.pass_time(SETTLE_SECONDS)
    messages = {message for pod in built.pods() for message in conditions_of(scenario, pod.uid)}
    assert len(messages) == 1 and "2 of 5 members fit" in messages.pop()


def test_only_the_first_condition_of_a_pod_is_called_the_first() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(9)
    scenario.add(a)
    scenario.pass_time(SETTLE_SECONDS)
    scenario.change(nodes=[node("n3", 3)])
    scenario.pass_time(60)
    written = [each for report in scenario.reports for each in report.conditions if each.uid == a.pods()[0].uid]
    assert [each.first for each in written] == [True, False]


def test_later_pods_of_an_elastic_gang_have_conditions_and_one_event() -> None:
    scenario = Scenario({"n": 2})
    built = gang("a").of(6).needing(2)
    create_one_by_one(scenario, built, 2 * BETWEEN_PODS_SECONDS)
    scenario.pass_time(2 * SETTLE_SECONDS)
    later = [pod for pod in built.pods() if pod.uid in scenario.gang("a").pending]
    assert len(later) == 4
    assert all(
        any("more of its pods cannot start" in each for each in conditions_of(scenario, pod.uid)) for pod in later
    )
    assert sum("more of its pods cannot start" in note for note in event_notes(scenario)) == 1


def event_notes(scenario: Scenario) -> list[str]:
    return [event.note for report in scenario.reports for event in report.events]


def test_a_creation_that_takes_long_is_reported() -> None:
    scenario = Scenario({"n2": 2})
    built = gang("a").of(20)
    create_one_by_one(scenario, built, BETWEEN_PODS_SECONDS * 0.8)
    first = conditions_of(scenario, built.pods()[0].uid)[0]
    created = int(CREATION_SECONDS / (BETWEEN_PODS_SECONDS * 0.8)) + 1
    assert f"{created} of 20 members exist" in first


def test_i10_an_ended_pod_is_not_reported_as_pending_after_a_restart() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add_pods(plain_pod("p"))
    scenario.run()
    scenario.change(pods=[replace(scenario.cluster.pods["default/p"], phase=PodPhase.SUCCEEDED)])
    scenario.run()
    scenario.crash()
    scenario.start()
    scenario.run()
    found = scenario.leader.cache.gangs["plain/default/p"]
    assert (found.phase, reason(found)) == (Phase.ENDED, "")


def test_a_gang_bound_without_a_leader_reports_no_duration() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(2)
    scenario.add(a)
    while scenario.gang("a").phase is not Phase.BINDING:
        scenario.do(0)
    scenario.crash()
    scenario.now += 5_000.0
    for pod in a.pods():
        scenario.bind_elsewhere(pod.uid, "n2")
    scenario.start()
    scenario.run()
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert [note for note in scenario.notes() if "pods bound" in note] == ["2 of 2 pods bound"]


def test_i10_an_invalid_pod_of_a_running_gang_is_reported() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").needing(2).of(3)
    bad = replace(a.pods()[2], problem='request "x" is no amount')
    scenario.change(gangs=[a.gang_facts()], pods=[*a.pods()[:2], bad])
    scenario.run()
    scenario.pass_time(2)
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert conditions_of(scenario, bad.uid) == ['request "x" is no amount']
    scenario.change(pods=[replace(bad, problem='request "y" is no amount')])
    scenario.pass_time(2)
    assert conditions_of(scenario, bad.uid)[-1] == 'request "y" is no amount'


def test_i10_a_corrected_pod_reports_its_new_reason() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(3).of(4)
    bad = replace(a.pods()[3], problem='request "x" is no amount')
    scenario.change(gangs=[a.gang_facts()], pods=[*a.pods()[:3], bad])
    scenario.run()
    scenario.pass_time(2)
    assert conditions_of(scenario, bad.uid) == ['request "x" is no amount']
    scenario.change(pods=[a.pods()[3]])
    scenario.run()
    scenario.pass_time(2)
    assert conditions_of(scenario, bad.uid)[-1] == reason(scenario.gang("a"))


def test_i10_a_pod_that_joins_a_pending_gang_gets_the_reason() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(3).of(4)
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:3])
    scenario.run()
    scenario.pass_time(2)
    scenario.change(pods=a.pods()[3:])
    scenario.run()
    scenario.pass_time(2)
    assert conditions_of(scenario, a.pods()[3].uid) == [reason(scenario.gang("a"))]


def test_i10_reasons_are_reported_again_after_a_restart() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(3)
    scenario.add(a)
    scenario.run()
    scenario.pass_time(2)
    scenario.crash()
    scenario.reports.clear()
    scenario.start()
    scenario.run()
    scenario.pass_time(2)
    assert all(conditions_of(scenario, pod.uid) == [reason(scenario.gang("a"))] for pod in a.pods())


def test_i10_unreachable_binding_is_the_reason_of_a_partly_started_gang() -> None:
    scenario = Scenario({"n3": 3})
    a = gang("a").of(3)
    scenario.add(a)
    scenario.do(0)
    scenario.do(0)
    bind = scenario.only(Bind)
    scenario.tell(BindResults((scenario.bind(bind.seats[0]),)))
    scenario.break_call(0)
    assert "2 of its pods are not bound yet: connection refused" in reason(scenario.gang("a"))
    scenario.pass_time(2)
    assert scenario.bound("a") == 3
    assert reason(scenario.gang("a")) == ""


# -- many gangs wait: news at once, changed numbers in turn


def waiting_gangs() -> tuple[Scenario, list[CoreGang]]:
    """45 gangs of 8 to 16, all different, that do not fit; each gets a reason."""
    scenario = Scenario({"n2": 2})
    sizes = [(size, minimum) for size in range(8, 17) for minimum in range(8, size + 1)]
    gangs = [gang(f"g{number:03}").needing(least).of(size) for number, (size, least) in enumerate(sizes)]
    scenario.add(*gangs)
    scenario.pass_time(5)
    assert all(conditions_of(scenario, pod.uid) for each in gangs for pod in each.pods())
    scenario.reports.clear()
    return scenario, gangs


def conditions_written(scenario: Scenario) -> int:
    return sum(len(report.conditions) for report in scenario.reports)


def test_i10_changed_numbers_of_all_gangs_are_reported_in_turn() -> None:
    scenario, gangs = waiting_gangs()
    scenario.change(nodes=[node("n4", 4)])
    scenario.pass_time(1)
    pods = sum(len(each.pods()) for each in gangs)
    assert 0 < conditions_written(scenario) < MAX_CHANGES_SAVED + 16 + CHANGES_PER_SECOND < pods
    scenario.pass_time(pods / CHANGES_PER_SECOND)
    for each in gangs:
        why = reason(scenario.gang(each.name))
        assert "6 of " in why
        assert all(conditions_of(scenario, pod.uid) == [why] for pod in each.pods())
    assert not [event for report in scenario.reports for event in report.events], "the kind of the reasons is the same"


def test_i10_every_gang_is_reported_while_numbers_keep_changing() -> None:
    scenario, gangs = waiting_gangs()
    for round_ in range(120):
        scenario.change(nodes=[node("n4", 2 + round_ % 4)])
        scenario.pass_time(0.5)
    assert conditions_written(scenario) <= MAX_CHANGES_SAVED + 16 + 60 * CHANGES_PER_SECOND
    assert {report.gang for report in scenario.reports} == {each.id for each in gangs}


def test_i10_changed_numbers_of_a_gang_do_not_wait_for_those_of_another_namespace() -> None:
    scenario, gangs = waiting_gangs()
    single = gang("single", namespace="elsewhere").needing(8).of(8)
    scenario.add(single)
    scenario.pass_time(5)
    scenario.reports.clear()
    scenario.change(nodes=[node("n4", 4)])
    scenario.pass_time(1)
    reported = list(dict.fromkeys(report.gang for report in scenario.reports))
    assert reported.index(single.id) <= 3, "one of the head of the queue, one of each namespace"
    assert len(reported) < len(gangs)


def test_numbers_of_a_gang_are_reported_at_intervals() -> None:
    scenario = Scenario({"n2": 2})
    only = gang("only").needing(8).of(8)
    scenario.add(only)
    scenario.pass_time(5)
    scenario.reports.clear()
    for round_ in range(120):
        scenario.change(nodes=[node("n4", 2 + round_ % 4)])
        scenario.pass_time(0.5)
    assert 4 <= len(scenario.reports) <= 1 + 60 / CHANGES_APART_SECONDS
    scenario.pass_time(CHANGES_APART_SECONDS)
    assert conditions_of(scenario, only.pods()[0].uid)[-1] == reason(scenario.gang("only")), "the last one is reported"


def test_the_head_of_the_queue_is_reported_more_often() -> None:
    scenario, gangs = waiting_gangs()
    for round_ in range(120):
        scenario.change(nodes=[node("n4", 2 + round_ % 4)])
        scenario.pass_time(0.5)
    reported = Counter(report.gang for report in scenario.reports)
    assert reported[gangs[0].id] > 2 * median(reported[each.id] for each in gangs)


def test_i10_new_reasons_do_not_wait_for_changed_numbers() -> None:
    scenario, gangs = waiting_gangs()
    late = gang("late").needing(5).of(4)
    scenario.change(nodes=[node("n4", 4)])
    scenario.add(late)
    first, second = gangs[0], gangs[30]
    gone = first.pods()[0].uid
    bad = replace(second.pods()[0], problem='request "x" is no amount')
    scenario.change(remove_pods=[gone], pods=[bad])
    scenario.pass_time(1)
    assert conditions_of(scenario, late.pods()[0].uid) == [reason(scenario.gang("late"))]
    assert conditions_of(scenario, first.pods()[1].uid)[-1] == "gang default/g000 is pending: 7 of 8 members exist"
    assert conditions_of(scenario, bad.uid)[-1] == 'request "x" is no amount'
    noted = {event.note for report in scenario.reports for event in report.events}
    assert {"gang default/g000 is pending: 7 of 8 members exist", 'request "x" is no amount'} <= noted


def test_a_gathering_gang_reports_every_new_lack_but_no_events_for_numbers() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(6).of(6)
    for count in (2, 4):
        scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:count])
        scenario.pass_time(3)
    first, third = a.pods()[0].uid, a.pods()[2].uid
    waits = "gang default/a is pending: {} of 6 members exist"
    assert conditions_of(scenario, first) == [waits.format(2), waits.format(4)]
    assert conditions_of(scenario, third) == [waits.format(4)]
    events = [(event.regarding.uid, event.note) for report in scenario.reports for event in report.events]
    assert (first, waits.format(4)) not in events
    assert (third, waits.format(4)) in events
    blocked = replace(a.gang_facts(), problems=(Problem(Severity.BLOCKING, 'min-available "6x" is no number'),))
    scenario.change(gangs=[blocked])
    scenario.pass_time(2)
    assert conditions_of(scenario, first)[-1] == 'gang default/a is pending: min-available "6x" is no number'
    assert any("6x" in event.note for report in scenario.reports for event in report.events)


def test_a_short_outage_of_placement_does_not_replace_the_reason() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(5)
    assert len(conditions_of(scenario, a.pods()[0].uid)) == 1
    scenario.reports.clear()
    scenario.change(nodes=[node("n3", 1)])
    scenario.tell(SolveFailed(scenario.only(Solve).solve_id, "connection refused"))
    scenario.under_way.clear()
    solver, scenario.solver = scenario.solver, lambda _solve: ()
    scenario.pass_time(5)
    assert "placement" in conditions_of(scenario, a.pods()[0].uid)[-1]
    scenario.solver = solver
    scenario.pass_time(15)
    assert conditions_of(scenario, a.pods()[0].uid)[-1] == reason(scenario.gang("a"))
    assert "members fit" in reason(scenario.gang("a"))
    assert not [event for report in scenario.reports for event in report.events]


def test_i10_g37_bind_errors_are_reported_until_the_pod_is_bound() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(2)
    scenario.add(a)
    failing = a.pods()[0].uid
    scenario.bind_failures[failing] = 5
    seen = []
    for _ in range(200):
        scenario.pass_time(0.1)
        if scenario.bound("a") == 1:
            seen.append(reason(scenario.gang("a")))
    assert scenario.bound("a") == 2
    assert len(seen) > 20
    assert all("500: try again" in why for why in seen), "also while it is placed again"
    assert any("500: try again" in text for text in conditions_of(scenario, failing))
    assert reason(scenario.gang("a")) == ""
    assert not scenario.gang("a").bind.failure


def test_a_started_gang_without_pods_is_not_reported_as_running() -> None:
    scenario = Scenario(nodes={"n": 2})
    built = gang("a").of(2)
    scenario.add(built)
    scenario.run()
    scenario.change(remove_pods=[pod.uid for pod in built.pods()])
    scenario.add_pods(*gang("a").of(4).pods())
    scenario.pass_time(5)
    assert scenario.bound("a") == 2
    assert "gang default/a runs; 2 more of its pods cannot start" in reason(scenario.gang("a"))
    running = [pod for pod in scenario.cluster.pods.values() if pod.node]
    scenario.change(pods=[replace(pod, phase=PodPhase.SUCCEEDED) for pod in running], remove_nodes=["n"])
    scenario.pass_time(5)
    reported = reason(scenario.gang("a"))
    assert reported.startswith(
        "gang default/a started earlier and has no running pods; 2 more of its pods cannot start"
    )


@pytest.mark.parametrize(
    "name", ["training", "ml/training", "QueueJob.training", "kube-arbitrator/ml/QueueJob.training"]
)
def test_a_gang_named_after_a_controller_is_found_by_name(name: str) -> None:
    ids = ("kube-arbitrator/ml/QueueJob.training", "koordinator/ml/v1.training")
    gangs = {id_: Gang(id_, Group(id_)) for id_ in ids}
    assert run_to_end(find(gangs, name)).id == ids[0]
    named_alike = "sakkara/ml/training"
    gangs[named_alike] = Gang(named_alike, Group(named_alike))
    assert run_to_end(find(gangs, "training")).id == named_alike, "whose own name it is goes first"


def test_an_ambiguous_controller_name_lists_the_gangs() -> None:
    ids = ("kube-arbitrator/ml/QueueJob.training", "kube-arbitrator/ml/Job.training")
    with pytest.raises(AmbiguousGang, match=r"QueueJob\.training"):
        run_to_end(find({id_: Gang(id_, Group(id_)) for id_ in ids}, "training"))


def test_a_definition_broken_after_the_start_is_reported() -> None:
    scenario = Scenario(nodes={"n": 2})
    built = gang("a").of(2)
    defined = ObjectReference("v1", "ConfigMap", "default", "a", "uid-1")
    scenario.change(gangs=[replace(built.gang_facts(), definition=defined)])
    scenario.add_pods(*built.pods())
    scenario.run()
    spoiled = built.broken('its size is "abc"').gang_facts()
    scenario.change(gangs=[replace(spoiled, definition=defined)])
    scenario.pass_time(5)
    assert scenario.bound("a") == 2
    assert scenario.notes().count('its size is "abc"; pods that have started keep running') == 1


def test_a_definition_deleted_after_the_start_is_reported_on_a_pod() -> None:
    scenario = Scenario(nodes={"n": 2})
    built = gang("a").of(2)
    defined = ObjectReference("v1", "PodGroup", "default", "a", "uid-1")
    scenario.change(gangs=[replace(built.gang_facts(), definition=defined)])
    scenario.add_pods(*built.pods())
    scenario.run()
    scenario.change(gangs=[built.broken("PodGroup a does not exist yet: create it").gang_facts()])
    scenario.pass_time(5)
    assert scenario.bound("a") == 2
    note = "PodGroup a does not exist yet: create it; pods that have started keep running"
    assert scenario.notes().count(note) == 1
