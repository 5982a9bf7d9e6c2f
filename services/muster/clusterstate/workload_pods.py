"""The pods that workload controllers would create for manifests, with the labels that gangs are declared by."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from muster.clusterstate.manifest_fields import BadWorkload, Manifest, mapping_in, name_of, objects_in
from muster.clusterstate.manifest_size import MAX_TOTAL_SIZE, size_of
from muster.gangs.quoting import quoted

MAX_PODS: Final = 10_000
"""Pods of all manifests together."""
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_VOLCANO_JOB: Final = "volcano.sh/job-name"
_VOLCANO_TASK: Final = "volcano.sh/task-spec"
_GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"


def expanded(manifests: Sequence[Manifest], namespace: str, replicas: int | None = None) -> list[dict[str, Any]]:
    """The manifests, with the pods that their controllers would create instead of workloads. `namespace`: for those
    without one; `replicas`: number of pods of each template instead of that in the manifest. Raises BadWorkload.
    """
    found: list[dict[str, Any]] = []
    size = 0
    for manifest in manifests:
        kind = str(manifest.get("kind", ""))
        metadata = {"namespace": namespace, **mapping_in(manifest, "metadata", manifest)}
        if not metadata.get("name"):
            generated = metadata.get("generateName")
            if not generated:
                raise BadWorkload(f"{name_of(manifest)} without metadata.name")
            metadata["name"] = f"{generated}new"
        whole = {**manifest, "metadata": metadata}
        volcano = str(manifest.get("apiVersion", "")).startswith("batch.volcano.sh/")
        create = _volcano_job if volcano and kind == "Job" else _CONTROLLERS.get(kind)
        if create is None:
            found.append(whole)
            continue
        for pod in create(whole, replicas):
            found.append(pod)
            if len(found) > MAX_PODS:
                raise BadWorkload(f"{name_of(whole)}: more than {MAX_PODS} pods")
            size += size_of(pod)
            if size > MAX_TOTAL_SIZE:
                raise BadWorkload(
                    f"{name_of(whole)}: with its pods the manifests are larger than {MAX_TOTAL_SIZE >> 20} MiB: "
                    "ask about fewer pods, or leave out long annotations"
                )
    return found


def _pods(
    manifest: Manifest,
    template: Any,
    count: int,
    *,
    prefix: str = "",
    labels: Callable[[int], Mapping[str, str]] = lambda _: {},
    annotations: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Equal pods of a template, named after their controller."""
    metadata = manifest["metadata"]
    if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
        raise BadWorkload(f"{name_of(manifest)}: no pod template with a spec")
    own = mapping_in(template, "metadata", manifest)
    own_labels, own_annotations = (mapping_in(own, field, manifest) for field in ("labels", "annotations"))
    for index in range(count):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{prefix or metadata['name']}-{index}",
                "namespace": metadata["namespace"],
                "labels": {**own_labels, **labels(index)},
                "annotations": {**own_annotations, **(annotations or {})},
                "ownerReferences": [
                    {
                        "apiVersion": manifest.get("apiVersion", ""),
                        "kind": manifest.get("kind", ""),
                        "name": metadata["name"],
                        "uid": f"new/{manifest.get('kind')}/{metadata['name']}",
                        "controller": True,
                    }
                ],
            },
            "spec": copy.deepcopy(dict(template["spec"])),
            "status": {"phase": "Pending"},
        }


def _count(manifest: Manifest, value: Any, field: str, default: int = 1) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadWorkload(f"{name_of(manifest)}: {field} {quoted(str(value))} is not a whole number")
    return value


def _spec(manifest: Manifest) -> Mapping[str, Any]:
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        raise BadWorkload(f"{name_of(manifest)}: no spec")
    return spec


def _single(manifest: Manifest, replicas: int | None) -> Iterator[dict[str, Any]]:
    """A pod, or copies of it."""
    if replicas is None:
        metadata, spec = dict(manifest["metadata"]), dict(_spec(manifest))
        metadata["annotations"] = dict(mapping_in(metadata, "annotations", manifest))
        status = {"phase": "Pending"}
        yield {**manifest, "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}
    else:
        yield from _pods(manifest, manifest, replicas)


def _job(manifest: Manifest, replicas: int | None, prefix: str = "", **more: str) -> Iterator[dict[str, Any]]:
    spec, name = _spec(manifest), prefix or manifest["metadata"]["name"]
    parallelism = _count(manifest, spec.get("parallelism"), "parallelism")
    completions = spec.get("completions")
    count = parallelism if completions is None else min(parallelism, _count(manifest, completions, "completions"))
    indexed = spec.get("completionMode") == "Indexed"

    def labels(index: int) -> Mapping[str, str]:
        return {_JOB_NAME: name, "job-name": name, **({_JOB_INDEX: str(index)} if indexed else {}), **more}

    return _pods(manifest, spec.get("template"), count if replicas is None else replicas, prefix=name, labels=labels)


def _replicated(manifest: Manifest, replicas: int | None) -> Iterator[dict[str, Any]]:
    """Deployments, ReplicaSets and StatefulSets."""
    spec = _spec(manifest)
    count = _count(manifest, spec.get("replicas"), "replicas") if replicas is None else replicas
    ordered = manifest.get("kind") == "StatefulSet"
    return _pods(
        manifest, spec.get("template"), count, labels=lambda index: {_POD_INDEX: str(index)} if ordered else {}
    )


def _job_set(manifest: Manifest, replicas: int | None) -> Iterator[dict[str, Any]]:
    name, jobs = manifest["metadata"]["name"], 0
    for replicated in objects_in(_spec(manifest), "replicatedJobs", manifest):
        job = {**manifest, "spec": mapping_in(replicated, "template", manifest).get("spec")}
        replicas_of_job = _count(manifest, replicated.get("replicas"), "replicas")
        jobs += replicas_of_job
        if jobs > MAX_PODS:
            raise BadWorkload(f"{name_of(manifest)}: more than {MAX_PODS} jobs")
        for index in range(replicas_of_job):
            labels = {
                _JOBSET_NAME: name,
                _REPLICATED_JOB: str(replicated.get("name", "")),
                _JOB_GLOBAL_INDEX: str(index),
            }
            yield from _job(job, replicas, f"{name}-{replicated.get('name', '')}-{index}", **labels)


def _volcano_job(manifest: Manifest, replicas: int | None) -> Iterator[dict[str, Any]]:
    """A vcjob's pods; its controller also creates the PodGroup that they name."""
    spec, metadata = _spec(manifest), manifest["metadata"]
    name = metadata["name"]
    tasks = objects_in(spec, "tasks", manifest)
    counts = [_count(manifest, each.get("replicas"), "replicas") if replicas is None else replicas for each in tasks]
    yield {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "spec": {"minMember": spec.get("minAvailable") or sum(counts)},
    }
    for task, count in zip(tasks, counts, strict=True):
        labels = {_VOLCANO_JOB: name, _VOLCANO_TASK: str(task.get("name", ""))}
        made = _pods(
            manifest,
            task.get("template"),
            count,
            prefix=f"{name}-{task.get('name', '')}",
            labels=lambda _, labels=labels: labels,  # type: ignore[misc]
            annotations={_GROUP_ANNOTATION: name, _VOLCANO_TASK: str(task.get("name", ""))},
        )
        for pod in made:
            yield {**pod, "spec": {**pod["spec"], "schedulerName": spec.get("schedulerName", "volcano")}}


_CONTROLLERS: Final[Mapping[str, Callable[[Manifest, int | None], Iterator[dict[str, Any]]]]] = {
    "Pod": _single,
    "Job": _job,
    "Deployment": _replicated,
    "ReplicaSet": _replicated,
    "StatefulSet": _replicated,
    "JobSet": _job_set,
}
