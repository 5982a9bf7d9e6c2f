"""The verb watch: streams of changes.

A watch reads the history of its collection at its own pace and sends all changes since the last write at once, so that
a burst of changes costs one write. A watch that falls behind the window of history ends with 410.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.content_negotiation import ObjectForm, representation
from muster.localcluster.apiserver.read import parse_revision, selection_of, too_large
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.selectors import Selection
from muster.localcluster.apiserver.status import StatusError, expired, forbidden_value, invalid
from muster.localcluster.apiserver.store import Change, Collection, HistoryGone, Record, event_line

_MAX_BATCH_CHANGES: Final = 2048  # changes per write: bounds what a write holds in memory


class Watches:
    """All open watches."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: set[Watch] = set()

    def __len__(self) -> int:
        return len(self._open)

    def start(self, call: Call) -> "Watch":
        """Open a watch. Raises StatusError for invalid options."""
        return Watch(self._cluster, call, self._open)

    def cut(self) -> int:
        """Close all watches without an error, as a broken connection does. Returns their number."""
        watches = list(self._open)
        for watch in watches:
            watch.cut = True
            watch.wake.set()
        return len(watches)

    def send_bookmarks(self) -> None:
        """Send a bookmark on every watch that allows them."""
        for watch in self._open:
            watch.bookmark_due = True
            watch.wake.set()


class Watch:
    """One watch; iterate over `chunks`."""

    def __init__(self, cluster: Cluster, call: Call, open_watches: set["Watch"]) -> None:
        _reject_initial_events(call)
        kind = call.target.kind
        self._cluster, self._kind, self._open = cluster, kind, open_watches
        self._selection = selection_of(call)
        self._form = representation(kind, call.accept, call.query.get("includeObject", ""))
        self._revision = parse_revision(call.query.get("resourceVersion", ""))
        if self._revision > cluster.store.revision:
            raise too_large(self._revision, cluster.store.revision)
        self._bookmarks = call.flag("allowWatchBookmarks")
        minimum = cluster.timing.watch_seconds
        self._seconds = call.number("timeoutSeconds") or minimum * random.uniform(1.0, 2.0)  # noqa: S311
        self._line_of = self._choose_line()
        self.wake = asyncio.Event()
        self.cut = False
        self.bookmark_due = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Chunks of one or more events."""
        collection = self._cluster.store.collection(self._kind.collection)
        collection.watch(self.wake)
        self._open.add(self)
        try:
            async for chunk in self._chunks(collection):
                yield chunk
        finally:
            collection.unwatch(self.wake)
            self._open.discard(self)

    async def _chunks(self, collection: Collection) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        next_bookmark = loop.time() + self._cluster.timing.bookmark_seconds
        if self._revision == 0:  # start with the current objects
            self._revision = self._cluster.store.revision
            if present := self._current_objects(collection):
                yield present
        while not self.cut:
            try:
                changes = collection.since(self._revision)
            except HistoryGone as error:
                yield error_line(expired(str(error)))
                return
            if changes:
                yield b"".join(line for change in changes[:_MAX_BATCH_CHANGES] if (line := self._line_of(change)))
                self._revision = changes[min(len(changes), _MAX_BATCH_CHANGES) - 1].record.revision
                continue
            if collection.closed:
                return
            # The collection has no newer changes: the watch is as current as the whole store.
            self._revision = self._cluster.store.revision
            now = loop.time()
            if self._bookmarks and (self.bookmark_due or now >= next_bookmark):
                next_bookmark = now + self._cluster.timing.bookmark_seconds
                yield self._bookmark()
            self.bookmark_due = False
            if now >= deadline:
                return
            self.wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(deadline, next_bookmark) if self._bookmarks else deadline):
                    await self.wake.wait()

    def _current_objects(self, collection: Collection) -> bytes:
        found = [record for record in collection.records.values() if self._selection.matches(record.object)]
        return b"".join(event_line("ADDED", self._form.event(record)) for record in found)

    def _bookmark(self) -> bytes:
        metadata = {"resourceVersion": str(self._revision), "creationTimestamp": None}
        bookmark = {"kind": self._kind.name, "apiVersion": self._kind.api_version, "metadata": metadata}
        return event_line("BOOKMARK", msgspec.json.encode(bookmark))

    def _choose_line(self) -> Callable[[Change], bytes]:
        """Shared encodings, unless the watch has a selector or another form."""
        if not isinstance(self._form, ObjectForm) or self._kind.from_stored is not None:
            return self._converted_line
        if self._selection.everything:
            return _shared_line
        return self._selected_line

    def _selected_line(self, change: Change) -> bytes:
        event_type = _event_type(self._selection, change)
        if event_type == change.type:
            return change.line
        return b"" if event_type is None else event_line(event_type, self._visible_record(change, event_type).encoded)

    def _converted_line(self, change: Change) -> bytes:
        event_type = _event_type(self._selection, change)
        return (
            b""
            if event_type is None
            else event_line(event_type, self._form.event(self._visible_record(change, event_type)))
        )

    def _visible_record(self, change: Change, event_type: str) -> Record:
        """An object that left the selection is sent as it last matched, with the new revision."""
        if event_type != "DELETED" or change.type == "DELETED" or change.before is None:
            return change.record
        last = dict(change.before.object)
        last["metadata"] = last["metadata"] | {"resourceVersion": str(change.record.revision)}
        return Record(change.record.key, last, change.record.revision)


def error_line(error: StatusError) -> bytes:
    """ERROR event that ends a watch."""
    return event_line("ERROR", error.encoded())


def _shared_line(change: Change) -> bytes:
    return change.line


def _event_type(selection: Selection, change: Change) -> str | None:
    """Event type of a change for a watch with a selector, which objects enter and leave."""
    if change.type == "ADDED":
        return "ADDED" if selection.matches(change.record.object) else None
    before = change.before
    matched = before is not None and selection.matches(before.object)
    if change.type == "DELETED":
        return "DELETED" if matched else None
    if selection.matches(change.record.object):
        return "MODIFIED" if matched else "ADDED"
    return "DELETED" if matched else None


def _reject_initial_events(call: Call) -> None:
    """Error for streaming lists, which are not served; with this text clients fall back to list and watch."""
    causes: list[Any] = []
    if "sendInitialEvents" in call.query:
        detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        causes.append(forbidden_value("sendInitialEvents", detail))
    elif call.query.get("resourceVersionMatch"):
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden_value("resourceVersionMatch", detail))
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)
