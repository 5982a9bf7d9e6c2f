"""When a PodGroup is restarted as a whole."""

from typing import Any

import pytest

from muster.lifecycle.pod_groups.restart_plan import BELOW_SINCE, Plan, Step, plan
from muster.lifecycle.pod_groups.status import Counts

NOON = 1769860800.0
AT_NOON = {BELOW_SINCE: "2026-01-31T12:00:00Z"}
RAN = {"running": 3, "succeeded": 0}


def planned(
    running: int,
    status: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    after_seconds: float | None = 60.0,
    now: float = NOON,
    *,
    succeeded: int = 0,
    minimum: int = 3,
) -> Plan:
    counts = Counts(pods=running, running=running, succeeded=succeeded)
    return plan(minimum, counts, status or {}, annotations or {}, after_seconds, now)


def test_a_group_that_has_only_begun_to_start_is_not_broken() -> None:
    assert planned(2, {"running": 1, "succeeded": 0}) == Plan(Step.NOTHING)
    assert planned(0) == Plan(Step.NOTHING)


@pytest.mark.parametrize("status", [RAN, {"running": 2, "succeeded": 1}])
def test_one_that_had_enough_and_has_too_few_is_remembered(status: dict[str, Any]) -> None:
    assert planned(2, status) == Plan(Step.MARK_BELOW_MINIMUM)


def test_succeeded_pods_count() -> None:
    assert planned(1, RAN, succeeded=2) == Plan(Step.NOTHING)


def test_it_has_until_its_timeout_to_recover() -> None:
    assert planned(2, {"running": 2}, AT_NOON, now=NOON + 20) == Plan(Step.WAIT, 40.0)
    assert planned(3, {"running": 2}, AT_NOON, now=NOON + 20) == Plan(Step.CLEAR_MARK)
    assert planned(2, {"running": 2}, AT_NOON, now=NOON + 60) == Plan(Step.RESTART)


@pytest.mark.parametrize("running", [0, 2, 3])
def test_without_a_timeout_it_is_restarted_even_if_pods_were_replaced(running: int) -> None:
    assert planned(running, {"running": 2}, AT_NOON, after_seconds=0.0) == Plan(Step.RESTART)


def test_removing_the_policy_cancels_the_restart() -> None:
    assert planned(2, RAN, after_seconds=None) == Plan(Step.NOTHING)
    assert planned(2, RAN, AT_NOON, after_seconds=None) == Plan(Step.CLEAR_MARK)


def test_a_group_with_an_invalid_minimum_is_never_restarted() -> None:
    assert planned(0, RAN, minimum=0) == Plan(Step.NOTHING)


@pytest.mark.parametrize("since", ["yesterday", "", "2027-01-31T12:00:00Z"])
def test_an_impossible_time_counts_as_now(since: str) -> None:
    assert planned(2, {}, {BELOW_SINCE: since}) == Plan(Step.WAIT, 60.0)


@pytest.mark.parametrize("value", ["3", True, None, [3]])
def test_malformed_counts_are_ignored(value: Any) -> None:
    assert planned(2, {"running": value}) == Plan(Step.NOTHING)
