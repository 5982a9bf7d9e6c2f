"""Sends every delta to every subscriber at the subscriber's own speed: none waits for another."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

import structlog

from muster.clusterstate.chunks import change_count, delta_chunks, object_count, snapshot_chunks
from muster.clusterstate.encodable import NotEncoded, encodable, encodable_revisions
from muster.clusterstate.metrics import CHANGES, SNAPSHOTS
from muster.gangs.facts import Batch
from muster.rpc.watch_codec import batch_step, snapshot_begin_step, synced_step

_log = structlog.get_logger(__name__)

MAX_BACKLOG_CHANGES = 20_000
"""A subscriber that is further behind than this, and by more changes than there are objects, gets a snapshot instead:
that costs about as much, and memory stays bounded. With a smaller backlog a large snapshot would be restarted again and
again, because of what changes while it is sent.
"""
QUIET_SECONDS = 1.0
"""A batch that only raises the revision is sent at once, but then not again for this long."""

_END: Final = b""
"""Behind the last chunk of a snapshot; no message is empty."""


class _SnapshotReason(NamedTuple):
    """Why a subscriber gets a snapshot: `kind` for metrics, `message` for logs."""

    kind: str
    message: str


_SUBSCRIBED = _SnapshotReason("subscribed", "subscribed")


class Broadcaster:
    """Subscribers and their backlogs, which are bounded and end with the subscription (I11)."""

    def __init__(
        self,
        take_snapshot: Callable[[], Batch],
        backlog_changes: int = MAX_BACKLOG_CHANGES,
        report: Callable[[Sequence[NotEncoded]], None] | None = None,
    ) -> None:
        """`take_snapshot` returns the whole state, with `through`; `report` is called with what cannot be encoded, at
        each attempt.
        """
        self._take_snapshot = take_snapshot
        self._report = report
        self._backlog_changes = backlog_changes
        self._subscriptions: set[_Subscription] = set()
        self._through: dict[str, int] = {}
        self._newest: _Snapshot | None = None
        """The last snapshot, for others who subscribe before something is published, or the first has been sent it."""
        self.changed: dict[str, int] = {}
        """Revisions of the newest changes, one for each watched kind; lower after a restore of the API server."""
        self._quiet_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Number of subscribers."""
        return len(self._subscriptions)

    def publish(self, delta: Batch) -> None:
        """Queue a delta for all subscribers; one that changes nothing only raises `through`."""
        self._newest = None
        before, self._through = self._through, delta.through
        self.note(delta)
        changes = change_count(delta)
        CHANGES.add(changes)
        if changes:
            for chunk in delta_chunks(delta, before):
                self._send(chunk, change_count(chunk))
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._quiet_until:
                self._send(delta, 0)
            else:
                self._timer = loop.call_at(self._quiet_until, self._send_through)

    def note(self, delta: Batch) -> None:
        """Raise `changed` for a delta that is only in snapshots, because nobody has subscribed yet."""
        for kind, revision in delta.changed.items():
            self.changed[kind] = max(revision, self.changed.get(kind, 0))

    def restart(self, message: str) -> None:
        """Send snapshots instead of deltas to all subscribers: revisions have become lower."""
        self.changed.clear()
        self._newest = None
        for subscription in self._subscriptions:
            subscription.restart(_SnapshotReason("restored", message))

    async def subscribe(self, name: str) -> AsyncGenerator[bytes]:
        """Encoded WatchResponses for one subscriber, without end. Close the generator when the subscriber leaves."""
        subscription = _Subscription(self._backlog_changes)
        self._subscriptions.add(subscription)
        log = _log.bind(subscriber=name)
        try:
            while True:
                if (reason := subscription.start_snapshot()) is not None:
                    log.info("snapshot_sent", reason=reason.message)
                    SNAPSHOTS.labels(reason.kind).add()
                    async with aclosing(self._send_snapshot(subscription, reason.message)) as messages:
                        async for message in messages:
                            yield message
                while (delta := subscription.next()) is not None:
                    yield delta
                await subscription.wait()
        finally:
            self._subscriptions.discard(subscription)
            log.info("subscriber_left")

    async def _send_snapshot(self, subscription: "_Subscription", reason: str) -> AsyncGenerator[bytes]:
        """A snapshot of now, with later deltas queued behind it. Stops early if the backlog overflows meanwhile."""
        if self._newest is None:
            self._newest = _Snapshot.of(self._take_snapshot(), self._encoded)
        objects, through, chunks = self._newest
        subscription.limit = max(self._backlog_changes, objects)
        try:
            yield snapshot_begin_step(reason).SerializeToString()
            while (chunk := chunks.next()) is not None:
                if subscription.needs_snapshot:
                    return
                encoded, chunks = chunk
                yield encoded
                await asyncio.sleep(0)
            yield synced_step(encodable_revisions(through)).SerializeToString()
        finally:
            self._newest = None

    def _encoded(self, batch: Batch) -> bytes:
        """A batch as a step of the stream. What cannot be encoded must not keep the rest from subscribers."""
        try:
            return batch_step(batch).SerializeToString()
        except Exception:
            rest, not_encoded = encodable(batch)
            if self._report is not None:
                self._report(not_encoded)
            return batch_step(rest).SerializeToString()

    def _send(self, batch: Batch, changes: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._quiet_until = asyncio.get_running_loop().time() + QUIET_SECONDS
        if self._subscriptions:
            message = _Message(batch, self._encoded)
            for subscription in self._subscriptions:
                subscription.put(message, changes)

    def _send_through(self) -> None:
        self._timer = None
        self._send(Batch(through=self._through), 0)


class _Snapshot(NamedTuple):
    """The whole state at some time, cut and encoded once, for all who subscribe before it changes."""

    objects: int
    through: dict[str, int]
    chunks: "_Chunks"

    @classmethod
    def of(cls, batch: Batch, encode: Callable[[Batch], bytes]) -> "_Snapshot":
        return cls(object_count(batch), batch.through, _Chunks(_encoded_chunks(batch, encode)))


def _encoded_chunks(batch: Batch, encode: Callable[[Batch], bytes]) -> Iterator[bytes]:
    """All chunks, then _END. Ends without it if one cannot be encoded."""
    yield from map(encode, snapshot_chunks(batch))
    yield _END


class _Chunks:
    """Chunks that a subscriber has not been sent yet. Each is encoded when the first subscriber needs it (I12), and
    lives until the last one is sent it (I11).
    """

    __slots__ = ("_encoded", "_next")

    def __init__(self, encoded: Iterator[bytes]) -> None:
        """The iterator encodes a chunk when it is asked for it."""
        self._encoded = encoded
        self._next: tuple[bytes, _Chunks] | None = None

    def next(self) -> "tuple[bytes, _Chunks] | None":
        """The first one, and those behind it; None at the end. Raises RuntimeError if one could not be encoded for
        another subscriber: without it the snapshot would seem complete.
        """
        if self._next is None:
            encoded = next(self._encoded, None)
            if encoded is None:
                raise RuntimeError("the snapshot could not be encoded")
            self._next = encoded, _Chunks(self._encoded)
        return None if self._next[0] == _END else self._next


class _Message:
    """A batch that is encoded when the first subscriber gets it: a delta of many batches holds the loop for one at a
    time (I12).
    """

    __slots__ = ("_batch", "_encode", "_encoded")

    def __init__(self, batch: Batch, encode: Callable[[Batch], bytes]) -> None:
        self._batch: Batch | None = batch
        self._encode = encode
        self._encoded = b""

    def encoded(self) -> bytes:
        if self._batch is not None:
            self._encoded = self._encode(self._batch)
            self._batch = None
        return self._encoded


class _Subscription:
    """The backlog of one subscriber."""

    def __init__(self, backlog_changes: int) -> None:
        self.limit = backlog_changes
        self._queue: deque[tuple[_Message, int]] = deque()
        self._changes = 0
        self._reason: _SnapshotReason | None = _SUBSCRIBED
        self._ready = asyncio.Event()

    @property
    def needs_snapshot(self) -> bool:
        """The backlog was dropped, so that only a snapshot helps."""
        return self._reason is not None

    def start_snapshot(self) -> _SnapshotReason | None:
        """Why a snapshot is needed; None if none is. From now on deltas are queued behind it."""
        reason, self._reason = self._reason, None
        return reason

    def put(self, message: _Message, changes: int) -> None:
        if self._reason is not None:
            return
        changes = max(changes, 1)
        self._changes += changes
        if self._changes > self.limit:
            self.restart(_SnapshotReason("behind", f"subscriber fell behind by {self._changes} changes"))
            return
        self._queue.append((message, changes))
        self._ready.set()

    def restart(self, reason: _SnapshotReason) -> None:
        """Drop the backlog: only a snapshot helps."""
        self._reason = reason
        self._queue.clear()
        self._changes = 0
        self._ready.set()

    def next(self) -> bytes | None:
        if self._reason is not None or not self._queue:
            return None
        message, changes = self._queue.popleft()
        self._changes -= changes
        return message.encoded()

    async def wait(self) -> None:
        """Wait for something to send."""
        if not self._queue and self._reason is None:
            self._ready.clear()
            await self._ready.wait()
