"""watch: what changes, as lines of a response that goes on until somebody ends it.

A watch reads the history of its collection at its own pace and writes what has come together since the last time at
once, so that a burst of changes costs one write. One that falls behind the window of history is told so and ended.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.reading import parse_revision, selection_of, too_large
from muster.localcluster.apiserver.representation import AsIs, representation
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.selectors import Selection
from muster.localcluster.apiserver.status import StatusError, expired, forbidden_value, invalid
from muster.localcluster.apiserver.store import Change, Collection, HistoryGone, Record, event_line

_MOST_AT_ONCE: Final = 2048  # changes per write: bounds what a write holds in memory


class Watches:
    """All watches that go on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: set[Watch] = set()

    def __len__(self) -> int:
        return len(self._open)

    def start(self, call: Call) -> "Watch":
        """Raises StatusError for options that make no sense."""
        return Watch(self._cluster, call, self._open)

    def cut(self) -> int:
        """End all watches without a word, as a connection that breaks. Returns how many there were."""
        watches = list(self._open)
        for watch in watches:
            watch.cut = True
            watch.wake.set()
        return len(watches)

    def send_bookmarks(self) -> None:
        """Send a bookmark now on every watch that asked for bookmarks."""
        for watch in self._open:
            watch.bookmark_due = True
            watch.wake.set()


class Watch:
    """One watch; iterate over `chunks`."""

    def __init__(self, cluster: Cluster, call: Call, open_watches: set["Watch"]) -> None:
        _refuse_initial_events(call)
        kind = call.target.kind
        self._cluster, self._kind, self._open = cluster, kind, open_watches
        self._selection = selection_of(call)
        self._form = representation(kind, call.accept, call.query.get("includeObject", ""))
        self._revision = parse_revision(call.query.get("resourceVersion", ""))
        if self._revision > cluster.store.revision:
            raise too_large(self._revision, cluster.store.revision)
        self._bookmarks = call.flag("allowWatchBookmarks")
        longest = cluster.timing.watch_seconds
        self._seconds = call.number("timeoutSeconds") or longest * random.uniform(1.0, 2.0)  # noqa: S311
        self._line_of = self._choose_line()
        self.wake = asyncio.Event()
        self.cut = False
        self.bookmark_due = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Lines as they come, many at once when there are many."""
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
        if self._revision == 0:  # "whatever there is now": all objects first
            self._revision = self._cluster.store.revision
            if present := self._present(collection):
                yield present
        while not self.cut:
            try:
                changes = collection.since(self._revision)
            except HistoryGone as gone:
                yield error_line(expired(str(gone)))
                return
            if changes:
                yield b"".join(line for change in changes[:_MOST_AT_ONCE] if (line := self._line_of(change)))
                self._revision = changes[min(len(changes), _MOST_AT_ONCE) - 1].record.revision
                continue
            if collection.closed:
                return
            # Nothing is left of this collection: the watch is as new as the whole store.
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

    def _present(self, collection: Collection) -> bytes:
        found = [record for record in collection.records.values() if self._selection.matches(record.object)]
        return b"".join(event_line("ADDED", self._form.event(record)) for record in found)

    def _bookmark(self) -> bytes:
        metadata = {"resourceVersion": str(self._revision), "creationTimestamp": None}
        mark = {"kind": self._kind.name, "apiVersion": self._kind.api_version, "metadata": metadata}
        return event_line("BOOKMARK", msgspec.json.encode(mark))

    def _choose_line(self) -> Callable[[Change], bytes]:
        """Shared lines where nobody asked for anything special."""
        if not isinstance(self._form, AsIs) or self._kind.from_stored is not None:
            return self._own_line
        if self._selection.everything:
            return _shared_line
        return self._selected_line

    def _selected_line(self, change: Change) -> bytes:
        seen_as = _seen_as(self._selection, change)
        if seen_as == change.type:
            return change.line
        return b"" if seen_as is None else event_line(seen_as, self._shown(change, seen_as).encoded)

    def _own_line(self, change: Change) -> bytes:
        seen_as = _seen_as(self._selection, change)
        return b"" if seen_as is None else event_line(seen_as, self._form.event(self._shown(change, seen_as)))

    def _shown(self, change: Change, seen_as: str) -> Record:
        """An object that is not selected any more is shown as it was last selected, at the new revision."""
        if seen_as != "DELETED" or change.type == "DELETED" or change.before is None:
            return change.record
        last = dict(change.before.object)
        last["metadata"] = last["metadata"] | {"resourceVersion": str(change.record.revision)}
        return Record(change.record.key, last, change.record.revision)


def error_line(error: StatusError) -> bytes:
    """The line that tells a watch's client why it ends."""
    return event_line("ERROR", error.encoded())


def _shared_line(change: Change) -> bytes:
    return change.line


def _seen_as(selection: Selection, change: Change) -> str | None:
    """What a change is to a watch that selects: objects enter and leave it by changing."""
    if change.type == "ADDED":
        return "ADDED" if selection.matches(change.record.object) else None
    before = change.before
    was = before is not None and selection.matches(before.object)
    if change.type == "DELETED":
        return "DELETED" if was else None
    if selection.matches(change.record.object):
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else None


def _refuse_initial_events(call: Call) -> None:
    """Streaming lists are not served; clients fall back to list and watch when told so in these words."""
    causes: list[Any] = []
    if "sendInitialEvents" in call.query:
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        causes.append(forbidden_value("sendInitialEvents", why))
    elif call.query.get("resourceVersionMatch"):
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden_value("resourceVersionMatch", why))
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)
