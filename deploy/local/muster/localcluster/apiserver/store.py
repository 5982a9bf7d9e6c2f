"""In-memory store: objects by collection, one increasing revision, and a window of history.

Stored objects are immutable JSON trees: a change is a new tree, which may share parts with the previous one. An object
is encoded at most once per version; lists and all watches share the bytes.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

Object = dict[str, Any]
"""Kubernetes object as decoded JSON; `kind` and `apiVersion` are its first keys."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_encoder: Final = msgspec.json.Encoder()


class HistoryGone(Exception):
    """The revision is older than the window of history."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")


class Record:
    """One version of an object."""

    __slots__ = ("_encoded", "key", "object", "revision")

    def __init__(self, key: str, obj: Object, revision: int) -> None:
        self.key, self.object, self.revision = key, obj, revision
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._encoded is None:
            self._encoded = _encoder.encode(self.object)
        return self._encoded

    @property
    def metadata(self) -> Object:
        return self.object["metadata"]  # type: ignore[no-any-return]


class Change:
    """Change of an object at a revision; after a deletion `record` has its last state."""

    __slots__ = ("_line", "before", "record", "type")

    def __init__(self, change_type: ChangeType, record: Record, before: Record | None) -> None:
        self.type, self.record, self.before = change_type, record, before
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The change as a watch event."""
        if self._line is None:
            self._line = event_line(self.type, self.record.encoded)
        return self._line


def event_line(change_type: str, encoded: bytes) -> bytes:
    """Watch event as a line of JSON."""
    return b'{"type":"%b","object":%b}\n' % (change_type.encode(), encoded)


class Collection:
    """All objects of a resource, and their latest changes."""

    def __init__(self, name: str, window: int) -> None:
        self.name = name
        self.records: dict[str, Record] = {}
        self.changes: list[Change] = []
        self.forgotten = 0
        """Changes up to this revision have been dropped from `changes`."""
        self.closed = False
        """Whether the resource is no longer served; its watches end."""
        self._window = window
        self._waiting: set[asyncio.Event] = set()

    def since(self, revision: int) -> list[Change]:
        """Changes after a revision, oldest first. Raises HistoryGone."""
        if revision < self.forgotten:
            raise HistoryGone(revision, self.forgotten)
        changes = self.changes
        if not changes or changes[-1].record.revision <= revision:
            return []
        return changes[bisect_right(changes, revision, key=_revision_of) :]

    def watch(self, wake: asyncio.Event) -> None:
        """Set the event at every later change."""
        self._waiting.add(wake)

    def unwatch(self, wake: asyncio.Event) -> None:
        self._waiting.discard(wake)

    def wake_all(self) -> None:
        for wake in self._waiting:
            wake.set()

    def close(self) -> None:
        """End all watches, since the resource is no longer served."""
        self.closed = True
        self.wake_all()

    def forget(self, through: int) -> None:
        """Drop the history up to and including a revision."""
        keep = bisect_right(self.changes, through, key=_revision_of)
        del self.changes[:keep]
        self.forgotten = max(self.forgotten, through)

    def add(self, change: Change) -> None:
        changes = self.changes
        changes.append(change)
        if len(changes) > 2 * self._window:  # amortised: drop half of it once per window
            self.forgotten = changes[self._window - 1].record.revision
            del changes[: self._window]
        self.wake_all()


Listener = Callable[[Collection, Change], None]


class Store:
    """All collections with one revision. Not thread-safe: used by one event loop."""

    def __init__(self, window: int) -> None:
        self.revision = 1
        self.collections: dict[str, Collection] = {}
        self._window = window
        self._listeners: list[Listener] = []

    def collection(self, name: str) -> Collection:
        """The collection, created if it does not exist."""
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = Collection(name, self._window)
            found.forgotten = self.revision - 1  # watches of a dropped predecessor cannot resume
        return found

    def drop_collection(self, name: str) -> None:
        """Drop a resource and end its watches."""
        if (dropped := self.collections.pop(name, None)) is not None:
            self.revision += 1
            dropped.close()

    def listen(self, listener: Listener) -> None:
        """Call a listener after every change. Listeners must not modify the store."""
        self._listeners.append(listener)

    def get(self, collection: str, key: str) -> Record | None:
        return self.collection(collection).records.get(key)

    def put(self, collection: str, key: str, obj: Object) -> Record:
        """Store a new version of an object. Takes ownership of `obj`, and sets its resourceVersion."""
        at = self.collection(collection)
        before = at.records.get(key)
        record = self._stamped(key, obj)
        at.records[key] = record
        self._notify(at, Change("MODIFIED" if before else "ADDED", record, before))
        return record

    def remove(self, collection: str, key: str, last: Object | None = None) -> Record:
        """Remove an object. `last`: its final state, if it differs. Raises KeyError."""
        at = self.collection(collection)
        before = at.records.pop(key)
        final = dict(before.object if last is None else last)
        final["metadata"] = dict(final["metadata"])
        record = self._stamped(key, final)
        self._notify(at, Change("DELETED", record, before))
        return record

    def compact(self) -> None:
        """Drop all history: watches that lag or resume get 410."""
        self.revision += 1
        for collection in self.collections.values():
            collection.forget(self.revision - 1)

    def _stamped(self, key: str, obj: Object) -> Record:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        return Record(key, obj, self.revision)

    def _notify(self, at: Collection, change: Change) -> None:
        at.add(change)
        for listener in self._listeners:
            listener(at, change)


def key_of(namespace: str | None, name: str) -> str:
    """Key of an object in its collection."""
    return f"{namespace}/{name}" if namespace else name


def in_namespace(records: Iterable[Record], namespace: str | None) -> list[Record]:
    """Records of a namespace; None: all."""
    if namespace is None:
        return list(records)
    prefix = f"{namespace}/"
    return [record for record in records if record.key.startswith(prefix)]


def _revision_of(change: Change) -> int:
    return change.record.revision
