"""Jobs of Volcano, and the objects that Volcano's controllers create for them."""

import copy
from collections.abc import Mapping
from typing import Any, Final

from builders.gangs.open_kinds import open_kind

Object = dict[str, Any]

JOB_VERSION: Final = "batch.volcano.sh/v1alpha1"
JOB_KIND: Final[Object] = open_kind("batch.volcano.sh", "v1alpha1", "Job", "jobs")


def volcano_job(name: str, namespace: str, scheduler: str, where: Mapping[str, str], **tasks: int) -> Object:
    """Returns a Job with this many pods of 1 cpu of each task, all of which start together."""
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "nodeSelector": {**where}}
    return {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "minAvailable": sum(tasks.values()),
            "schedulerName": scheduler,
            "queue": "default",
            "tasks": [
                {"name": task, "replicas": replicas, "template": {"spec": {**spec, "containers": [container]}}}
                for task, replicas in tasks.items()
            ],
        },
    }


def group_name(job: Mapping[str, Any]) -> str:
    """Returns the name of the PodGroup of a Job, as stored."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def pod_group_of(job: Mapping[str, Any]) -> Object:
    """Returns the PodGroup of a Job, without a status."""
    spec = job["spec"]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": group_name(job), **_owned(job)},
        "spec": {
            "minMember": spec["minAvailable"],
            "minTaskMember": {task["name"]: task["replicas"] for task in spec["tasks"]},
            "minResources": {"cpu": str(spec["minAvailable"])},
            "queue": spec["queue"],
        },
    }


def pods_of(job: Mapping[str, Any]) -> list[Object]:
    """Returns all pods of a Job, which its controller creates once the phase of the PodGroup is Inqueue."""
    return [_pod(job, task, index) for task in job["spec"]["tasks"] for index in range(task["replicas"])]


def _owned(job: Mapping[str, Any]) -> Object:
    metadata = job["metadata"]
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {key: metadata[key] for key in ("name", "uid")}
    return {"namespace": metadata["namespace"], "ownerReferences": [owner | {"controller": True}]}


def _pod(job: Mapping[str, Any], task: Mapping[str, Any], index: int) -> Object:
    """A pod of a task. The template's schedulerName has precedence over the Job's."""
    template = copy.deepcopy(task["template"])
    given = template.get("metadata", {}).get("annotations", {})
    marks = {
        "scheduling.k8s.io/group-name": group_name(job),
        "volcano.sh/job-name": job["metadata"]["name"],
        "volcano.sh/queue-name": job["spec"]["queue"],
        "volcano.sh/task-index": str(index),
        "volcano.sh/task-spec": task["name"],
    }
    labels = {key: value for key, value in marks.items() if key.startswith("volcano.sh/")}
    name = f"{job['metadata']['name']}-{task['name']}-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": given | marks, "labels": labels, **_owned(job)},
        "spec": {"schedulerName": job["spec"]["schedulerName"], **template["spec"]},
    }
