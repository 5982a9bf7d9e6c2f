"""Workloads that Kueue admits."""

from typing import Final

from interop.controllers import kueue_quota
from interop.gang import GANG, JSON, RACK, Gang
from interop.kinds.jobset import job_set
from interop.kinds.kubernetes import job
from interop.workload_kind import OnFailure, Patch, WorkloadKind, has_condition, patch_of
from muster.dialects.kueue_workload import ASKED_FOR

_VERSION: Final = "kueue.x-k8s.io/v1beta2"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
CLUSTER_QUEUE: Final = "interop"
RACKS_QUEUE: Final = "interop-racks"
"""The ClusterQueue whose flavor has a topology."""


def _queued(gang: Gang, workload: JSON) -> list[JSON]:
    """A workload in a LocalQueue of its own, so that it can be evicted by stopping its queue."""
    queue = {
        "apiVersion": _VERSION,
        "kind": "LocalQueue",
        "metadata": gang.metadata(),
        "spec": {"clusterQueue": CLUSTER_QUEUE},
    }
    workload["metadata"]["labels"] = {_QUEUE: gang.name}
    workload["spec"]["suspend"] = True
    return [queue, workload]


def _queued_job(gang: Gang) -> list[JSON]:
    [workload] = job(gang, backoffLimitPerIndex=100, backoffLimit=None)
    return _queued(gang, workload)


def _queued_job_set(gang: Gang) -> list[JSON]:
    [workload] = job_set(gang)
    return _queued(gang, workload)


def _gang_by_workload(gang: Gang) -> list[JSON]:
    """A JobSet without marks of a gang: its Workload is one."""
    [workload] = job_set(gang)
    for replicated in workload["spec"]["replicatedJobs"]:
        metadata = replicated["template"]["spec"]["template"]["metadata"]
        metadata["labels"] = gang.labels()
        metadata["annotations"] = {**metadata.get("annotations", {}), ASKED_FOR: "true"}
    return _queued(gang, workload)


def _queued_pods(gang: Gang) -> list[JSON]:
    """Pods without a controller: a pod group of Kueue, which has gates until it is admitted."""
    [queue, _] = _queued_job(gang)
    template = gang.template(marked=False, restartPolicy="Never")
    labels = {**template["metadata"]["labels"], _QUEUE: gang.name, "kueue.x-k8s.io/pod-group-name": gang.name}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(gang.size)}
    return [queue] + [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": gang.metadata(labels=labels, annotations=annotations) | {"name": f"{gang.name}-{number}"},
            "spec": template["spec"],
        }
        for number in range(gang.size)
    ]


def in_one_rack(objects: list[JSON]) -> None:
    """Lets Kueue assign nodes of one rack to a Job."""
    queue, workload = objects
    queue["spec"]["clusterQueue"] = RACKS_QUEUE
    annotations = {"kueue.x-k8s.io/podset-required-topology": RACK}
    workload["spec"]["template"]["metadata"]["annotations"] = annotations


def admitted_in_part(objects: list[JSON]) -> None:
    """Lets Kueue admit a Job with one pod less, for which its quota has room; its Workload is the gang."""
    queue, workload = objects
    metadata, size = workload["metadata"], workload["spec"]["parallelism"]
    quota = f"{metadata['namespace']}-{metadata['name']}"
    queue["spec"]["clusterQueue"] = quota
    metadata["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    workload["spec"]["template"]["metadata"] = {
        "labels": {GANG: metadata["name"]},
        "annotations": {ASKED_FOR: "true"},
    }
    objects[:0] = kueue_quota(quota, size - 1)


def _evicted_and_admitted(gang: Gang) -> list[Patch]:
    policies = "HoldAndDrain", "None"
    return [patch_of(gang, _VERSION, "LocalQueue", {"spec": {"stopPolicy": policy}}) for policy in policies]


_SETS: Final = "no Topology in the ResourceFlavor: Kueue admits by quota, Muster places"

KUEUE: Final = (
    WorkloadKind(
        controller="kueue",
        name="Job in a queue",
        user_sets=f"as for a Job, and `kueue.x-k8s.io/queue-name`; {_SETS}",
        notes="In the scenarios the queue is stopped and started to evict and admit the Job again.",
        objects=_queued_job,
        on_failure=OnFailure.REPLACED,
        restart=_evicted_and_admitted,
        finished=has_condition("Complete"),
        documented="A Job that Kueue admits",
        is_example=True,
    ),
    WorkloadKind(
        controller="kueue",
        name="JobSet in a queue",
        user_sets=f"as for a JobSet, and `kueue.x-k8s.io/queue-name`; {_SETS}",
        objects=_queued_job_set,
        on_failure=OnFailure.RESTARTS_GANG,
        restart=_evicted_and_admitted,
        finished=has_condition("Completed"),
    ),
    WorkloadKind(
        controller="kueue",
        name="JobSet whose Workload is the gang",
        user_sets="`schedulerName` in the pod template, `kueue.x-k8s.io/queue-name`, and the annotation"
        f" `{ASKED_FOR}` in the pod template or the label of the namespace that adds it; `kueue.workloads` in Muster's"
        " chart",
        notes="The gang starts with as many pods as Kueue admitted.",
        objects=_gang_by_workload,
        on_failure=OnFailure.RESTARTS_GANG,
        restart=_evicted_and_admitted,
        finished=has_condition("Completed"),
    ),
    WorkloadKind(
        controller="kueue",
        name="Pod group in a queue",
        user_sets=f"`schedulerName` on the pods, beside what Kueue needs; {_SETS}",
        notes="Muster waits until Kueue has removed the gates of all pods. Nobody creates evicted pods again. Deleted"
        " pods keep Kueue's finalizer until the Workload is deleted, too.",
        objects=_queued_pods,
        created=lambda gang: [{"apiVersion": _VERSION, "kind": "Workload", "metadata": gang.metadata()}],
        on_failure=OnFailure.STAYS,
        recovers=False,
    ),
)
