"""Pods from a Job's template."""

from typing import Any, Final

from muster.localcluster.apiserver.store import Object

INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Label and annotation with the completion index of an indexed job's pods."""


def pod_of(job: Object, index: int | None) -> Object:
    """Pod of the job, with a completion index if the job is indexed."""
    metadata, template = job["metadata"], job["spec"]["template"]
    of_template = template.get("metadata") or {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    labels, annotations = dict(of_template.get("labels") or {}), dict(of_template.get("annotations") or {})
    spec = _copied(template["spec"])
    base = f"{metadata['name']}-"
    if index is not None:
        base = f"{metadata['name']}-{index}-"
        labels[INDEX] = annotations[INDEX] = str(index)
        spec.setdefault("hostname", f"{metadata['name']}-{index}")
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
    described: Object = {"generateName": base, "labels": labels, "annotations": annotations}
    described["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": described, "spec": spec}


def _copied(value: Any) -> Any:
    """Copy of a JSON tree, since stored objects must not be modified."""
    if isinstance(value, dict):
        return {name: _copied(member) for name, member in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
