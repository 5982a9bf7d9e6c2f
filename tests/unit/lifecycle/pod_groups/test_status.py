"""Counts and phases in the status of PodGroups."""

from typing import Any

import pytest
from msgspec.structs import replace

from builders.lifecycle.members import members as members_of
from muster.lifecycle.pod_groups.members import Member
from muster.lifecycle.pod_groups.status import (
    Counts,
    coscheduling_status,
    counts_of,
    kube_batch_status,
    runs_below_minimum,
)

NOW = "2026-01-31T12:00:00Z"


def members(pods: str) -> list[Member]:
    """Members as in the builder; the first one has another owner than the rest."""
    found = members_of(pods, "coscheduling/ml/train", owners=("other",))
    return [replace(each, owners=("work",)) for each in found[:1]] + found[1:]


def phase(pods: str, before: str = "", minimum: int = 3) -> str:
    status = coscheduling_status(minimum, members(pods), {"phase": before} if before else {}, NOW)
    return str(status["phase"])


def test_pods_are_counted_by_phase_unless_they_are_being_deleted() -> None:
    assert counts_of(members("pbrsfPBRSF")) == Counts(pods=5, pending=2, scheduled=4, running=1, succeeded=1, failed=1)


def test_kube_batch_counts_scheduled_pods_as_admitted() -> None:
    assert kube_batch_status(counts_of(members("ppbrrsfR"))) == {
        "admitted": 5,
        "running": 2,
        "succeeded": 1,
        "failed": 1,
    }


@pytest.mark.parametrize(
    ("pods", "before", "expected"),
    [
        ("", "", "Pending"),
        ("pp", "", "Pending"),
        ("pp", "Running", "Pending"),
        ("ppp", "", "PreScheduling"),
        ("ppp", "Running", "PreScheduling"),
        ("bpp", "PreScheduling", "Scheduling"),
        ("rbp", "Scheduling", "Scheduling"),
        ("bbb", "Scheduling", "Scheduled"),
        ("rrb", "Scheduled", "Scheduled"),
        ("bbbp", "PreScheduling", "Scheduled"),
        ("rrr", "Scheduled", "Running"),
        ("rrr", "", "Running"),
        ("rrs", "Running", "Running"),
        ("rrp", "Running", "Unknown"),
        ("rr", "Running", "Unknown"),
        ("rrR", "Running", "Unknown"),
        ("rrp", "Unknown", "Unknown"),
        ("rrr", "Unknown", "Running"),
        ("rrf", "Running", "Failed"),
        ("rrrf", "Running", "Failed"),
        ("rff", "Unknown", "Failed"),
        ("pff", "Running", "Scheduling"),
        ("fff", "Failed", "Failed"),
        ("", "Failed", "Failed"),
        ("p", "Failed", "Pending"),
        ("rrr", "Failed", "Running"),
        ("sss", "Running", "Finished"),
        ("sssr", "Running", "Finished"),
        ("sssf", "Running", "Finished"),
        ("", "Finished", "Finished"),
        ("s", "Finished", "Finished"),
        ("pp", "Finished", "Finished"),
        ("ppp", "Finished", "PreScheduling"),
    ],
)
def test_phases_of_coscheduling(pods: str, before: str, expected: str) -> None:
    assert phase(pods, before) == expected


def test_a_group_with_an_invalid_minimum_is_pending() -> None:
    assert phase("rrr", minimum=0) == "Pending"


def test_a_finished_group_keeps_its_counts_when_its_pods_are_deleted() -> None:
    before = coscheduling_status(3, members("sss"), {}, NOW)
    assert coscheduling_status(3, [], before, "later") == before
    assert before["succeeded"] == 3


@pytest.mark.parametrize("before", ["Pending", "Finished", "Failed"])
def test_occupant_is_set_each_time_that_the_group_becomes_complete(before: str) -> None:
    status = coscheduling_status(3, members("ppp"), {"phase": before, "occupiedBy": "ml/else"}, NOW)
    assert (status["phase"], status["occupiedBy"]) == ("PreScheduling", "ml/work")


def test_occupant_stays_while_pods_have_no_owner() -> None:
    plain = [replace(each, owners=()) for each in members("ppp")]
    status = coscheduling_status(3, plain, {"phase": "Pending", "occupiedBy": "ml/else"}, NOW)
    assert status["occupiedBy"] == "ml/else"


def test_the_group_keeps_its_occupant_and_start_time() -> None:
    first: dict[str, Any] = dict(coscheduling_status(3, members("ppp"), {}, NOW))
    assert (first["occupiedBy"], first["scheduleStartTime"]) == ("ml/work", NOW)
    later = coscheduling_status(3, members("rrr"), {**first, "occupiedBy": "ml/else"}, "later")
    assert (later["occupiedBy"], later["scheduleStartTime"]) == ("ml/else", NOW)
    assert "scheduleStartTime" not in coscheduling_status(3, members("pp"), {}, NOW)


@pytest.mark.parametrize(
    ("pods", "below"),
    [("", False), ("pp", False), ("ff", False), ("rr", True), ("rrf", True), ("rrp", False), ("rrs", False)],
)
def test_a_group_runs_below_its_minimum_if_some_run_and_not_enough_are_left(pods: str, below: bool) -> None:
    assert runs_below_minimum(3, counts_of(members(pods))) is below
