"""Garbage collector: deletes or orphans dependents of deleted owners."""

from collections.abc import Iterable
from typing import Any

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.delete import FOREGROUND, ORPHAN, Deleter, drop_finalizer
from muster.localcluster.apiserver.kinds import Kind
from muster.localcluster.apiserver.store import Change, Collection, Object, Record, key_of
from muster.localcluster.apiserver.work_queue import WorkQueue

_Place = tuple[str, str]  # collection, key


class GarbageCollector:
    """Deletes or orphans dependents, and completes foreground deletion of owners."""

    def __init__(self, cluster: Cluster, deleter: Deleter) -> None:
        self._cluster, self._deleter = cluster, deleter
        self._dependents: dict[str, set[_Place]] = {}  # by the owner's uid
        self._queue: WorkQueue[_Place] = WorkQueue(self._look_at)

    async def run(self) -> None:
        await self._queue.run()

    def note(self, collection: Collection, change: Change) -> None:
        metadata, place = change.record.metadata, (collection.name, change.record.key)
        owners = metadata.get("ownerReferences")
        former = change.before.metadata.get("ownerReferences") if change.before is not None else None
        if change.type == "DELETED":
            self._forget(place, former or owners or ())
            for dependent in self._dependents.get(metadata["uid"], ()):
                self._queue.add(dependent)
            return
        if owners != former:
            self._forget(place, former or ())
            for owner in owners or ():
                self._dependents.setdefault(owner["uid"], set()).add(place)
            if owners:
                self._queue.add(place)
        if "deletionTimestamp" in metadata and metadata.get("finalizers"):
            self._queue.add(place)

    def _forget(self, place: _Place, owners: Iterable[Object]) -> None:
        for owner in owners:
            dependents = self._dependents.get(owner["uid"])
            if dependents is None:
                continue
            dependents.discard(place)
            if not dependents:
                del self._dependents[owner["uid"]]
            if (waiting := self._owner(owner, place)) is not None and "deletionTimestamp" in waiting[1].metadata:
                self._queue.add((waiting[0].collection, waiting[1].key))

    def _look_at(self, place: _Place) -> None:
        record = self._cluster.store.get(*place)
        kind = self._cluster.kinds.storing(place[0])
        if record is None or kind is None:
            return
        finalizers = record.metadata.get("finalizers") or ()
        if "deletionTimestamp" in record.metadata and (ORPHAN in finalizers or FOREGROUND in finalizers):
            self._finish_owner(kind, record)
        elif record.metadata.get("ownerReferences"):
            self._check_owners(kind, record)

    def _check_owners(self, kind: Kind, record: Record) -> None:
        owners: list[Any] = record.metadata["ownerReferences"]
        place = (kind.collection, record.key)
        # An owner of a kind that is not served is not considered missing.
        solid = [each for each in owners if self._kind_of(each) is None or self._owner(each, place) is not None]
        if len(solid) == len(owners):
            return
        if solid:
            self._set_owners(kind, record, solid)
        elif "deletionTimestamp" not in record.metadata:
            self._deleter.delete_record(kind, record, {"propagationPolicy": "Background"})

    def _finish_owner(self, kind: Kind, record: Record) -> None:
        uid = record.metadata["uid"]
        dependents = list(self._dependents.get(uid, ()))
        if ORPHAN in record.metadata["finalizers"]:
            for collection, key in dependents:
                dependent, of = self._cluster.store.get(collection, key), self._cluster.kinds.storing(collection)
                if dependent is not None and of is not None:
                    owners = [each for each in dependent.metadata["ownerReferences"] if each["uid"] != uid]
                    self._set_owners(of, dependent, owners)
            drop_finalizer(self._cluster.store, kind.collection, record, ORPHAN)
        elif not dependents:
            drop_finalizer(self._cluster.store, kind.collection, record, FOREGROUND)
        else:
            for collection, key in dependents:
                self._delete_in_foreground(collection, key)

    def _delete_in_foreground(self, collection: str, key: str) -> None:
        record, kind = self._cluster.store.get(collection, key), self._cluster.kinds.storing(collection)
        if record is None or kind is None or "deletionTimestamp" in record.metadata:
            return
        has_dependents = record.metadata["uid"] in self._dependents
        policy = "Foreground" if has_dependents else "Background"
        self._deleter.delete_record(kind, record, {"propagationPolicy": policy})

    def _set_owners(self, kind: Kind, record: Record, owners: list[Any]) -> None:
        metadata = {name: value for name, value in record.metadata.items() if name != "ownerReferences"}
        if owners:
            metadata["ownerReferences"] = owners
        self._cluster.store.put(kind.collection, record.key, {**record.object, "metadata": metadata})

    def _kind_of(self, owner: Object) -> Kind | None:
        return self._cluster.kinds.named(owner.get("apiVersion", ""), owner.get("kind", ""))

    def _owner(self, owner: Object, place: _Place) -> tuple[Kind, Record] | None:
        """The referenced owner, if it exists."""
        kind = self._kind_of(owner)
        if kind is None:
            return None
        namespace = place[1].rpartition("/")[0] if kind.namespaced else None
        record = self._cluster.store.get(kind.collection, key_of(namespace or None, owner["name"]))
        return (kind, record) if record is not None and record.metadata["uid"] == owner["uid"] else None
