"""What the reason and `explain` say of stuck gangs is true, complete, and the same on pods and on the command line."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.report.explain import untried, would_help
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import OTHER_SCHEDULER, PodFacts, PodPhase, Problem, Severity


def with_pods(built: CoreGang, change: Callable[[int, PodFacts], PodFacts]) -> Scenario:
    """A gang of which each pod is changed, on a node with place for all."""
    scenario = Scenario({"n": 8})
    pods = [change(number, pod) for number, pod in enumerate(built.pods())]
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    scenario.pass_time(5)
    return scenario


def said(scenario: Scenario, name: str = "a") -> tuple[str, list[str]]:
    """The reason and what would help."""
    return reason(scenario.gang(name)), would_help(scenario.gang(name))


def test_gated_pods_are_said_to_exist_and_no_pods_are_asked_for() -> None:
    scenario = with_pods(gang("a").of(3), lambda _, pod: replace(pod, gated=True))
    assert said(scenario) == (
        "gang default/a is pending: 0 of 3 members can be scheduled (3 gated)",
        ["remove the scheduling gates of 3 pods, or have the controller remove them that set them"],
    )


def test_pods_whose_claims_are_not_bound_are_named_and_no_pods_are_asked_for() -> None:
    problem = 'its claim "data" is not bound'
    scenario = with_pods(gang("a").of(4), lambda number, pod: replace(pod, problem=problem if number else ""))
    why, helps = said(scenario)
    assert why == (
        f"gang default/a is pending: 1 of 4 members can be scheduled (pod a-1: {problem}; pod a-2: {problem}; "
        "1 more pod with a problem of its own)"
    )
    assert helps[0] == f"resolve the problem of pod a-1: {problem}"
    assert not [each for each in helps if "minimum" in each or "more pods," in each]


def test_members_that_are_absent_besides_gated_ones_are_counted_apart() -> None:
    built = gang("a").needing(5).of(3)
    scenario = with_pods(built, lambda number, pod: replace(pod, gated=number == 0))
    assert said(scenario)[1] == [
        "remove the scheduling gates of 1 pod, or have the controller remove them that set them",
        "2 more pods",
    ]


def test_pods_with_another_scheduler_name_are_named_in_the_reason() -> None:
    scenario = Scenario({"n": 8})
    built = gang("a").needing(3).of(1)
    message = 'pods with the marks of this gang have another schedulerName and are no members: "a-1" ("default")'
    foreign = Problem(Severity.WARNING, message, OTHER_SCHEDULER)
    scenario.change(gangs=[replace(built.gang_facts(), problems=(foreign,))], pods=built.pods())
    scenario.pass_time(5)
    why, helps = said(scenario)
    assert why == f"gang default/a is pending: 1 of 3 members exist ({message})"
    assert helps[0].startswith("2 more pods with a schedulerName of Muster")


def test_a_minimum_of_at_most_0_is_never_proposed() -> None:
    scenario = Scenario({"n": 8})
    scenario.change(gangs=[gang("a").needing(3).of(0).gang_facts()])
    scenario.pass_time(5)
    assert said(scenario)[1] == ["3 more pods"]


def test_a_member_that_is_being_deleted_replaces_the_reason() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(6)
    scenario.add(built)
    scenario.pass_time(5)
    scenario.change(pods=[replace(built.pods()[0], deleting=True)])
    scenario.pass_time(5)
    why, helps = said(scenario)
    assert why == "gang default/a is pending: 5 of 6 members exist (1 being deleted)"
    assert helps == [
        "1 pod created again when those being deleted are gone, or a minimum of at most 5",
        "besides, what it lacked at its last attempt: 4 of 6 members fit",
    ]


def test_ended_members_have_to_be_created_again() -> None:
    phase = {0: PodPhase.FAILED, 1: PodPhase.FAILED}
    scenario = with_pods(gang("a").of(3), lambda number, pod: replace(pod, phase=phase.get(number, pod.phase)))
    why, helps = said(scenario)
    assert "1 of 3 members exist (2 ended)" in why
    assert helps == ["2 more pods, or a minimum of at most 1"]


def test_a_timed_out_gang_says_what_it_lacked() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(6).non_strict(20))
    scenario.pass_time(60)
    why, helps = said(scenario)
    assert why.endswith("; at its last attempt 4 of 6 members fit")
    assert helps[-1] == "besides, what it lacked at its last attempt: 4 of 6 members fit"


def test_a_partner_that_does_not_exist_is_said_what_to_declare() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(2).with_group("default/a", "default/b"))
    scenario.pass_time(5)
    assert said(scenario)[0].endswith(
        'gang default/b of its gang group does not exist; it must declare the group ["default/a", "default/b"]'
    )


PREVENTED = {
    "a-disruption-budget": (
        gang("low").of(4).with_budget("default/b"),
        gang("a").of(2).with_priority(10),
        "disruption budget default/b does not allow to evict gang default/low",
    ),
    "preemption-policy": (
        gang("low").of(4),
        gang("a").of(2).with_priority(10).never_preempting(),
        "nothing is preempted for it, not even gang default/low of lower priority: its policy is Never",
    ),
    "equal-priority": (
        gang("low").of(4).with_priority(10),
        gang("a").of(2).with_priority(10),
        "nothing is preempted for it: no gang of lower priority runs; gang default/low has 10, too",
    ),
}


@pytest.mark.parametrize("case", PREVENTED)
def test_what_prevents_preemption_is_in_the_reason_and_on_the_pods(case: str) -> None:
    victim, preemptor, why = PREVENTED[case]
    scenario = Scenario({"n": 4})
    scenario.set_budget("default/b", 0)
    scenario.add(victim)
    scenario.run()
    scenario.add(preemptor)
    scenario.pass_time(30)
    assert reason(scenario.gang("a")).endswith(why)
    assert any(note.endswith(why) for note in scenario.notes())


def test_a_budget_that_protects_some_victims_is_named_if_the_others_do_not_suffice() -> None:
    scenario = Scenario({"n": 4})
    scenario.set_budget("default/b", 0)
    scenario.add(gang("low").of(3).with_budget("default/b"), gang("free").of(1))
    scenario.run()
    scenario.add(gang("a").of(2).with_priority(10))
    scenario.pass_time(30)
    assert reason(scenario.gang("a")).endswith(
        "preemption would not help: no set of lower-priority pods frees enough; disruption budget default/b does not "
        "allow to evict gang default/low"
    )


def test_a_budget_that_allows_evictions_again_lets_the_gang_start() -> None:
    scenario = Scenario({"n": 4})
    scenario.set_budget("default/b", 0)
    scenario.add(gang("low").of(4).with_budget("default/b"))
    scenario.run()
    scenario.add(gang("a").of(2).with_priority(10))
    scenario.pass_time(30)
    scenario.set_budget("default/b", 4)
    scenario.pass_time(60)
    assert scenario.bound("a") == 2


def test_a_gang_of_the_default_priority_says_nothing_about_preemption() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("low").of(4))
    scenario.run()
    scenario.add(gang("a").of(2))
    scenario.pass_time(30)
    assert "preempt" not in reason(scenario.gang("a"))


def test_a_gang_that_was_not_answered_yet_has_a_reason_at_once() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(2))
    assert reason(scenario.gang("a")) == ""
    assert untried(scenario.gang("a"), 1) == "gang default/a was not answered by placement yet, which is solving it"
    scenario.add(gang("b").of(2))
    assert untried(scenario.gang("b"), 2) == (
        "gang default/b was not tried yet; 1 gang group is ahead of it in the queue"
    )
    scenario.run()
    assert untried(scenario.gang("a"), 0) == ""
