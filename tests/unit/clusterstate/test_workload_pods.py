"""Pods that controllers would create for manifests, with the labels by which gangs are declared."""

from typing import Any

import pytest

from muster.clusterstate.manifest_fields import BadWorkload
from muster.clusterstate.suite import facts_of
from muster.clusterstate.workload_pods import expanded

TEMPLATE = {
    "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "spec": {
        "schedulerName": "muster",
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}],
    },
}
GROUP = {
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"name": "g"},
    "spec": {"minMember": 3},
}


def workload(kind: str, version: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def names(*manifests: dict[str, Any], count: int | None = None) -> list[str]:
    return [each["metadata"]["name"] for each in expanded(manifests, "ml", count) if each["kind"] == "Pod"]


def test_a_job_has_as_many_pods_as_run_at_a_time() -> None:
    job = workload("Job", "batch/v1", parallelism=4, completions=2, completionMode="Indexed", template=TEMPLATE)
    pods = expanded([job], "ml")

    assert [pod["metadata"]["name"] for pod in pods] == ["w-0", "w-1"]
    assert pods[1]["metadata"]["labels"] == {
        "scheduling.x-k8s.io/pod-group": "g",
        "batch.kubernetes.io/job-name": "w",
        "job-name": "w",
        "batch.kubernetes.io/job-completion-index": "1",
    }


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_replicas_are_pods(kind: str) -> None:
    assert names(workload(kind, replicas=3, template=TEMPLATE)) == ["w-0", "w-1", "w-2"]
    assert names(workload(kind, replicas=3, template=TEMPLATE), count=1) == ["w-0"]


def test_a_job_set_has_the_pods_of_its_jobs() -> None:
    job = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}
    jobs = [{"name": "workers", "replicas": 2, "template": job}]

    assert names(workload("JobSet", "jobset.x-k8s.io/v1alpha2", replicatedJobs=jobs)) == [
        "w-workers-0-0",
        "w-workers-0-1",
        "w-workers-1-0",
        "w-workers-1-1",
    ]


def test_a_job_of_volcano_has_a_pod_group() -> None:
    tasks = [
        {"name": "ps", "replicas": 1, "template": TEMPLATE},
        {"name": "worker", "replicas": 3, "template": TEMPLATE},
    ]
    group, *pods = expanded([workload("Job", "batch.volcano.sh/v1alpha1", tasks=tasks)], "ml")

    assert (group["kind"], group["spec"]) == ("PodGroup", {"minMember": 4})
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"volcano"}
    assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods} == {"w"}


def test_objects_become_facts() -> None:
    job = workload("Job", "batch/v1", parallelism=4, template=TEMPLATE)
    facts = facts_of(expanded([GROUP, job], "ml"), {"muster"})

    [gang] = facts.gangs
    assert (gang.id, gang.minimum) == ("coscheduling/ml/g", 3)
    assert {pod.gang for pod in facts.pods} == {gang.id}
    assert len({pod.uid for pod in facts.pods}) == 4
    [pod_class] = facts.pod_classes
    assert dict(pod_class.requests)["cpu"] == 2000


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (workload("Job", "batch/v1", parallelism="many", template=TEMPLATE), 'Job w: parallelism "many"'),
        (workload("Job", "batch/v1"), "Job w: no pod template"),
        ({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "w"}}, "Job w: no spec"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {}}, "Pod without metadata.name"),
        (workload("Deployment", replicas=10**9, template=TEMPLATE), "more than 10000 pods"),
    ],
)
def test_a_workload_whose_pods_cannot_be_told_is_an_error(manifest: dict[str, Any], message: str) -> None:
    with pytest.raises(BadWorkload) as raised:
        expanded([manifest], "ml")

    assert message in str(raised.value)
