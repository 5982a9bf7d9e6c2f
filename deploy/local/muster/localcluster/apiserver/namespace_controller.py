"""Namespace controller: deletes the objects of terminating namespaces, then the namespaces."""

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.store import Change, Collection
from muster.localcluster.apiserver.work_queue import WorkQueue

_NAMESPACES = "namespaces"


class NamespaceCleaner:
    """Reconciles a terminating namespace whenever one of its objects is removed."""

    def __init__(self, cluster: Cluster, deleter: Deleter) -> None:
        self._cluster, self._deleter = cluster, deleter
        self._terminating: set[str] = set()
        self._queue: WorkQueue[str] = WorkQueue(self._clean)

    async def run(self) -> None:
        await self._queue.run()

    def note(self, collection: Collection, change: Change) -> None:
        metadata = change.record.metadata
        if collection.name == _NAMESPACES:
            if change.type == "DELETED":
                self._terminating.discard(metadata["name"])
            elif "deletionTimestamp" in metadata:
                self._terminating.add(metadata["name"])
                self._queue.add(metadata["name"])
        elif self._terminating and metadata.get("namespace") in self._terminating:
            self._queue.add(metadata["namespace"])

    def _clean(self, namespace: str) -> None:
        record = self._cluster.store.get(_NAMESPACES, namespace)
        if record is None or "deletionTimestamp" not in record.metadata:
            return
        prefix, remaining = f"{namespace}/", False
        for collection in list(self._cluster.store.collections.values()):
            kind = self._cluster.kinds.storing(collection.name)
            if kind is None or not kind.namespaced:
                continue
            for each in [each for key, each in collection.records.items() if key.startswith(prefix)]:
                removed = False
                if "deletionTimestamp" not in each.metadata:
                    _, removed = self._deleter.delete_record(kind, each, {"propagationPolicy": "Background"})
                remaining = remaining or not removed
        if not remaining and not record.metadata.get("finalizers"):
            last = {**record.object, "spec": {**(record.object.get("spec") or {}), "finalizers": []}}
            self._cluster.store.remove(_NAMESPACES, namespace, last)
