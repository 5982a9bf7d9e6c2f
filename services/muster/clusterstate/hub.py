"""Hands every change to every subscriber, each at its own speed: none waits for another."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator

import structlog
from msgspec.structs import replace

from muster.clusterstate.messages import batch_message, begin_message, synced_message
from muster.clusterstate.metrics import CHANGES, SNAPSHOTS
from muster.clusterstate.snapshot import PIECE, Snapshot
from muster.gangs.facts import Batch

_log = structlog.get_logger(__name__)

BACKLOG_CHANGES = 20_000
"""A subscriber that is further behind than this, and by more changes than there are objects, gets a snapshot instead:
that costs about as much, and memory stays bounded. With less room a large snapshot would be begun again and again,
because of what changes while it is sent.
"""
_LEAVES_PER_CHANGE = 10
"""Nodes of a tree that take as much memory as one change of another kind."""
_SUBSCRIBED = "subscribed"
QUIET_SECONDS = 1.0
"""News that only the revision rose is sent at once, but not again for so long."""


class Hub:
    """Subscribers, and what they have yet to be sent."""

    def __init__(self, take_snapshot: Callable[[], Snapshot], backlog_changes: int = BACKLOG_CHANGES) -> None:
        self._take_snapshot = take_snapshot
        self._backlog_changes = backlog_changes
        self._subscriptions: set[_Subscription] = set()
        self._through: dict[str, int] = {}
        self._quiet_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Number of subscribers."""
        return len(self._subscriptions)

    def publish(self, batch: Batch) -> None:
        """Queue a batch for all subscribers; one that changes nothing only raises `through`."""
        before, self._through = self._through, batch.through
        changes = _changes(batch)
        CHANGES.add(changes)
        if changes:
            for piece in _pieces(batch, before):
                self._send(piece, _changes(piece))
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._quiet_until:
                self._send(batch, 0)
            else:
                self._timer = loop.call_at(self._quiet_until, self._send_through)

    async def subscribe(self, name: str) -> AsyncGenerator[bytes]:
        """Encoded WatchResponses for one subscriber, for ever. Close it when the subscriber leaves."""
        subscription = _Subscription(self._backlog_changes)
        self._subscriptions.add(subscription)
        log = _log.bind(subscriber=name)
        try:
            while True:
                if (reason := subscription.fresh()) is not None:
                    log.info("snapshot", reason=reason)
                    SNAPSHOTS.labels("subscribed" if reason == _SUBSCRIBED else "behind").add()
                    async for message in self._snapshot(subscription, reason):
                        yield message
                while (delta := subscription.next()) is not None:
                    yield delta
                await subscription.wait()
        finally:
            self._subscriptions.discard(subscription)
            log.info("subscriber left")

    async def _snapshot(self, subscription: "_Subscription", reason: str) -> AsyncGenerator[bytes]:
        """A snapshot of now; later changes are queued behind it. Given up when the queue overflows meanwhile."""
        snapshot = self._take_snapshot()
        subscription.limit = max(self._backlog_changes, len(snapshot))
        yield begin_message(reason)
        for piece in snapshot.pieces():
            if subscription.stale:
                return
            yield batch_message(piece)
            await asyncio.sleep(0)
        yield synced_message(snapshot.through)

    def _send(self, batch: Batch, changes: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._quiet_until = asyncio.get_running_loop().time() + QUIET_SECONDS
        if self._subscriptions:
            message = batch_message(batch)
            for subscription in self._subscriptions:
                subscription.put(message, changes)

    def _send_through(self) -> None:
        self._timer = None
        self._send(Batch(through=self._through), 0)


class _Subscription:
    """What one subscriber has yet to be sent."""

    def __init__(self, backlog_changes: int) -> None:
        self.limit = backlog_changes
        self._queue: deque[tuple[bytes, int]] = deque()
        self._changes = 0
        self._reason: str | None = _SUBSCRIBED
        self._news = asyncio.Event()

    @property
    def stale(self) -> bool:
        """What was queued is lost: a snapshot must come."""
        return self._reason is not None

    def fresh(self) -> str | None:
        """Why a snapshot must come, if so. From now on changes are queued behind it."""
        reason, self._reason = self._reason, None
        return reason

    def put(self, message: bytes, changes: int) -> None:
        if self._reason is not None:
            return
        changes = max(changes, 1)
        self._changes += changes
        if self._changes > self.limit:
            self._reason = f"subscriber fell behind by {self._changes} changes"
            self._queue.clear()
            self._changes = 0
        else:
            self._queue.append((message, changes))
        self._news.set()

    def next(self) -> bytes | None:
        if self._reason is not None or not self._queue:
            return None
        message, changes = self._queue.popleft()
        self._changes -= changes
        return message

    async def wait(self) -> None:
        """For something to send."""
        if not self._queue and self._reason is None:
            self._news.clear()
            await self._news.wait()


def _pieces(batch: Batch, before: dict[str, int]) -> Iterator[Batch]:
    """The batch, or several that make it up, if very many pods are in it, as when a selector comes that selects all.

    None but the last says that what changed has been told: nobody who waits for that is shown a part.
    """
    last = max(0, len(batch.pods) - 1) // PIECE * PIECE
    if last:
        yield Batch(pod_classes=batch.pod_classes, pods=batch.pods[:PIECE], through=before)
        for start in range(PIECE, last, PIECE):
            yield Batch(pods=batch.pods[start : start + PIECE], through=before)
        batch = replace(batch, pod_classes=(), pods=batch.pods[last:])
    yield batch


def _changes(batch: Batch) -> int:
    return (
        len(batch.nodes)
        + len(batch.removed_nodes)
        + len(batch.pods)
        + len(batch.removed_pods)
        + len(batch.gangs)
        + len(batch.removed_gangs)
        + len(batch.budgets)
        + len(batch.removed_budgets)
        + sum(1 + len(tree.leaves) // _LEAVES_PER_CHANGE for tree in batch.trees)
        + len(batch.removed_trees)
    )
