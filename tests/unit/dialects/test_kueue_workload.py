"""Workloads of Kueue as gangs: the annotation that Kueue writes, and the one that asks for a gang."""

from typing import Any

import pytest

from builders.gangs.declarations import marked, problems_of
from muster.dialects.definitions import Definition
from muster.dialects.kueue_workload import ASKED_FOR, DEFINITION, WORKLOAD
from muster.dialects.marks import Membership
from muster.dialects.registry import defined_by_pods, defined_gang, gang_marks, membership_of, read_gang
from muster.gangs.facts import GangFacts, MatchPolicy, ObjectReference, Problem, Severity

GANG = "kueue-workload/a/job-x"
ASKS = {ASKED_FOR: "true", WORKLOAD: "job-x"}
COSCHEDULING = "scheduling.x-k8s.io/pod-group"


def workload(*counts: Any, active: bool = True, version: str = "v1beta2") -> Definition:
    """A Workload with these numbers of admitted pods by pod set; without any it is not admitted."""
    assignments = [{"name": f"set-{index}", "count": count} for index, count in enumerate(counts)]
    status = {"admission": {"clusterQueue": "research", "podSetAssignments": assignments}} if counts else {}
    api_version = f"kueue.x-k8s.io/{version}"
    return Definition(api_version, "Workload", "a", "job-x", "uid-of-x", 50, {}, {}, {"active": active}, status)


def gang_of(definition: Definition | None) -> GangFacts:
    return read_gang(GANG, definition, [marked(annotations=ASKS)])


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_all_admitted_pods_start_together(version: str) -> None:
    definition = workload(1, 7, version=version)
    assert defined_gang(definition) == GANG
    assert defined_by_pods(definition)
    assert gang_of(definition) == GangFacts(
        id=GANG,
        dialect="kueue-workload",
        namespace="a",
        name="job-x",
        incarnation="uid-of-x",
        minimum=8,
        total=8,
        created_seconds=50,
        definition=ObjectReference(f"kueue.x-k8s.io/{version}", "Workload", "a", "job-x", "uid-of-x"),
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
        terms=("pods admitted by Kueue: 8",),
    )


@pytest.mark.parametrize(
    ("labels", "annotations", "gang_id"),
    [
        ({}, ASKS, GANG),
        ({}, {WORKLOAD: "job-x"}, None),
        ({}, {**ASKS, ASKED_FOR: "false"}, None),
        ({}, {**ASKS, "kueue.x-k8s.io/pod-suspending-parent": "statefulset"}, None),
        ({}, {**ASKS, "kueue.x-k8s.io/pod-group-fast-admission": "true"}, None),
        ({"kueue.x-k8s.io/pod-group-name": "g"}, ASKS, "kueue/a/g"),
        ({COSCHEDULING: "g"}, ASKS, "coscheduling/a/g"),
    ],
)
def test_only_pods_that_ask_for_it_are_members(
    labels: dict[str, str], annotations: dict[str, str], gang_id: str | None
) -> None:
    membership = membership_of(gang_marks("a", labels, annotations))
    assert membership == (None if gang_id is None else Membership(gang_id))


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({**ASKS, ASKED_FOR: "yes"}, f'annotation {ASKED_FOR} is "yes": set it to "true" or "false"'),
        ({ASKED_FOR: "true"}, f"{ASKED_FOR} without {WORKLOAD}, which Kueue writes when it admits the pod's workload"),
        ({**ASKS, WORKLOAD: "a/b"}, f'annotation {WORKLOAD} is "a/b"'),
    ],
)
def test_a_pod_that_asks_in_vain_waits_and_says_why(annotations: dict[str, str], problem: str) -> None:
    membership = membership_of(gang_marks("a", {}, annotations))
    assert membership is not None
    assert not membership.gang_id
    assert membership.problem.startswith(problem)


def test_marks_of_kueue_are_no_mistake_on_pods_of_another_dialect() -> None:
    gang = read_gang("coscheduling/a/g", None, [marked(labels={COSCHEDULING: "g"}, annotations=ASKS)])
    assert not [message for _, message in problems_of(gang) if "kueue" in message]


@pytest.mark.parametrize(
    ("definition", "reason", "message"),
    [
        (None, "GangNotDeclared", 'Workload "a/job-x" does not exist, or is not read'),
        (workload(), "WaitingForQuota", 'Kueue has not admitted Workload "a/job-x"'),
        (workload(active=False), "WaitingForQuota", 'Kueue has deactivated Workload "a/job-x"'),
        (workload(0), "", 'Kueue has admitted Workload "a/job-x" with 0 pods'),
        (workload("7", True, -1, None), "", 'Kueue has admitted Workload "a/job-x" with 0 pods'),
        (workload(2**31), "", 'Kueue has admitted Workload "a/job-x" with 2147483648 pods'),
    ],
)
def test_a_workload_without_admitted_pods_waits(definition: Definition | None, reason: str, message: str) -> None:
    gang = gang_of(definition)
    [problem] = gang.problems
    assert problem == Problem(Severity.BLOCKING, problem.message, reason)
    assert problem.message.startswith(message)
    assert gang.minimum == 0


@pytest.mark.parametrize("status", [{"admission": "yes"}, {"admission": {"podSetAssignments": {"count": 3}}}])
def test_a_status_of_another_shape_is_not_admitted(status: dict[str, Any]) -> None:
    definition = Definition(DEFINITION.api_version, "Workload", "a", "job-x", "uid-of-x", status=status)
    assert gang_of(definition).blocked
