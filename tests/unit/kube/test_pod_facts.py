"""Facts and problems of pods."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.kube.objects import container, pod, pod_json
from muster.gangs.facts import INDEX_0, LEADER, PodFacts, PodPhase
from muster.kube.objects import BadObject, BadResourceVersion, PriorityClass, decode_pod, decode_priority_class
from muster.kube.pod_facts import Priorities, pod_facts

NOON_31_JANUARY_2026 = 1769860800


def facts_of(
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    priorities: Priorities | None = None,
    gang: str = "",
    problem: str = "",
) -> PodFacts:
    return pod_facts(
        pod("w-0", spec, metadata, status), ("muster", "muster-2"), priorities or Priorities(), gang, problem
    )[0]


def test_pending_pod() -> None:
    facts, read = pod_facts(pod("w-0"), ("muster",), Priorities(), gang="koordinator/ml/train")
    assert facts == PodFacts(
        uid="uid-of-w-0",
        namespace="ml",
        name="w-0",
        class_id=read.pod_class.id,
        revision=17,
        node="",
        phase=PodPhase.PENDING,
        priority=0,
        created_seconds=NOON_31_JANUARY_2026,
        ours=True,
        gang="koordinator/ml/train",
        deleting=False,
        gated=False,
        problem="",
        uncontrolled=True,
    )


@pytest.mark.parametrize(
    ("text", "cost"),
    [("7", 7), ("-2147483648", -(2**31)), ("2147483648", 0), ("+7", 0), ("007", 0), ("1.5", 0), ("x" * 9999, 0)],
)
def test_the_deletion_cost_of_a_member_is_an_int32(text: str, cost: int) -> None:
    metadata = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": text}}
    assert facts_of(metadata=metadata, gang="test/ml/g").deletion_cost == cost
    assert facts_of(metadata=metadata).deletion_cost == 0


@pytest.mark.parametrize(
    ("annotations", "labels", "cost"),
    [
        ({"volcano.sh/preemptable": "false"}, {}, 2**31 - 1),
        ({"volcano.sh/preemptable": "no"}, {}, 2**31 - 1),
        ({}, {"volcano.sh/preemptable": "0"}, 2**31 - 1),
        ({"volcano.sh/preemptable": "True"}, {"volcano.sh/preemptable": "false"}, 0),
        ({"volcano.sh/preemptable": "true", "controller.kubernetes.io/pod-deletion-cost": "5"}, {}, 5),
        ({"volcano.sh/preemptable": "false", "controller.kubernetes.io/pod-deletion-cost": "-5"}, {}, 2**31 - 1),
    ],
)
def test_pods_that_volcano_would_not_preempt_cost_most(
    annotations: dict[str, str], labels: dict[str, str], cost: int
) -> None:
    metadata = {"annotations": annotations, "labels": labels}
    assert facts_of(metadata=metadata, gang="test/ml/g").deletion_cost == cost


@pytest.mark.parametrize(
    ("metadata", "ordinal"),
    [
        ({"labels": {"batch.kubernetes.io/job-completion-index": "3"}}, INDEX_0 + 3),
        ({"annotations": {"volcano.sh/task-index": "0"}}, INDEX_0),
        ({"labels": {"training.kubeflow.org/job-role": "launcher"}}, LEADER),
        (
            {"labels": {"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": "1"}},
            INDEX_0 + 1,
        ),
        ({"labels": {"apps.kubernetes.io/pod-index": "-1"}}, 0),
        ({"labels": {"apps.kubernetes.io/pod-index": "9999999999"}}, 0),
        ({"labels": {"ray.io/node-type": "worker"}}, 0),
    ],
)
def test_the_position_of_a_member_is_that_of_its_controller(metadata: dict[str, Any], ordinal: int) -> None:
    assert facts_of(metadata=metadata, gang="test/ml/g").ordinal == ordinal
    assert facts_of(metadata=metadata).ordinal == 0


def test_only_members_without_a_controller_are_uncontrolled() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    assert facts_of(gang="test/ml/g").uncontrolled
    assert not facts_of(metadata={"ownerReferences": [owner]}, gang="test/ml/g").uncontrolled
    assert not facts_of().uncontrolled


@pytest.mark.parametrize(
    ("name", "phase", "seated"),
    [
        ("Pending", PodPhase.PENDING, True),
        ("Running", PodPhase.RUNNING, True),
        ("Succeeded", PodPhase.SUCCEEDED, False),
        ("Failed", PodPhase.FAILED, False),
        ("Unknown", PodPhase.PENDING, True),
        (None, PodPhase.PENDING, True),
    ],
)
def test_phases(name: str | None, phase: PodPhase, seated: bool) -> None:
    facts = facts_of(spec={"nodeName": "node-1"}, status={"phase": name})
    assert (facts.node, facts.phase, facts.seated) == ("node-1", phase, seated)


@pytest.mark.parametrize(
    ("scheduler", "ours"),
    [("muster", True), ("muster-2", True), ("default-scheduler", False), ("", False), (None, False), ("Muster", False)],
)
def test_ours_follows_the_scheduler_name(scheduler: str | None, ours: bool) -> None:
    facts = facts_of(spec={"schedulerName": scheduler}, gang="koordinator/ml/train")
    assert facts.ours is ours
    assert facts.gang == ("koordinator/ml/train" if ours else "")


def test_default_scheduler_can_be_ours() -> None:
    facts, _ = pod_facts(pod(spec={"schedulerName": None}), ("default-scheduler",), Priorities())
    assert facts.ours


def test_the_scheduler_of_a_pod_is_known_unless_it_is_ours() -> None:
    def scheduler(name: str | None) -> str:
        return pod_facts(pod(spec={"schedulerName": name}), ("muster",), Priorities())[0].scheduler_name

    assert [scheduler(name) for name in ("volcano", None, "muster")] == ["volcano", "default-scheduler", ""]


def test_g48_gates_and_deletion_are_converted() -> None:
    assert not facts_of(spec={"schedulingGates": []}).gated
    assert facts_of(spec={"schedulingGates": [{"name": "example.com/wait"}]}).gated
    assert not facts_of(metadata={"deletionTimestamp": None}).deleting
    assert facts_of(metadata={"deletionTimestamp": "2026-01-31T12:00:30Z"}).deleting


CLASSES = Priorities(values={"high": 1000, "low": -5}, default=7)


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"priority": 42, "priorityClassName": "high"}, 42),
        ({"priority": 0, "priorityClassName": "high"}, 0),
        ({"priorityClassName": "high"}, 1000),
        ({"priorityClassName": "low"}, -5),
        ({"priorityClassName": "gone"}, 7),
        ({"priorityClassName": ""}, 7),
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000),
        ({}, 7),
    ],
)
def test_priority_equals_that_of_admission(spec: dict[str, Any], priority: int) -> None:
    assert facts_of(spec=spec, priorities=CLASSES).priority == priority


def priority_class(name: str, value: int, default: bool, policy: str | None = None) -> PriorityClass:
    content = {"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": policy}
    return decode_priority_class(json.dumps(content).encode())


def test_priority_classes_of_a_cluster() -> None:
    known = [priority_class("a", 10, True), priority_class("b", 5, True), priority_class("c", 1, False)]
    assert Priorities.of(known) == Priorities({"a": 10, "b": 5, "c": 1}, default=5)
    assert Priorities.of([]) == Priorities()


POLICIES = Priorities.of(
    [
        priority_class("never-preempts", 10, True, "Never"),
        priority_class("usual", 20, True, "PreemptLowerPriority"),
        priority_class("old", 5, False),
    ]
)


@pytest.mark.parametrize(
    ("spec", "never"),
    [
        ({"preemptionPolicy": "Never"}, True),
        ({"preemptionPolicy": "Never", "priority": 5, "priorityClassName": "usual"}, True),
        ({"preemptionPolicy": "PreemptLowerPriority", "priority": 5, "priorityClassName": "never-preempts"}, False),
        ({"priorityClassName": "never-preempts"}, True),
        ({"priority": 10, "priorityClassName": "never-preempts"}, True),
        ({"priorityClassName": "usual"}, False),
        ({"priorityClassName": "old"}, False),
        ({"priorityClassName": "gone"}, False),
        ({}, True),
        ({"priority": 0}, False),
    ],
)
def test_preemption_policy_equals_that_of_admission(spec: dict[str, Any], never: bool) -> None:
    assert facts_of(spec=spec, priorities=POLICIES).never_preempts is never


def test_without_a_default_class_pods_preempt() -> None:
    assert not facts_of(priorities=Priorities.of([priority_class("never-preempts", 10, False, "Never")])).never_preempts


@pytest.mark.parametrize(
    ("deadline", "annotation", "seconds"),
    [
        (None, None, 0),
        (None, "90s", 90),
        (None, "1h30m", 5400),
        (None, "15m", 900),
        (None, "45", 45),
        (None, "1.5", 1.5),
        (60, None, 60),
        (60, "90s", 60),
        (60, "45s", 45),
        (60, "", 60),
        (60, "soon", 60),
        (60, "-5", 60),
        (60, "0", 60),
        (None, "soon", 0),
        (None, "5 m", 0),
        (None, "9" * 1_000, 0),
        (0, None, 0),
        (-3, "45s", 45),
    ],
)
def test_expected_duration(deadline: int | None, annotation: str | None, seconds: float) -> None:
    annotations = {} if annotation is None else {"muster.dev/expected-duration": annotation}
    facts = facts_of({"activeDeadlineSeconds": deadline}, {"annotations": annotations})
    assert facts.expected_seconds == seconds
    assert facts.problem == ""


def test_expected_duration_of_a_foreign_pod_is_its_deadline() -> None:
    metadata = {"annotations": {"muster.dev/expected-duration": "45s"}}
    assert facts_of({"schedulerName": "other", "activeDeadlineSeconds": 60}, metadata).expected_seconds == 60
    assert facts_of({"schedulerName": "other"}, metadata).expected_seconds == 0


@pytest.mark.parametrize(
    ("phase", "text", "seconds"),
    [
        ("Running", "2026-01-31T12:00:00Z", NOON_31_JANUARY_2026),
        ("Failed", "2026-01-31T12:00:00Z", NOON_31_JANUARY_2026),
        ("Pending", "2026-01-31T12:00:00Z", 0),
        ("Running", None, 0),
    ],
)
def test_start_time_is_set_once_the_pod_runs(phase: str, text: str | None, seconds: int) -> None:
    facts = facts_of({"nodeName": "n"}, status={"phase": phase, "startTime": text})
    assert (facts.started_seconds, facts.problem) == (seconds, "")


def test_malformed_start_time_is_a_problem() -> None:
    facts = facts_of({"nodeName": "n"}, status={"phase": "Running", "startTime": "dawn"})
    assert facts.started_seconds == 0
    assert 'status.startTime: "dawn"' in facts.problem


def test_only_our_pods_time_out() -> None:
    def timed_out(scheduler: str) -> bool:
        waiting = pod(spec={"schedulerName": scheduler})
        return pod_facts(waiting, ("muster",), Priorities(), "koordinator/ml/g", timed_out=True)[0].timed_out

    assert timed_out("muster")
    assert not timed_out("other")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-31T12:00:00Z", NOON_31_JANUARY_2026),
        ("2026-01-31T12:00:00.999999Z", NOON_31_JANUARY_2026),
        ("2026-01-31T13:00:00+01:00", NOON_31_JANUARY_2026),
        (None, 0),
    ],
)
def test_creation_times(text: str | None, seconds: int) -> None:
    facts = facts_of(metadata={"creationTimestamp": text})
    assert facts.created_seconds == seconds
    assert facts.problem == ""


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31", "2026-01-31T12:00:00", "2026-13-01T00:00:00Z", "x" * 5000])
def test_malformed_creation_time_is_a_problem(text: str) -> None:
    facts = facts_of(metadata={"creationTimestamp": text})
    assert facts.created_seconds == 0
    assert "metadata.creationTimestamp" in facts.problem
    assert text[:63] in facts.problem
    assert len(facts.problem) < 200


@pytest.mark.parametrize("version", ["", "abc", "-1", "1.5", "1_000", "１２", " 7", None, 7])
def test_incomparable_revision_is_an_error(version: Any) -> None:
    with pytest.raises(BadResourceVersion, match="ml/w-0 has resourceVersion"):
        facts_of(metadata={"resourceVersion": version})


def test_all_problems_are_reported_together() -> None:
    facts = facts_of(
        spec={"containers": [container(requests={"cpu": "much"})], "nodeSelector": {"a": 1}, "priority": "high"},
        problem="label x is empty",
    )
    for words in ("label x is empty", '"much"', "nodeSelector", 'spec.priority is ""high""'):
        assert words in facts.problem


def test_fields_of_wrong_types_leave_the_others_readable() -> None:
    facts = facts_of(
        spec={"containers": "none", "nodeName": "node-4", "schedulingGates": 5},
        metadata={"labels": {"a": 1}, "annotations": []},
        status={"phase": "Running", "containerStatuses": {}},
    )
    assert (facts.name, facts.node, facts.phase, facts.revision) == ("w-0", "node-4", PodPhase.RUNNING, 17)
    for field in ("spec.containers", "spec.schedulingGates", "metadata.labels", "metadata.annotations"):
        assert field in facts.problem


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"7", b'"pod"', b"\xff"])
def test_non_object_is_an_error(data: bytes) -> None:
    with pytest.raises(BadObject):
        decode_pod(data)


def test_missing_parts_count_as_empty() -> None:
    facts, read = pod_facts(decode_pod(b'{"metadata":{"resourceVersion":"3"}}'), ("muster",), Priorities())
    assert (facts.uid, facts.revision, facts.ours, facts.phase) == ("", 3, False, PodPhase.PENDING)
    assert read.pod_class.requests == (("pods", 1),)


@given(data=st.data())
def test_damaged_bytes_never_crash(data: st.DataObject) -> None:
    """Replace any byte, or cut out any part: the result is facts, or an error with a reason."""
    whole = pod_json(
        spec={
            "nodeName": "n",
            "containers": [container(requests={"cpu": "1", "memory": "1Gi"})],
            "nodeSelector": {"pool": "ü"},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        },
        status={"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "1"}}]},
    )
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    damaged = whole[:start] + data.draw(st.binary(max_size=6)) + whole[end:]
    try:
        facts, _ = pod_facts(decode_pod(damaged), ("muster",), Priorities())
    except (BadObject, BadResourceVersion):
        return
    assert len(facts.problem) < 5000


def test_the_nominated_node_is_that_of_a_pod_of_ours_that_is_not_bound() -> None:
    status = {"nominatedNodeName": "n1"}
    assert facts_of(status=status).nominated_node == "n1"
    assert not facts_of(status=status, spec={"nodeName": "n2"}).nominated_node
    assert not facts_of(status=status, spec={"schedulerName": "default-scheduler"}).nominated_node
