"""QueueJobs as manifests, and as their controller reads them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.kube.pod_facts import Priorities
from muster.lifecycle.queue_jobs.job import Job, decode_queue_job, read_job

Object = dict[str, Any]

PRIORITIES = Priorities({"high": 100, "low": 1})


def template(*, cpu: str = "1", labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """Returns a pod template."""
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    content = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
    return {"metadata": {"labels": dict(labels or {})}, "spec": content}


def queue_job(
    name: str = "train", *tasks: tuple[int, Object], minimum: Any = None, namespace: str = "default", **more: Any
) -> Object:
    """Returns a QueueJob; each task is (replicas, template). `scheduling` is the rest of its schedulingSpec."""
    scheduling = dict(more.pop("scheduling", {}))
    if minimum is not None:
        scheduling["minAvailable"] = minimum
    written = [{"replicas": replicas, "template": each} for replicas, each in tasks]
    return {
        "apiVersion": "arbitrator.incubator.k8s.io/v1alpha1",
        "kind": "QueueJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingSpec": scheduling, "taskSpecs": written, **more},
    }


def read(written: Object, *, uid: str = "uid-job", status: Object | None = None, revision: int = 1) -> Job:
    """Reads the job as its controller does."""
    metadata = {"uid": uid, "resourceVersion": str(revision), **written["metadata"]}
    content = {**written, "metadata": metadata, **({"status": status} if status is not None else {})}
    return read_job(decode_queue_job(msgspec.json.encode(content)), PRIORITIES)
