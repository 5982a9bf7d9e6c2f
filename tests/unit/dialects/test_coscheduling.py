"""Coscheduling gangs: PodGroups that pods name by a label."""

import pytest

from builders.gangs.declarations import coscheduling_group, marked, problems_of
from muster.dialects.definitions import Definition
from muster.dialects.registry import membership_of, read_gang
from muster.gangs.facts import GangFacts, MatchPolicy, ObjectReference, Severity

LABEL = "scheduling.x-k8s.io/pod-group"


def gang_of(definition: Definition | None) -> GangFacts:
    return read_gang("coscheduling/a/A", definition, [marked(labels={LABEL: "A"})])


def test_the_label_names_the_gang() -> None:
    membership = membership_of(marked(labels={LABEL: "A"}).marks)
    assert membership is not None
    assert membership.gang_id == "coscheduling/a/A"


def test_an_empty_label_is_the_pods_problem() -> None:
    membership = membership_of(marked(labels={LABEL: ""}).marks)
    assert membership is not None
    assert (membership.gang_id, membership.problem) == ("", f"label {LABEL} is empty, but it must name a gang")


def test_a_gang() -> None:
    definition = coscheduling_group({"minMember": 3, "scheduleTimeoutSeconds": 10, "minResources": {"cpu": "3"}})
    assert gang_of(definition) == GangFacts(
        id="coscheduling/a/A",
        dialect="coscheduling",
        namespace="a",
        name="A",
        incarnation="uid-of-A",
        minimum=3,
        total=3,
        waiting_time_seconds=10.0,
        created_seconds=50,
        definition=ObjectReference("scheduling.x-k8s.io/v1alpha1", "PodGroup", "a", "A", "uid-of-A"),
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        resources=(("cpu", 3000),),
        terms=(
            "minMember: 3 (PodGroup a/A)",
            'minResources: {"cpu":"3"} (PodGroup a/A)',
            "scheduleTimeoutSeconds: 10 (PodGroup a/A)",
        ),
    )


def test_min_resources_are_read_as_amounts() -> None:
    least = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 8, "pods": "0"}
    gang = gang_of(coscheduling_group({"minMember": 3, "minResources": least}))
    assert gang.resources == (("cpu", 500), ("memory", 2**30), ("nvidia.com/gpu", 8))
    assert gang.problems == ()


@pytest.mark.parametrize(
    ("least", "words"),
    [
        ({"cpu": "much"}, '"cpu" in it, of which "much" is not a quantity'),
        ({"cpu": -1}, '"-1" of "cpu" in it, which must not be below zero'),
        ({"cpu": [1]}, '"[1]" of "cpu" in it, which is not a quantity'),
        ({"cpu": True}, '"true" of "cpu" in it, which is not a quantity'),
        ("3", '"3", which is not a list of resources'),
        ({f"r{n}": 1 for n in range(65)}, "a list of 65 resources, but it may have at most 64"),
    ],
)
def test_malformed_min_resources_are_reported_and_ignored(least: object, words: str) -> None:
    gang = gang_of(coscheduling_group({"minMember": 3, "minResources": least}))
    ((severity, message),) = problems_of(gang)
    assert (severity, gang.resources, gang.minimum) == (Severity.WARNING, (), 3)
    assert words in message
    assert message.endswith("only the requests of the pods are used")


def test_g23_without_its_pod_group_it_waits() -> None:
    gang = gang_of(None)
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.BLOCKING
    assert message.startswith('PodGroup "a/A" (scheduling.x-k8s.io/v1alpha1) does not exist yet')
    assert (gang.minimum, gang.incarnation, gang.created_seconds) == (0, "uid-of-w-0", 100)


@pytest.mark.parametrize(
    ("minimum", "words"),
    [
        (None, "is missing"),
        (0, '"0", but it must be at least 1'),
        (-1, '"-1"'),
        ("three", '"three"'),
        (2**31, "at most"),
        ({"a": "b" * 1_000_000}, "…"),
    ],
)
def test_g26_a_malformed_minimum_blocks_and_is_quoted(minimum: object, words: str) -> None:
    ((severity, message),) = problems_of(gang_of(coscheduling_group({"minMember": minimum})))
    assert severity is Severity.BLOCKING
    assert words in message
    assert len(message) < 250


@pytest.mark.parametrize("timeout", [None, 0])
def test_no_timeout_is_the_default(timeout: int | None) -> None:
    gang = gang_of(coscheduling_group({"minMember": 2, "scheduleTimeoutSeconds": timeout}))
    assert (gang.waiting_time_seconds, gang.problems) == (60.0, ())


@pytest.mark.parametrize("timeout", [-1, "1m", 2.5])
def test_a_malformed_timeout_is_the_default_with_a_warning(timeout: object) -> None:
    gang = gang_of(coscheduling_group({"minMember": 2, "scheduleTimeoutSeconds": timeout}))
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.WARNING
    assert message.endswith("60s is used instead")
    assert gang.waiting_time_seconds == 60.0
