"""Node lifecycle controller: taints nodes by their conditions, and marks nodes with expired leases as unknown."""

import asyncio
import time
from typing import Any, Final

from muster.localcluster.apiserver.clock import now_text, parse_time
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.store import Change, Collection, Object, Record
from muster.localcluster.apiserver.work_queue import WorkQueue

_NODES: Final = "nodes"
_LEASES: Final = "leases.coordination.k8s.io"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_CORDONED: Final = "node.kubernetes.io/unschedulable"
_MANAGED: Final = (_NOT_READY, _UNREACHABLE, _CORDONED)


class NodeLifecycle:
    """Reconciles taints with conditions, and conditions with leases."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: WorkQueue[str] = WorkQueue(self._set_taints)

    async def run(self) -> None:
        watch = asyncio.create_task(self._watch_leases())
        try:
            await self._queue.run()
        finally:
            watch.cancel()

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name == _NODES and change.type != "DELETED":
            self._queue.add(change.record.key)

    def _set_taints(self, name: str) -> None:
        record = self._cluster.store.get(_NODES, name)
        if record is None:
            return
        spec = record.object.get("spec") or {}
        present: list[Any] = spec.get("taints") or []
        desired = _desired_taints(record.object)
        remaining = [each for each in present if each.get("key") not in _MANAGED or _matching(each, desired)]
        added = [each for each in desired if not _matching(each, present)]
        if not added and len(remaining) == len(present):
            return
        spec = {name: value for name, value in spec.items() if name != "taints"}
        if remaining or added:
            spec["taints"] = remaining + [{**each, "timeAdded": now_text()} for each in added]
        changed = {**record.object, "metadata": dict(record.metadata), "spec": spec}
        self._cluster.store.put(_NODES, name, changed)

    async def _watch_leases(self) -> None:
        grace = self._cluster.timing.node_grace_seconds
        while True:
            await asyncio.sleep(grace / 8)
            now = time.time()
            for record in list(self._cluster.store.collection(_NODES).records.values()):
                renewed = self._last_renewal(record)
                if renewed is not None and now - renewed > grace:
                    self._set_unknown(record)

    def _last_renewal(self, node: Record) -> float | None:
        """Time of the last renewal of the node's lease; None if it has none."""
        lease = self._cluster.store.get(_LEASES, f"kube-node-lease/{node.metadata['name']}")
        return None if lease is None else parse_time((lease.object.get("spec") or {}).get("renewTime"))

    def _set_unknown(self, record: Record) -> None:
        status = record.object.get("status") or {}
        conditions: list[Any] = status.get("conditions") or []
        if all(each.get("status") == "Unknown" for each in conditions):
            return
        unknown = {
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": now_text(),
        }
        changed = {**record.object, "metadata": dict(record.metadata)}
        changed["status"] = {**status, "conditions": [{**each, **unknown} for each in conditions]}
        self._cluster.store.put(_NODES, record.key, changed)


def _desired_taints(node: Object) -> list[Object]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    taints = []
    if ready == "Unknown":
        taints += [{"key": _UNREACHABLE, "effect": "NoSchedule"}, {"key": _UNREACHABLE, "effect": "NoExecute"}]
    elif ready == "False":
        taints += [{"key": _NOT_READY, "effect": "NoSchedule"}, {"key": _NOT_READY, "effect": "NoExecute"}]
    elif ready is None:
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append({"key": _CORDONED, "effect": "NoSchedule"})
    return taints


def _matching(taint: Object, candidates: list[Any]) -> bool:
    return any((taint.get("key"), taint.get("effect")) == (each.get("key"), each.get("effect")) for each in candidates)
