"""Workloads of Volcano."""

from typing import Final

from interop.gang import JSON, RACK, SCHEDULER, Gang
from interop.workload_kind import OnFailure, Patch, Withheld, WorkloadKind, patch_of

PARTITION: Final = "volcano.sh/partition-id"
"""Label of pods."""
_VERSION: Final = "batch.volcano.sh/v1alpha1"
_IN_A_RACK: Final = {"mode": "hard", "highestTierAllowed": 1}


def _spec(gang: Gang, size: int) -> JSON:
    """A vcjob with one task: Volcano creates its PodGroup, and its pods once that is Inqueue."""
    events = gang.options.get("events", ("PodFailed", "PodEvicted"))
    return {
        "minAvailable": min(size, gang.size),
        "schedulerName": SCHEDULER,
        "queue": "default",
        "maxRetry": 100,
        "policies": [{"event": event, "action": "RestartJob"} for event in events],
        "tasks": [
            {"name": "worker", "replicas": size, "template": gang.template(marked=False, restartPolicy="Never")},
        ],
        **({"priorityClassName": gang.priority_class} if gang.priority_class else {}),
    }


def _vcjob(gang: Gang) -> list[JSON]:
    return [{"apiVersion": _VERSION, "kind": "Job", "metadata": gang.metadata(), "spec": _spec(gang, gang.size)}]


def _scaled(gang: Gang, size: int) -> list[Patch]:
    return [patch_of(gang, _VERSION, "Job", {"spec": _spec(gang, size)})]


def _finished(job: JSON) -> bool:
    phase: str = job.get("status", {}).get("state", {}).get("phase", "")
    return phase == "Completed"


def in_partitions(objects: list[JSON]) -> None:
    """Makes two partitions of the pods of a gang each, which start together, each in a HyperNode of a rack."""
    [job] = objects
    [task] = job["spec"]["tasks"]
    size, namespace = task["replicas"], job["metadata"]["namespace"]
    policy = {"totalPartitions": 2, "partitionSize": size, "minPartitions": 2}
    task |= {"replicas": 2 * size, "partitionPolicy": policy | {"networkTopology": _IN_A_RACK}}
    job["spec"]["minAvailable"] = 2 * size
    for rack in (f"{namespace}-a", f"{namespace}-b"):
        members = [{"type": "Node", "selector": {"labelMatch": {"matchLabels": {RACK: rack}}}}]
        metadata, spec = {"name": rack}, {"tier": 1, "members": members}
        objects.insert(
            0, {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": metadata, "spec": spec}
        )


def one_partition_enough(objects: list[JSON]) -> None:
    """As `in_partitions`, but one partition is enough, and a partition that is evicted is created again alone."""
    in_partitions(objects)
    job = objects[-1]
    [task] = job["spec"]["tasks"]
    task["partitionPolicy"]["minPartitions"] = 1
    job["spec"]["minAvailable"] = task["replicas"] // 2
    job["spec"]["policies"] = []


SURPLUS: Final = 2
SERVER: Final = "server"


def of_tasks_with_minima(objects: list[JSON]) -> None:
    """Makes one pod a server, and adds SURPLUS workers, which are not needed. Evicted pods are created again alone."""
    job = objects[-1]
    [task] = job["spec"]["tasks"]
    size = task["replicas"]
    server = {**task, "name": SERVER, "replicas": 1, "minAvailable": 1}
    job["spec"]["tasks"] = [{**task, "replicas": size - 1 + SURPLUS, "minAvailable": size - 1}, server]
    job["spec"]["policies"] = []


def as_native_job(objects: list[JSON]) -> None:
    """Replaces the vcjob by a Job of as many pods, whose gang is a PodGroup of Kubernetes."""
    [job] = objects
    [task] = job["spec"]["tasks"]
    size = task["replicas"]
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "scheduling": policy}
    body = {"metadata": job["metadata"], "spec": {**spec, "template": task["template"]}}
    objects[:] = [{"apiVersion": "batch/v1", "kind": "Job", **body}]


def _dependent(objects: list[JSON]) -> None:
    """Splits the task in two. `minAvailable` is what Volcano's webhook fills in."""
    [task] = objects[-1]["spec"]["tasks"]
    first = {**task, "name": "server", "replicas": 1, "minAvailable": 1}
    others = {**task, "replicas": task["replicas"] - 1, "dependsOn": {"name": ["server"]}}
    objects[-1]["spec"]["tasks"] = [first, others]


VOLCANO: Final = (
    WorkloadKind(
        controller="volcano",
        name="Job of Volcano (vcjob)",
        user_sets="`spec.schedulerName`; `policies` that restart the job when a pod fails or is evicted, and"
        " `maxRetry`, because a preemption is an eviction, too",
        notes="An elastic job leaves out these policies, so that only evicted pods are created again: they have failed,"
        " too. Volcano's webhooks fill in `queue`, `maxRetry` and task names; without them the manifest has to.",
        objects=_vcjob,
        on_failure=OnFailure.RESTARTS_GANG,
        scaled=_scaled,
        elastic={"events": ()},
        finished=_finished,
        withheld=(Withheld(_dependent, "set minAvailable to at most 1, the pods of the other tasks"),),
        documented="A vcjob",
        is_example=True,
    ),
    WorkloadKind(
        controller="volcano-scheduler",
        name="vcjob beside Volcano's scheduler",
        user_sets="`spec.schedulerName`, and `policies` as above",
        notes="Volcano's scheduler writes the status of all PodGroups, those of Muster's pods included: its queues"
        " decide when a Job may create its pods, which Muster then starts.",
        objects=_vcjob,
        on_failure=OnFailure.RESTARTS_GANG,
        scaled=_scaled,
        elastic={"events": ()},
        finished=_finished,
    ),
)
