"""Why controllers withhold members of a gang: objects as their API servers return them."""

from typing import Any

import pytest

from muster.cli.controller_rules import Controller, creation_failures, why_incomplete

Object = dict[str, Any]


def controller(kind: str, spec: Object, annotations: Object | None = None, conditions: Any = None) -> Controller:
    """The controller ml/x."""
    content = {
        "kind": kind,
        "metadata": {"name": "x", "annotations": annotations or {}},
        "spec": spec,
        "status": {"conditions": conditions or []},
    }
    return Controller(kind, "ml", "x", f"uid-{kind}", content)


def replicated(name: str, parallelism: int = 2, replicas: int = 1, **more: Any) -> Object:
    job = {"spec": {"parallelism": parallelism, "completions": parallelism}}
    return {"name": name, "replicas": replicas, "template": job, **more}


AFTER_DRIVER = replicated("workers", dependsOn=[{"name": "driver", "status": "Ready"}])
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
INITIALIZER = {"dataset": {"storageUri": "hf://a/b"}, "model": {"storageUri": "hf://c/d"}}


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        ("StatefulSet", {"replicas": 4, "podManagementPolicy": "OrderedReady"}, "podManagementPolicy: Parallel"),
        ("StatefulSet", {"replicas": 4}, "podManagementPolicy: Parallel"),
        ("StatefulSet", {"replicas": 3, "podManagementPolicy": "Parallel"}, "creates at most 3 pods at a time, but 4"),
        ("ReplicaSet", {"replicas": 2}, "raise replicas"),
        ("Job", {"parallelism": 2, "completions": 4}, "creates at most 2 pods at a time, but 4 must start together"),
        ("Job", {"parallelism": 8, "completions": 3}, "creates at most 3 pods"),
        ("Job", {}, "creates at most 1 pod at a time"),
        ("Job", {"parallelism": 4, "suspend": True}, "is suspended"),
        (
            "JobSet",
            {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [replicated("a"), replicated("b")]},
            "startupPolicyOrder: AnyOrder",
        ),
        (
            "JobSet",
            {"replicatedJobs": [replicated("driver"), AFTER_DRIVER]},
            "creates replicated job workers only after driver (dependsOn)",
        ),
        ("JobSet", {"replicatedJobs": [replicated("a", 1, 3)]}, "creates at most 3 pods"),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {**replicated("a", 4), "template": {"metadata": {"annotations": {EXCLUSIVE: "rack"}}}}
                ]
            },
            "replace it with muster.dev/topology",
        ),
        (
            "MPIJob",
            {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": {"Worker": {"replicas": 3}}},
            "set runPolicy.schedulingPolicy.minAvailable: 3, or launcherCreationPolicy: AtStartup",
        ),
        ("MPIJob", {"runPolicy": {"suspend": True}}, "is suspended"),
        ("LeaderWorkerSet", {"replicas": 1, "startupPolicy": "LeaderReady"}, "set startupPolicy: LeaderCreated"),
        (
            "Job",
            {
                "minAvailable": 4,
                "tasks": [
                    {"name": "ps", "replicas": 1},
                    {"name": "worker", "replicas": 3, "dependsOn": {"name": ["ps"]}},
                ],
            },
            "(dependsOn: worker after ps): set minAvailable to at most 1",
        ),
        ("TrainJob", {"initializer": INITIALIZER}, "only after its initializers have ended (dataset, model)"),
        ("SparkApplication", {}, "has executors only after its driver runs"),
    ],
)
def test_a_controller_that_withholds_members(kind: str, spec: Object, words: str) -> None:
    found = why_incomplete([controller(kind, spec)], minimum=4, members=1)
    assert any(each.startswith(f"{kind} ml/x ") and words in each for each in found), found


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("StatefulSet", {"replicas": 4, "podManagementPolicy": "Parallel"}),
        ("ReplicaSet", {"replicas": 4}),
        ("Job", {"parallelism": 4, "completions": 4}),
        ("JobSet", {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}, "replicatedJobs": [replicated("a", 2, 2)]}),
        ("MPIJob", {"launcherCreationPolicy": "AtStartup"}),
        ("LeaderWorkerSet", {"startupPolicy": "LeaderCreated"}),
        ("Job", {"tasks": [{"name": "a", "replicas": 4}, {"name": "b", "replicas": 1, "dependsOn": {"name": ["a"]}}]}),
        ("TrainJob", {"trainer": {"numNodes": 4}}),
        ("RayCluster", {}),
        ("JobSet", {"replicatedJobs": "junk", "startupPolicy": [1]}),
        ("Job", {"tasks": [7, {"dependsOn": []}]}),
    ],
)
def test_a_controller_that_creates_all_members_gives_no_reason(kind: str, spec: Object) -> None:
    assert why_incomplete([controller(kind, spec)], minimum=4, members=1) == []


def test_the_topology_of_jobset_without_its_webhook_gives_no_reason() -> None:
    annotations = {EXCLUSIVE: "rack", "alpha.jobset.sigs.k8s.io/node-selector": "true"}
    spec = {"replicatedJobs": [replicated("a", 4)]}
    assert why_incomplete([controller("JobSet", spec, annotations)], minimum=4, members=1) == []
    assert why_incomplete([controller("JobSet", spec, {EXCLUSIVE: "rack"})], minimum=4, members=1) != []


def test_the_parallelism_of_one_of_several_jobs_gives_no_reason() -> None:
    job = controller("Job", {"parallelism": 2})
    above = controller("JobSet", {"replicatedJobs": [replicated("a", 2, 2)]})
    assert why_incomplete([job, above], minimum=4, members=1) == []
    assert why_incomplete([job, controller("CronJob", {})], minimum=4, members=1) != []


def test_an_ended_controller_creates_no_more_pods() -> None:
    ended = controller("Job", {"parallelism": 4}, conditions=[{"type": "Failed", "status": "True"}])
    assert why_incomplete([ended], minimum=4, members=1) == [
        "Job ml/x has failed: it creates no more pods; delete it, or create it again"
    ]


def test_the_newest_failure_is_quoted_and_a_quota_has_a_remedy() -> None:
    job = controller("Job", {})
    quota = 'pods "x-1" is forbidden: exceeded quota: team, requested: cpu=1, used: cpu=4, limited: cpu=4'
    events = [
        {"lastTimestamp": "2026-01-01T00:00:02Z", "message": quota},
        {"lastTimestamp": "2026-01-01T00:00:01Z", "message": "older"},
    ]
    (failure,) = creation_failures(job, events)
    assert failure.startswith(f"Job ml/x cannot create pods: {quota}; raise the ResourceQuota")
    assert creation_failures(job, []) == []
