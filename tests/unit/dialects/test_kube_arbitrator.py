"""kube-arbitrator: the pods of a SchedulingSpec's controller are one gang."""

from collections.abc import Mapping
from typing import Any

import pytest

from builders.gangs.declarations import problems_of
from muster.dialects.definitions import ControllerGang, Definition, Owner
from muster.dialects.marks import GangMarks, MarkSet, PodAge
from muster.dialects.registry import controller_gang, defined_gang, gang_marks, membership_of, read_gang
from muster.gangs.facts import GangFacts, MatchPolicy, ObjectReference, Severity

OWNER = Owner("example.com/v1", "CrdJob", "train", "uid-of-train")


def spec_of(controller: Owner | None = OWNER, **spec: Any) -> Definition:
    return Definition(
        "arbitrator.incubator.k8s.io/v1alpha1",
        "SchedulingSpec",
        "a",
        "train-spec",
        "uid-of-spec",
        50,
        spec=spec,
        controller=controller,
    )


def marks(*, labels: Mapping[str, str] | None = None, controller: str = "CrdJob.train") -> GangMarks:
    return gang_marks("a", labels, None, controller=controller)


def gang_of(definition: Definition | None, priorities: Mapping[str, int] | None = None) -> GangFacts:
    pods = [MarkSet(marks(), PodAge(100, "w-0", "uid-of-w-0"))]
    return read_gang("kube-arbitrator/a/CrdJob.train", definition, pods, priorities or {})


def test_the_controller_names_the_gang() -> None:
    membership = membership_of(marks())
    assert membership is not None
    assert membership.gang_id == "kube-arbitrator/a/CrdJob.train" == defined_gang(spec_of())


def test_a_pods_own_marks_take_precedence() -> None:
    membership = membership_of(marks(labels={"scheduling.x-k8s.io/pod-group": "g"}))
    assert membership is not None
    assert membership.gang_id == "coscheduling/a/g"
    gang = read_gang(
        membership.gang_id,
        None,
        [MarkSet(marks(labels={"scheduling.x-k8s.io/pod-group": "g"}), PodAge(1, "w-0", "u"))],
    )
    assert any("marks of the dialect kube-arbitrator" in message for _, message in problems_of(gang))


def test_a_job() -> None:
    definition = spec_of(minAvailable=3, nodeSelector={"b": "2", "a": "1"}, priority=7, priorityClassName="")
    assert gang_of(definition) == GangFacts(
        id="kube-arbitrator/a/CrdJob.train",
        dialect="kube-arbitrator",
        namespace="a",
        name="CrdJob.train",
        incarnation="uid-of-spec",
        minimum=3,
        total=3,
        created_seconds=50,
        priority=7,
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
        definition=ObjectReference(
            "arbitrator.incubator.k8s.io/v1alpha1", "SchedulingSpec", "a", "train-spec", "uid-of-spec"
        ),
        terms=(
            "minAvailable: 3 (SchedulingSpec a/train-spec)",
            "priority: 7 (SchedulingSpec a/train-spec)",
            'nodeSelector: {"b":"2","a":"1"} (SchedulingSpec a/train-spec)',
        ),
    )
    assert controller_gang(definition) == ControllerGang(
        "uid-of-train",
        "CrdJob.train",
        "kube-arbitrator/a/CrdJob.train",
        (("a", "1"), ("b", "2")),
        'nodeSelector of SchedulingSpec "a/train-spec"',
    )


def test_without_its_spec_it_waits() -> None:
    ((severity, message),) = problems_of(gang_of(None))
    assert severity is Severity.BLOCKING
    assert 'has CrdJob "train" as its controller yet: create one' in message


def test_a_spec_without_controller_is_reported_and_has_no_members() -> None:
    definition = spec_of(None, minAvailable=2)
    assert controller_gang(definition) is None
    assert defined_gang(definition) == "kube-arbitrator/a/train-spec"
    ((severity, message),) = problems_of(read_gang("kube-arbitrator/a/train-spec", definition, []))
    assert severity is Severity.BLOCKING
    assert message.startswith('SchedulingSpec "a/train-spec" has no ownerReference with controller: true')


@pytest.mark.parametrize("minimum", [None, 0])
def test_without_a_minimum_each_pod_may_start_by_itself(minimum: int | None) -> None:
    gang = gang_of(spec_of(minAvailable=minimum))
    assert (gang.minimum, gang.problems) == (1, ())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"minAvailable": "five"},
            'spec.minAvailable of SchedulingSpec "a/train-spec" is "five", which is not a whole',
        ),
        ({"minAvailable": -1}, '"-1", but it must be at least 1'),
        ({"minAvailable": True}, '"true", which is not a whole number'),
        ({"nodeSelector": "gpu"}, 'spec.nodeSelector of SchedulingSpec "a/train-spec" is "gpu", which is not a map'),
        ({"nodeSelector": {"gpu": 1}}, "which is not a map of labels"),
        ({"nodeSelector": {f"k{number}": "v" for number in range(101)}}, "a map of 101 labels"),
    ],
)
def test_a_malformed_required_field_blocks_the_gang(spec: dict[str, Any], words: str) -> None:
    gang = gang_of(spec_of(**{"minAvailable": 2, **spec}))
    ((severity, message),) = problems_of(gang)
    assert severity is Severity.BLOCKING
    assert words in message
    assert (job := controller_gang(spec_of(**spec))) is not None
    assert job.node_selector == ()


@pytest.mark.parametrize(
    ("spec", "priority", "words"),
    [
        ({}, None, ""),
        ({"priority": 5}, 5, ""),
        ({"priority": -5}, -5, ""),
        ({"priorityClassName": "high"}, 100, ""),
        ({"priorityClassName": ""}, None, ""),
        ({"priorityClassName": "high", "priority": 100}, 100, ""),
        ({"priorityClassName": "high", "priority": 5}, 100, "which is 100 and is used, but spec.priority is 5"),
        ({"priorityClassName": "hihg"}, None, '"hihg", but there is no such PriorityClass: create it; until then the'),
        ({"priorityClassName": "hihg", "priority": 5}, 5, "until then priority 5 is used"),
        ({"priorityClassName": 3}, None, "no such PriorityClass"),
        ({"priority": "much"}, None, 'spec.priority of SchedulingSpec "a/train-spec" is "much"'),
        ({"priority": 2**40}, None, "which is not a whole number of 32 bits"),
    ],
)
def test_its_priority(spec: dict[str, Any], priority: int | None, words: str) -> None:
    gang = gang_of(spec_of(minAvailable=2, **spec), {"high": 100})
    assert gang.priority == priority
    assert not gang.blocked
    assert [severity for severity, message in problems_of(gang) if words in message] == (
        [Severity.WARNING] if words else []
    )
