"""Manifests of a QueueJob's pods and SchedulingSpec, and the pods read back."""

import copy
from collections.abc import Mapping
from typing import Any, Final

from muster.dialects import kube_arbitrator
from muster.kube.objects import Pod
from muster.lifecycle.queue_jobs.job import API_VERSION, KIND, Job, Object
from muster.lifecycle.queue_jobs.plan import JobPod, Slot, pod_name

JOB_LABEL: Final = "muster.dev/queue-job"
"""Label of a job's pods with the job's name, for `kubectl get pods -l`."""

_TASK: Final = "muster.dev/queue-job-task"
_INDEX: Final = "muster.dev/queue-job-index"
_INCARNATION: Final = "muster.dev/queue-job-incarnation"
_TEMPLATES: Final = "muster.dev/queue-job-templates"
MAX_LABEL_LENGTH: Final = 63


def pod_manifest(job: Job, slot: Slot, scheduler_name: str) -> Object:
    """Returns the pod for a slot. Scheduler and priority class default to Muster's and the job's."""
    task = job.tasks[slot.task]
    of_template: Mapping[str, Any] = task.template["metadata"]
    labels = dict(of_template.get("labels") or {})
    if len(job.name) <= MAX_LABEL_LENGTH:
        labels[JOB_LABEL] = job.name
    own = {_TASK: str(slot.task), _INDEX: str(slot.index)}
    own |= {_INCARNATION: str(job.status.incarnation), _TEMPLATES: job.status.templates}
    spec = copy.deepcopy(task.template["spec"])
    if not spec.get("schedulerName"):
        spec["schedulerName"] = scheduler_name
    class_name = job.scheduling.get("priorityClassName")
    if class_name and not spec.get("priorityClassName") and spec.get("priority") is None:
        spec["priorityClassName"] = class_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job, slot),
            "namespace": job.namespace,
            "labels": labels,
            "annotations": {**(of_template.get("annotations") or {}), **own},
            "ownerReferences": [_owner(job)],
        },
        "spec": spec,
    }


def scheduling_spec_manifest(job: Job) -> Object:
    """Returns the job's SchedulingSpec."""
    definition = kube_arbitrator.DEFINITION
    return {
        "apiVersion": definition.api_version,
        "kind": definition.kind,
        "metadata": {"name": job.name, "namespace": job.namespace, "ownerReferences": [_owner(job)]},
        "spec": dict(job.scheduling),
    }


def job_pod(pod: Pod) -> tuple[str, JobPod] | None:
    """Returns the uid of the QueueJob that controls a pod, and the pod; None if no QueueJob controls it."""
    owner = pod.metadata.controlling
    if owner is None or owner.kind != KIND or owner.api_version.partition("/")[0] != API_VERSION.partition("/")[0]:
        return None
    annotations = pod.metadata.annotations or {}
    return owner.uid, JobPod(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        task=_number(annotations.get(_TASK), -1),
        index=_number(annotations.get(_INDEX), -1),
        incarnation=_number(annotations.get(_INCARNATION), 0),
        templates=annotations.get(_TEMPLATES, ""),
        phase=pod.status.phase or "Pending",
        scheduled=bool(pod.spec.node_name),
        deleting=pod.metadata.deletion_timestamp is not None,
    )


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """Returns the JSON merge patch from `before` to `after`."""
    patch: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            if inner := merge_patch(known, value):
                patch[key] = inner
        elif key not in before or known != value:
            patch[key] = value
    return patch


def _owner(job: Job) -> Object:
    reference = {"apiVersion": API_VERSION, "kind": KIND, "name": job.name, "uid": job.uid}
    return reference | {"controller": True, "blockOwnerDeletion": True}


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else default
