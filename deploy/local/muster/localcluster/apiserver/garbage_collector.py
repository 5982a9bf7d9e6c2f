"""Garbage collector: deletes dependents of deleted owners in the background."""

from collections.abc import Iterable
from typing import Any

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.store import Change, Collection, Object, key_of
from muster.localcluster.apiserver.work_queue import WorkQueue

_Place = tuple[str, str]  # collection, key


class GarbageCollector:
    """Deletes objects of which no owner exists."""

    def __init__(self, cluster: Cluster, deleter: Deleter) -> None:
        self._cluster, self._deleter = cluster, deleter
        self._dependents: dict[str, set[_Place]] = {}
        """Owner's uid -> dependents; an entry ends with its last dependent."""
        self._queue: WorkQueue[_Place] = WorkQueue(self._reconcile)

    async def run(self) -> None:
        await self._queue.run()

    def note(self, collection: Collection, change: Change) -> None:
        metadata, place = change.record.metadata, (collection.name, change.record.key)
        owners = metadata.get("ownerReferences")
        previous = change.before.metadata.get("ownerReferences") if change.before is not None else None
        if change.type == "DELETED":
            self._forget(place, previous or owners or ())
            for dependent in self._dependents.get(metadata["uid"], ()):
                self._queue.add(dependent)
            return
        if owners != previous:
            self._forget(place, previous or ())
            for owner in owners or ():
                self._dependents.setdefault(owner["uid"], set()).add(place)
            if owners:
                self._queue.add(place)

    def _forget(self, place: _Place, owners: Iterable[Object]) -> None:
        for owner in owners:
            dependents = self._dependents.get(owner["uid"])
            if dependents is None:
                continue
            dependents.discard(place)
            if not dependents:
                del self._dependents[owner["uid"]]

    def _reconcile(self, place: _Place) -> None:
        record = self._cluster.store.get(*place)
        kind = self._cluster.kinds.storing(place[0])
        if record is None or kind is None:
            return
        owners: list[Any] = record.metadata.get("ownerReferences") or []
        existing = [each for each in owners if self._exists(each, place)]
        if len(existing) == len(owners):
            return
        if existing:
            metadata = {**record.metadata, "ownerReferences": existing}
            self._cluster.store.put(kind.collection, record.key, {**record.object, "metadata": metadata})
        elif "deletionTimestamp" not in record.metadata:
            self._deleter.delete_record(kind, record, {"propagationPolicy": "Background"})

    def _exists(self, owner: Object, place: _Place) -> bool:
        """Whether the referenced owner exists; an owner of a kind that is not served counts as existing."""
        kind = self._cluster.kinds.named(owner.get("apiVersion", ""), owner.get("kind", ""))
        if kind is None:
            return True
        namespace = place[1].rpartition("/")[0] if kind.namespaced else None
        record = self._cluster.store.get(kind.collection, key_of(namespace or None, owner["name"]))
        return record is not None and record.metadata["uid"] == owner["uid"]
