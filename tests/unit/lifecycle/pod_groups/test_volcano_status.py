"""Phase, counts and conditions of Volcano's PodGroups, and which groups without pods are Muster's."""

from typing import Any

import pytest

from builders.lifecycle.members import members as members_of
from muster.dialects.definitions import Owner
from muster.lifecycle.pod_groups.members import Member
from muster.lifecycle.pod_groups.volcano_jobs import is_volcano_job
from muster.lifecycle.pod_groups.volcano_status import TaskCounts, is_short, task_counts, volcano_status, was_written

NOW = "2026-01-31T12:00:00Z"
READY = "tasks in gang are ready to be scheduled"


def members(pods: str) -> list[Member]:
    return members_of(pods, "kube-batch/ml/train", without_node="pf")


def status(pods: str, before: Any = None, minimum: int = 3, *, short: bool = False) -> dict[str, Any]:
    return volcano_status(minimum, task_counts(members(pods)), before or {}, NOW, short=short)


def phase(pods: str, before: str = "", minimum: int = 3, *, short: bool = False) -> str:
    return str(status(pods, {"phase": before}, minimum, short=short).get("phase", before))


def test_pods_count_once_they_have_a_node_or_ended() -> None:
    assert task_counts(members("pbrsfRP")) == TaskCounts(pods=5, scheduled=5, running=1, succeeded=1, failed=1)


@pytest.mark.parametrize(
    ("pods", "before", "minimum", "expected"),
    [
        ("", "", 3, "Inqueue"),
        ("", "Pending", 3, "Inqueue"),
        ("", "", 0, "Inqueue"),
        ("pp", "Pending", 3, "Inqueue"),
        ("bbp", "Inqueue", 3, "Inqueue"),
        ("brp", "Inqueue", 3, "Inqueue"),  # not Unknown: the last pod is just being bound
        ("bbb", "Inqueue", 3, "Running"),
        ("rrrp", "Running", 3, "Running"),
        ("rrf", "Running", 3, "Running"),
        ("rrR", "Running", 3, "Running"),  # the pod on its way out still has its node
        ("rrp", "Running", 3, "Running"),  # its replacement has a grace period
        ("rr", "Unknown", 3, "Unknown"),
        ("rrb", "Unknown", 3, "Running"),
        ("ssf", "Running", 3, "Completed"),
        ("s", "Running", 0, "Completed"),
        ("ssr", "Running", 3, "Running"),
        ("", "Completed", 3, "Completed"),
        ("", "Running", 3, "Inqueue"),
        ("ppp", "Completed", 3, "Inqueue"),
    ],
)
def test_the_phase(pods: str, before: str, minimum: int, expected: str) -> None:
    assert phase(pods, before, minimum) == expected


@pytest.mark.parametrize(
    ("pods", "before", "expected"),
    [("rrp", "Running", "Unknown"), ("rr", "Unknown", "Unknown"), ("ppp", "Inqueue", "Inqueue"), ("pp", "", "Inqueue")],
)
def test_the_phase_after_the_grace_period(pods: str, before: str, expected: str) -> None:
    assert phase(pods, before, short=True) == expected


@pytest.mark.parametrize(("pods", "short"), [("", False), ("pp", True), ("bbp", True), ("bbb", False), ("P", False)])
def test_a_group_with_too_few_scheduled_pods_is_short(pods: str, short: bool) -> None:
    assert is_short(3, task_counts(members(pods)), {}) is short


def test_a_scheduled_group_without_pods_is_short_until_its_condition_says_so() -> None:
    before = status("rrr")
    assert is_short(3, task_counts([]), before)
    gone = {**before, **volcano_status(3, task_counts([]), before, NOW, short=True)}
    [condition] = gone["conditions"]
    assert (gone["phase"], condition["type"]) == ("Inqueue", "Unschedulable")
    assert condition["message"] == "0 of 3 pods exist; the events of the pods say why"
    assert not is_short(3, task_counts([]), gone)


def test_a_completed_group_without_pods_is_not_short() -> None:
    before = {**status("rrr"), "phase": "Completed"}
    assert not is_short(3, task_counts([]), before)


def test_only_changed_fields_are_written() -> None:
    assert status("") == {"phase": "Inqueue"}
    running = {"phase": "Running", "running": 3} | {"conditions": [condition("Scheduled", READY, "")]}
    assert status("rrr") == running
    assert status("rrr", running) == {}
    assert status("rrs", running) == {"running": 2, "succeeded": 1}


def condition(type_: str, reason: str, message: str, now: str = NOW) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "transitionID": "muster",
        "lastTransitionTime": now,
    }


@pytest.mark.parametrize(
    ("pods", "reason", "words"),
    [("pp", "NotEnoughTasks", "2 of 3 pods exist"), ("bpp", "NotEnoughResources", "1 of 3 pods have a node")],
)
def test_a_group_that_stays_short_says_so(pods: str, reason: str, words: str) -> None:
    assert "conditions" not in status(pods)
    written = status(pods, short=True)["conditions"]
    assert written == [condition("Unschedulable", reason, f"{words}; the events of the pods say why")]
    assert was_written({"conditions": written})


def test_the_conditions_of_others_stay_and_there_is_one_of_volcanos() -> None:
    other = {"type": "Other", "status": "True"}
    before = {"phase": "Inqueue", "conditions": [other, condition("Unschedulable", "NotEnoughTasks", "x")]}
    assert status("rrr", before)["conditions"] == [other, condition("Scheduled", READY, "")]


@pytest.mark.parametrize("conditions", [None, "what?", ["what?"], [{}], [{"transitionID": "1f"}]])
def test_conditions_of_others_do_not_make_a_group_ours(conditions: Any) -> None:
    assert not was_written({"conditions": conditions})


def test_only_jobs_of_volcano_wait_for_the_phase() -> None:
    def owner(api_version: str, kind: str) -> Owner:
        return Owner(api_version, kind, "lm", "uid")

    assert is_volcano_job(owner("batch.volcano.sh/v1alpha1", "Job"))
    assert not is_volcano_job(owner("batch/v1", "Job"))
    assert not is_volcano_job(owner("batch.volcano.sh/v1alpha1", "CronJob"))
    assert not is_volcano_job(None)
