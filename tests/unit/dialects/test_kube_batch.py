"""kube-batch's PodGroups, and pods that name one by annotation."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from builders.gangs.declarations import marked, pod_group, problems_of
from muster.dialects import kube_batch
from muster.dialects.definitions import Definition
from muster.dialects.kube_batch import restart_after_seconds
from muster.dialects.registry import event_reason, membership_of, read_gang
from muster.dialects.values import BadValue
from muster.gangs.facts import GangFacts, MatchPolicy, ObjectReference, Severity

NAME = "scheduling.k8s.io/group-name"
NUMBER = "scheduling.k8s.io/group-pod-num"


def group(spec: Mapping[str, Any]) -> Definition:
    return pod_group(kube_batch.DEFINITION, spec)


def gang_of(definition: Definition | None, priorities: Mapping[str, int] | None = None) -> GangFacts:
    return read_gang("kube-batch/a/A", definition, [marked(annotations={NAME: "A"})], priorities or {})


def test_the_annotation_names_the_gang() -> None:
    membership = membership_of(marked(annotations={NAME: "A"}).marks)
    assert membership is not None
    assert membership.gang_id == "kube-batch/a/A"


def test_an_empty_annotation_is_the_pods_problem() -> None:
    membership = membership_of(marked(annotations={NAME: ""}).marks)
    assert membership is not None
    assert (membership.gang_id, membership.problem) == ("", f"annotation {NAME} is empty, but it must name a gang")


def test_a_gang() -> None:
    spec = {"minMember": 3, "queue": "q", "totalResources": {"cpu": "3"}, "priorityClassName": "high"}
    assert gang_of(group(spec), {"high": 1000}) == GangFacts(
        id="kube-batch/a/A",
        dialect="kube-batch",
        namespace="a",
        name="A",
        incarnation="uid-of-A",
        minimum=3,
        total=3,
        priority=1000,
        created_seconds=50,
        definition=ObjectReference("scheduling.incubator.k8s.io/v1alpha1", "PodGroup", "a", "A", "uid-of-A"),
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
        terms=(
            "minMember: 3 (PodGroup a/A)",
            'totalResources: {"cpu":"3"} (PodGroup a/A)',
            "queue: q (PodGroup a/A)",
            "priorityClassName: high (PodGroup a/A)",
        ),
    )


def test_without_its_pod_group_it_is_blocked_with_a_remedy() -> None:
    gang = gang_of(None)
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.BLOCKING
    kinds = "scheduling.incubator.k8s.io/v1alpha1 or scheduling.volcano.sh/v1beta1"
    assert message.startswith(f'PodGroup "a/A" ({kinds}) does not exist yet: create it')
    assert NUMBER in message
    assert event_reason(gang.id) == "Unschedulable"


def test_the_proposals_spelling_of_the_minimum_is_read_too() -> None:
    gang = gang_of(group({"minMembers": 4}))
    assert (gang.minimum, gang.total, gang.problems) == (4, 4, ())
    assert gang.terms == ("minMembers: 4 (PodGroup a/A)",)


def test_resources_that_must_be_free_are_read_and_quoted_if_they_cannot_be() -> None:
    assert gang_of(group({"minMember": 1, "minResources": {"cpu": "1500m"}})).resources == (("cpu", 1500),)
    gang = gang_of(group({"minMember": 1, "minResources": {"cpu": "lots"}}))
    ((severity, message),) = problems_of(gang)
    assert (gang.resources, severity) == ((), Severity.WARNING)
    assert "lots" in message


def test_of_two_different_minimums_the_first_is_used_with_a_warning() -> None:
    gang = gang_of(group({"minMember": 3, "minMembers": 4}))
    ((severity, message),) = problems_of(gang)
    assert (gang.minimum, severity) == (3, Severity.WARNING)
    assert 'spec.minMembers of PodGroup "a/A" is "4"' in message
    assert 'spec.minMember of PodGroup "a/A" is "3", which is used' in message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "is missing"),
        ({"minMember": None}, "is missing"),
        ({"minMember": 0}, '"0", but it must be at least 1'),
        ({"minMember": "five"}, '"five", which is not a whole number'),
        ({"minMembers": [3]}, '"[3]", which is not a whole number'),
        ({"minMember": 2**31}, "at most 2147483647"),
    ],
)
def test_an_invalid_minimum_blocks_and_is_quoted(spec: dict[str, Any], words: str) -> None:
    gang = gang_of(group(spec))
    ((severity, message),) = problems_of(gang)
    assert (gang.minimum, severity) == (0, Severity.BLOCKING)
    assert words in message


@pytest.mark.parametrize("name", ["nobody", 5, ["x"]])
def test_an_unknown_priority_class_is_reported_and_the_pods_priority_used(name: Any) -> None:
    gang = gang_of(group({"minMember": 1, "priorityClassName": name}), {"high": 1000})
    ((severity, message),) = problems_of(gang)
    assert (gang.priority, severity) == (None, Severity.WARNING)
    assert "priorityClassName" in message


@pytest.mark.parametrize(
    ("conditions", "blocked"),
    [
        (None, False),
        ([], False),
        ("what?", False),
        (["what?"], False),
        ([{"type": "Other", "status": "False"}], False),
        ([{"type": "QuotaReserved", "status": "True"}], False),
        ([{"type": "QuotaReserved", "status": "False", "message": "cpu: 8 asked, 4 left"}], True),
    ],
)
def test_it_waits_while_its_quota_is_not_reserved(conditions: Any, blocked: bool) -> None:
    gang = gang_of(replace(group({"minMember": 1}), status={"conditions": conditions}))
    assert gang.blocked is blocked
    if blocked:
        assert problems_of(gang) == [(Severity.BLOCKING, "quota is not reserved for it yet: cpu: 8 asked, 4 left")]


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (None, None),
        ([], None),
        ([{"event": "Unschedulable", "action": "Restart"}], 0),
        ([{"event": "unschedulable", "action": "restart", "timeout": "0s"}], 0),
        ([{"event": "Unschedulable", "action": "Restart", "timeout": "1m30s"}], 90),
        ([{"event": "Unschedulable", "action": "None"}], None),
        ([{"event": "Unschedulable"}], None),
        ([{"event": "Unschedulable"}, {"event": "Unschedulable", "action": "Restart", "timeout": "5s"}], 5),
    ],
)
def test_when_the_whole_group_is_restarted(policy: Any, seconds: float | None) -> None:
    assert restart_after_seconds(policy) == seconds


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("Restart", '"Restart", which is not a list'),
        (["Restart"], "which is not a list such as"),
        ([{"event": "PodFailed", "action": "Restart"}], 'the event "PodFailed"'),
        ([{"action": "Restart"}], 'the event "null"'),
        ([{"event": "Unschedulable", "action": "Reboot"}], 'the action "Reboot"'),
        ([{"event": "Unschedulable", "action": "Restart", "timeout": "soon"}], '"soon", which is not a duration'),
        ([{"event": "Unschedulable", "action": "Restart", "timeout": 5}], 'the timeout "5"'),
        ([{}] * 21, "at most 20"),
    ],
)
def test_an_invalid_policy_is_quoted_and_restarts_nothing(policy: Any, words: str) -> None:
    with pytest.raises(BadValue, match=re.escape(words)):
        restart_after_seconds(policy)
    gang = gang_of(group({"minMember": 1, "policy": policy}))
    assert [severity for severity, _ in problems_of(gang)] == [Severity.WARNING]


def test_both_annotations_are_a_task_of_the_dialect_batch() -> None:
    both = marked(annotations={NAME: "A", NUMBER: "3"})
    membership = membership_of(both.marks)
    assert membership is not None
    assert membership.gang_id == "batch/a/A"
    gang = read_gang(membership.gang_id, None, [both])
    assert (gang.minimum, gang.total, gang.problems) == (3, 3, ())
    assert gang.terms == (f"{NUMBER}: 3 (pod w-0)",)
    assert gang.created_seconds == 100


@pytest.mark.parametrize("number", ["", "five", "0", "-3", "3.5", "99999999999"])
def test_an_invalid_number_of_pods_blocks_and_is_quoted(number: str) -> None:
    gang = read_gang("batch/a/A", None, [marked(annotations={NAME: "A", NUMBER: number})])
    ((severity, message),) = problems_of(gang)
    assert (gang.minimum, severity) == (0, Severity.BLOCKING)
    assert message.startswith(f'annotation {NUMBER} of pod "w-0" is "{number}"')
    assert message.endswith("set it to the number of pods of the task")


def test_of_different_numbers_the_oldest_pods_is_used() -> None:
    pods = [
        marked("w-1", annotations={NAME: "A", NUMBER: "4"}, created_seconds=101),
        marked("w-0", annotations={NAME: "A", NUMBER: "3"}),
    ]
    gang = read_gang("batch/a/A", None, pods)
    ((severity, message),) = problems_of(gang)
    assert (gang.minimum, severity) == (3, Severity.WARNING)
    assert 'of pod "w-1" is "4", but "3" is used' in message


def test_a_number_without_a_name_is_the_pods_problem() -> None:
    membership = membership_of(marked(annotations={NUMBER: "3"}).marks)
    assert membership is not None
    assert membership.problem == f"{NUMBER} without the gang's name: add it (annotation {NAME})"
