"""The same gang in every dialect: manifests and the gang's id."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

JSON = dict[str, Any]

_IMAGE: Final = "registry.k8s.io/pause:3.10"


@dataclass(frozen=True)
class Written:
    """The manifests of a gang, in the order of their creation, and its id."""

    id: str
    objects: tuple[JSON, ...]
    term: str
    """Part of the term that `muster explain` quotes."""

    @property
    def pods(self) -> tuple[JSON, ...]:
        """The pod manifests; none if a controller creates the pods."""
        return tuple(each for each in self.objects if each["kind"] == "Pod")


def _pod(namespace: str, name: str, labels: JSON, annotations: JSON, **spec: Any) -> JSON:
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(**spec)}


def _spec(**more: Any) -> JSON:
    container = {"name": "main", "image": _IMAGE, "resources": {"requests": {"cpu": "1"}}}
    return {
        "schedulerName": "muster",
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Never",
        **more,
    }


def _object(api_version: str, kind: str, namespace: str, name: str, **content: Any) -> JSON:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **content.pop("metadata", {})},
        **content,
    }


@dataclass(frozen=True)
class _Gang:
    """The parts that are the same in all dialects. `where` is the pods' node selector."""

    namespace: str
    name: str
    size: int
    where: dict[str, str]

    def pods(self, labels: JSON | None = None, annotations: JSON | None = None, **spec: Any) -> tuple[JSON, ...]:
        names = [f"{self.name}-{number}" for number in range(self.size)]
        spec["nodeSelector"] = self.where
        return tuple(_pod(self.namespace, name, labels or {}, annotations or {}, **spec) for name in names)

    def object(self, api_version: str, kind: str, **content: Any) -> JSON:
        return _object(api_version, kind, self.namespace, self.name, **content)

    def id(self, dialect: str) -> str:
        return f"{dialect}/{self.namespace}/{self.name}"


def _koordinator_annotations(gang: _Gang) -> Written:
    prefix = "gang.scheduling.koordinator.sh/"
    marks = {prefix + "name": gang.name, prefix + "min-available": str(gang.size)}
    return Written(gang.id("koordinator"), gang.pods(annotations=marks), f"min-available: {gang.size}")


def _koordinator_pod_group(gang: _Gang) -> Written:
    group = gang.object("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", spec={"minMember": gang.size})
    pods = gang.pods({"pod-group.scheduling.sigs.k8s.io": gang.name})
    return Written(gang.id("koordinator"), (group, *pods), f"minMember: {gang.size}")


def _lightweight(gang: _Gang) -> Written:
    prefix = "pod-group.scheduling.sigs.k8s.io/"
    pods = gang.pods({prefix + "name": gang.name, prefix + "min-available": str(gang.size)})
    return Written(gang.id("lightweight"), pods, f"min-available: {gang.size}")


def _coscheduling(gang: _Gang) -> Written:
    group = gang.object("scheduling.x-k8s.io/v1alpha1", "PodGroup", spec={"minMember": gang.size})
    pods = gang.pods({"scheduling.x-k8s.io/pod-group": gang.name})
    return Written(gang.id("coscheduling"), (group, *pods), f"minMember: {gang.size}")


def _kube_batch(gang: _Gang) -> Written:
    group = gang.object("scheduling.incubator.k8s.io/v1alpha1", "PodGroup", spec={"minMember": gang.size})
    pods = gang.pods(annotations={"scheduling.k8s.io/group-name": gang.name})
    return Written(gang.id("kube-batch"), (group, *pods), f"minMember: {gang.size}")


def _batch(gang: _Gang) -> Written:
    marks = {"scheduling.k8s.io/group-name": gang.name, "scheduling.k8s.io/group-pod-num": str(gang.size)}
    return Written(gang.id("batch"), gang.pods(annotations=marks), f"group-pod-num: {gang.size}")


def _queue_job(gang: _Gang) -> Written:
    template = {"metadata": {"labels": {"job": gang.name}}, "spec": _spec(nodeSelector=gang.where)}
    job = gang.object(
        "arbitrator.incubator.k8s.io/v1alpha1",
        "QueueJob",
        spec={
            "schedulingSpec": {"minAvailable": gang.size},
            "taskSpecs": [{"replicas": gang.size, "template": template}],
            "selector": {"matchLabels": {"job": gang.name}},
        },
    )
    id_ = f"kube-arbitrator/{gang.namespace}/QueueJob.{gang.name}"
    return Written(id_, (job,), f"minAvailable: {gang.size}")


def _sakkara(gang: _Gang) -> Written:
    constraints = {"node": {"type": "pack"}}
    group = gang.object(
        "v1",
        "ConfigMap",
        metadata={"labels": {"sakkara.group": ""}},
        data={"name": gang.name, "size": str(gang.size), "constraints": json.dumps(constraints)},
    )
    return Written(gang.id("sakkara"), (group, *gang.pods({"sakkara.group.name": gang.name})), f"size: {gang.size}")


def _native(gang: _Gang) -> Written:
    policy = {"schedulingPolicy": {"gang": {"minCount": gang.size}}}
    group = gang.object("scheduling.k8s.io/v1alpha2", "PodGroup", spec=policy)
    pods = gang.pods(schedulingGroup={"podGroupName": gang.name})
    return Written(gang.id("native"), (group, *pods), f"minCount: {gang.size}")


_DIALECTS: Final[dict[str, Callable[[_Gang], Written]]] = {
    "koordinator-annotations": _koordinator_annotations,
    "koordinator": _koordinator_pod_group,
    "lightweight": _lightweight,
    "coscheduling": _coscheduling,
    "kube-batch": _kube_batch,
    "batch": _batch,
    "kube-arbitrator": _queue_job,
    "sakkara": _sakkara,
    "native": _native,
}
DIALECTS: Final = tuple(_DIALECTS)
"""Every way to declare a gang."""


def written_in(dialect: str, namespace: str, name: str, size: int, where: dict[str, str]) -> Written:
    """Returns a gang of `size` pods of 1 cpu that must start together, on nodes with these labels."""
    return _DIALECTS[dialect](_Gang(namespace, name, size, where))
