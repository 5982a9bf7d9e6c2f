"""The pods that workload controllers would create for manifests, with the labels that gangs are declared by."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from muster.gangs.quoting import quoted

Manifest = Mapping[str, Any]

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


class BadWorkload(ValueError):
    """A manifest of which the pods cannot be told. The message names it, quotes the value and says what is expected."""


def expanded(manifests: Sequence[Manifest], namespace: str, replicas: int | None = None) -> list[dict[str, Any]]:
    """The manifests, with the pods that their controllers would create instead of workloads. `namespace`: for those
    without one; `replicas`: number of pods of each template instead of that in the manifest. Raises BadWorkload.
    """
    found: list[dict[str, Any]] = []
    for manifest in manifests:
        kind = str(manifest.get("kind", ""))
        metadata = {"namespace": namespace, **(manifest.get("metadata") or {})}
        if not metadata.get("name"):
            generated = metadata.get("generateName")
            if not generated:
                raise BadWorkload(f"{kind or 'an object'} without metadata.name")
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
                raise BadWorkload(f"{kind} {metadata['name']}: more than {MAX_PODS} pods")
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
        raise BadWorkload(f"{manifest.get('kind')} {metadata['name']}: no pod template with a spec")
    own = template.get("metadata") or {}
    for index in range(count):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{prefix or metadata['name']}-{index}",
                "namespace": metadata["namespace"],
                "labels": {**(own.get("labels") or {}), **labels(index)},
                "annotations": {**(own.get("annotations") or {}), **(annotations or {})},
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
        name = manifest["metadata"]["name"]
        raise BadWorkload(f"{manifest.get('kind')} {name}: {field} {quoted(str(value))} is not a whole number")
    return value


def _spec(manifest: Manifest) -> Mapping[str, Any]:
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        raise BadWorkload(f"{manifest.get('kind')} {manifest['metadata']['name']}: no spec")
    return spec


def _single(manifest: Manifest, replicas: int | None) -> Iterator[dict[str, Any]]:
    """A pod, or copies of it."""
    if replicas is None:
        yield {**manifest, "apiVersion": "v1", "status": {"phase": "Pending"}}
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
    name = manifest["metadata"]["name"]
    for replicated in _spec(manifest).get("replicatedJobs") or ():
        job = {**manifest, "spec": (replicated.get("template") or {}).get("spec")}
        for index in range(_count(manifest, replicated.get("replicas"), "replicas")):
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
    group: dict[str, Any] = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "spec": {"minMember": spec.get("minAvailable") or 0},
    }
    pods: list[dict[str, Any]] = []
    for task in spec.get("tasks") or ():
        count = _count(manifest, task.get("replicas"), "replicas") if replicas is None else replicas
        labels = {_VOLCANO_JOB: name, _VOLCANO_TASK: str(task.get("name", ""))}
        made = _pods(
            manifest,
            task.get("template"),
            count,
            prefix=f"{name}-{task.get('name', '')}",
            labels=lambda _, labels=labels: labels,  # type: ignore[misc]
            annotations={_GROUP_ANNOTATION: name, _VOLCANO_TASK: str(task.get("name", ""))},
        )
        pods += [
            {**pod, "spec": {**pod["spec"], "schedulerName": spec.get("schedulerName", "volcano")}} for pod in made
        ]
    group["spec"]["minMember"] = group["spec"]["minMember"] or len(pods)
    yield group
    yield from pods


_CONTROLLERS: Final[Mapping[str, Callable[[Manifest, int | None], Iterator[dict[str, Any]]]]] = {
    "Pod": _single,
    "Job": _job,
    "Deployment": _replicated,
    "ReplicaSet": _replicated,
    "StatefulSet": _replicated,
    "JobSet": _job_set,
}
