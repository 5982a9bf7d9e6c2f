"""Reasons name why a controller cannot create the members that a gang lacks."""

import pytest
from msgspec.structs import replace

from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.report.reports import CHANGES_PER_SECOND, MAX_CHANGES_SAVED

QUOTA = "Job a: exceeded quota: team, requested: cpu=1, used: cpu={}, limited: cpu=8"
RAISE = "; raise the ResourceQuota, or lower what its pods request"


def refused(scenario: Scenario, *gangs: CoreGang, failure: str = "Job a: no") -> None:
    """cluster-state finds why no more pods of these gangs are created; "": it is not so any more."""
    scenario.change(gangs=[replace(each.gang_facts(), creation_failure=failure) for each in gangs])


def incomplete(*gangs: CoreGang) -> Scenario:
    """Gangs that are reported to lack members."""
    scenario = Scenario({"n": 100})
    scenario.add(*gangs)
    scenario.pass_time(20)
    scenario.reports.clear()
    return scenario


def conditions(scenario: Scenario) -> list[str]:
    return [condition.message for report in scenario.reports for condition in report.conditions]


@pytest.mark.parametrize(("failure", "remedy"), [(QUOTA.format(8), RAISE), ("Job a: violates PodSecurity", "")])
def test_conditions_and_events_say_why_no_more_pods_are_created(failure: str, remedy: str) -> None:
    a = gang("a").needing(4).of(3)
    scenario = incomplete(a)
    refused(scenario, a, failure=failure)
    scenario.pass_time(1)
    why = f"gang default/a is pending: 3 of 4 members exist; its controller cannot create more pods: {failure}{remedy}"
    assert reason(scenario.gang("a")) == why
    assert conditions(scenario) == [why] * 3
    assert why in scenario.notes()
    refused(scenario, a, failure="")
    scenario.pass_time(5)
    assert conditions(scenario)[3:] == ["gang default/a is pending: 3 of 4 members exist"] * 3


def test_i10_numbers_of_a_quota_are_reported_at_the_rate_of_changed_numbers() -> None:
    gangs = [gang(f"g{number}").needing(9).of(8) for number in range(60)]
    scenario = incomplete(*gangs)
    refused(scenario, *gangs, failure=QUOTA.format(8))
    scenario.pass_time(30)
    scenario.reports.clear()
    rounds, seconds = 20, 2
    for used in range(rounds):
        refused(scenario, *gangs, failure=QUOTA.format(used))
        scenario.pass_time(seconds)
    assert 0 < len(conditions(scenario)) <= MAX_CHANGES_SAVED + 16 + rounds * seconds * CHANGES_PER_SECOND
    assert not [event for report in scenario.reports for event in report.events]


@pytest.mark.parametrize("namespace", ["default", "other"])
def test_another_namespace_is_not_told_why(namespace: str) -> None:
    names = ("default/a", f"{namespace}/b")
    a = gang("a").needing(4).of(3).with_group(*names)
    b = gang("b", namespace=namespace).of(2).with_group(*names)
    scenario = incomplete(a, b)
    refused(scenario, a, failure=QUOTA.format(8))
    scenario.pass_time(5)
    told = {reason(scenario.gang("a")), reason(scenario.gang("b", namespace)), *conditions(scenario), *scenario.notes()}
    assert any("3 of 4 members exist; its controller cannot create more pods" in each for each in told)
    assert any("team" in each for each in told) == (namespace == "default")
    if namespace == "other":
        assert any("events of its namespace name the reason" in each for each in told)


def test_a_gang_that_starts_is_not_said_to_lack_pods() -> None:
    a = gang("a").needing(4).of(3)
    scenario = incomplete(a)
    refused(scenario, a)
    scenario.add(gang("a").needing(4).of(4))
    scenario.run()
    assert scenario.bound("a") == 4
    assert reason(scenario.gang("a")) == ""


def test_a_failure_is_no_reason_to_try_a_gang_again() -> None:
    a = gang("a").of(101)
    scenario = incomplete(a)
    refused(scenario, a)
    assert scenario.leader.cache.touched.get(scenario.gang("a")) in (None, False)
    before = scenario.gang("a").group.queueing
    scenario.run()
    assert scenario.gang("a").group.queueing == before
    assert reason(scenario.gang("a")).startswith("gang default/a cannot start")
