"""Kubernetes objects as the API serves them, and a history of changes with rising revisions."""

import itertools
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from muster.clusterstate.state import ClusterState
from muster.clusterstate.trees import Trees
from muster.dialects import coscheduling, koordinator, kube_arbitrator, native, sakkara
from muster.gangs.facts import Batch
from muster.kube.api_resources import BUDGETS, NODES, PODS, PRIORITY_CLASSES, ApiResource, definitions, topologies
from muster.kube.object_changes import ObjectChanges, Removed

SIGS_POD_GROUPS = definitions(koordinator.DEFINITION)
X_POD_GROUPS = definitions(coscheduling.DEFINITION)
NATIVE_POD_GROUPS = definitions(native.DEFINITION)
SCHEDULING_SPECS = definitions(kube_arbitrator.DEFINITION)
SAKKARA_MAPS = definitions(sakkara.DEFINITION)
TOPOLOGY_MAPS = topologies("default")

Object = dict[str, Any]

SECOND = "2026-01-01T00:00:{:02d}Z"


def pod_object(
    name: str,
    *,
    uid: str = "",
    namespace: str = "ml",
    node: str = "",
    phase: str = "Pending",
    scheduler: str = "muster",
    cpu: str = "1",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    deleting: bool = False,
    owner: str = "",
    owner_kind: str = "batch/v1 Job",
    second: int = 0,
    started: int | None = None,
    **spec: Any,
) -> Object:
    """A pod as the API serves it. `second`: creation time; `started`: start time; `owner`: uid and name of its
    controller.
    """
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": SECOND.format(second),
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if deleting:
        metadata["deletionTimestamp"] = SECOND.format(second + 1)
    if owner:
        metadata["ownerReferences"] = [controller(owner, owner_kind)]
    content = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
        **spec,
    }
    if node:
        content["nodeName"] = node
    status = {"phase": phase} if started is None else {"phase": phase, "startTime": SECOND.format(started)}
    return {"metadata": metadata, "spec": content, "status": status}


def controller(uid: str, kind: str = "batch/v1 Job") -> Object:
    """The ownerReference of a controller whose name is its uid; `kind`: apiVersion and kind."""
    api_version, _, name = kind.rpartition(" ")
    return {"uid": uid, "controller": True, "apiVersion": api_version, "kind": name, "name": uid}


def scheduling_spec_object(
    name: str,
    owner: str = "",
    *,
    owner_kind: str = "batch/v1 Job",
    namespace: str = "ml",
    uid: str = "",
    second: int = 0,
    **spec: Any,
) -> Object:
    """A SchedulingSpec as the API serves it."""
    metadata: Object = {"name": name, "namespace": namespace, "uid": uid or f"uid-spec-{name}"}
    metadata["creationTimestamp"] = SECOND.format(second)
    if owner:
        metadata["ownerReferences"] = [controller(owner, owner_kind)]
    return {
        "apiVersion": "arbitrator.incubator.k8s.io/v1alpha1",
        "kind": "SchedulingSpec",
        "metadata": metadata,
        "spec": spec,
    }


def node_object(
    name: str,
    *,
    uid: str = "",
    cpu: str = "8",
    ready: bool = True,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A node as the API serves it."""
    shown = {"kubernetes.io/hostname": name, **(labels or {})}
    return {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": shown},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod_group_object(
    name: str, *, minimum: Any = 2, uid: str = "", namespace: str = "ml", group: str = "scheduling.x-k8s.io"
) -> Object:
    """A PodGroup as the API serves it."""
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-group-{name}"},
        "spec": {"minMember": minimum},
    }


def native_pod_group_object(
    name: str, policy: Any = None, *, owner: str = "", uid: str = "", namespace: str = "ml", **spec: Any
) -> Object:
    """A native PodGroup as the API serves it, basic by default. `owner`: uid and name of the Job that made it."""
    metadata: Object = {"name": name, "namespace": namespace, "uid": uid or f"uid-native-{name}"}
    if owner:
        metadata["ownerReferences"] = [controller(owner)]
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"schedulingPolicy": {"basic": {}} if policy is None else policy, **spec},
    }


def priority_class_object(name: str, value: int, *, is_default: bool = False, **more: Any) -> Object:
    """A PriorityClass as the API serves it."""
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "value": value, "globalDefault": is_default, **more}


def budget_object(
    name: str, selector: Any = None, *, allowed: Any = 1, uid: str = "", namespace: str = "ml", **spec: Any
) -> Object:
    """A PodDisruptionBudget as the API serves it, with an up-to-date status."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-budget-{name}", "generation": 2},
        "spec": {"minAvailable": 1, "selector": selector, **spec},
        "status": {"observedGeneration": 2, "disruptionsAllowed": allowed},
    }


def topology_map_object(map_name: str, tree: Any, /, *, uid: str = "", second: int = 0, **data: str) -> Object:
    """A ConfigMap that defines a topology tree; `name` and `level_names` in `data` are those of the tree."""
    text = tree if isinstance(tree, str) else msgspec.json.encode(tree).decode()
    return {
        "metadata": {
            "name": map_name,
            "namespace": "default",
            "uid": uid or f"uid-map-{map_name}",
            "creationTimestamp": SECOND.format(second),
            "labels": {"sakkara.topology": ""},
        },
        "data": {"tree": text, **{key.replace("_", "-"): value for key, value in data.items()}},
    }


def sakkara_map_object(map_name: str, /, *, uid: str = "", second: int = 0, **data: str) -> Object:
    """A ConfigMap in namespace ml that defines a Sakkara group."""
    return {
        "metadata": {
            "name": map_name,
            "namespace": "ml",
            "uid": uid or f"uid-group-{map_name}",
            "creationTimestamp": SECOND.format(second),
            "labels": {"sakkara.group": ""},
        },
        "data": data,
    }


def settle(state: ClusterState, unread: Iterable[str] = ()) -> None:
    """Settle a state in one piece."""
    for _ in state.settle(unread):
        pass


class History:
    """Applies changes to a ClusterState, each with the next revision."""

    def __init__(
        self,
        *scheduler_names: str,
        settled: bool = True,
        trees: Trees | None = None,
        waiting_kinds: Collection[str] = (),
    ) -> None:
        self.state = ClusterState(scheduler_names or ("muster",), trees, waiting_kinds)
        self.revision = 0
        self._count = itertools.count(1)
        if settled:
            settle(self.state)

    def put(self, resource: ApiResource[Any], *objects: Object) -> Batch:
        """Add or update objects in one batch."""
        return self._apply(resource, [self.stamped(resource, each) for each in objects], self.revision)

    def pods(self, *pods: Object) -> Batch:
        return self.put(PODS, *pods)

    def nodes(self, *nodes: Object) -> Batch:
        return self.put(NODES, *nodes)

    def pod_groups(self, *groups: Object) -> Batch:
        sigs = groups[0]["apiVersion"].startswith("scheduling.sigs")
        return self.put(SIGS_POD_GROUPS if sigs else X_POD_GROUPS, *groups)

    def specs(self, *specs: Object) -> Batch:
        return self.put(SCHEDULING_SPECS, *specs)

    def priority_classes(self, *classes: Object) -> Batch:
        return self.put(PRIORITY_CLASSES, *classes)

    def remove(self, resource: ApiResource[Any], *uids: str) -> Batch:
        """Remove objects in one batch."""
        return self._apply(resource, [Removed(uid, self._next()) for uid in uids], self.revision)

    def mixed(self, resource: ApiResource[Any], items: list[Object | str]) -> Batch:
        """Add or update objects and remove others, given by their uids, in one batch."""
        changes = [
            Removed(item, self._next()) if isinstance(item, str) else self.stamped(resource, item) for item in items
        ]
        return self._apply(resource, changes, self.revision)

    def page(self, resource: ApiResource[Any], *objects: Object) -> Batch:
        """A page of a list, without the revision up to which the kind is known."""
        return self._apply(resource, [self.stamped(resource, each) for each in objects])

    def topologies(self, *maps: Object) -> Batch:
        return self.put(TOPOLOGY_MAPS, *maps)

    def budgets(self, *budgets: Object) -> Batch:
        return self.put(BUDGETS, *budgets)

    def review(self) -> Batch:
        """Complete what changes have left, then update trees after node changes."""
        while self.state.has_work:
            self.state.advance()
        return self.state.review()

    def _apply(self, resource: ApiResource[Any], items: list[Any], through: int = 0) -> Batch:
        batch, left = self.state.apply(ObjectChanges(resource.kind, items, through))
        assert left is None, "without a clock"
        return batch

    def _next(self) -> int:
        self.revision = next(self._count)
        return self.revision

    def stamped(self, resource: ApiResource[Any], each: Object) -> Any:
        """The object, decoded, with the next revision."""
        each["metadata"]["resourceVersion"] = str(self._next())
        return resource.decode(msgspec.json.encode(each))
