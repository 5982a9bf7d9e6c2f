"""The cluster as a standby follows it, so that it need not be read again when the standby becomes the leader."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self, assert_never

import structlog
from grpc import aio

from muster.coordinator.cluster_watch import ClusterChange, watch_cluster
from muster.coordinator.core.events import Delta, Snapshot, ViewLost
from muster.gangs.facts import Batch
from muster.gangs.facts_store import FactsStore
from muster.rpc.subscription import MarkReached, Marks

_MARK_SECONDS: Final = 1.0
"""Longest wait for the mark that ends what was followed; then a new snapshot is read."""

_log = structlog.get_logger()

_Sink = Callable[[ClusterChange], None]


class ClusterFollower:
    """Keeps the newest facts of the cluster, as many as cluster-state has, until they are given to the leader (I11).

    A context manager: it follows cluster-state during the block.
    """

    def __init__(self, channel: aio.Channel, subscriber: str) -> None:
        self._channel, self._subscriber = channel, subscriber
        self._marks = Marks()
        self._facts: _Followed | None = None
        """None: they are not complete, or the leader has them."""
        self._awaited: tuple[int, _Sink] | None = None
        """The mark at which the leader begins, and the leader."""
        self._decided = asyncio.Event()
        """The mark has come, or will not come."""
        self._sink: _Sink | None = None
        """The leader, once it has the facts."""
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow(), name="follow the cluster")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    @property
    def complete(self) -> bool:
        """It knows the whole cluster, and nobody leads by it yet."""
        return self._facts is not None

    async def lead(self, sink: _Sink) -> None:
        """Give all changes to the sink from now on, until cancelled; first a snapshot that is no older than this call.

        It consists of what was followed so far, if cluster-state can confirm soon that this is complete. Otherwise it
        is read anew.
        """
        assert self._following is not None
        if await self._hand_over(sink):
            await self._following
        await self._stop()
        async with aclosing(watch_cluster(self._channel, self._subscriber)) as changes:
            async for change in changes:
                if not isinstance(change, MarkReached):
                    sink(change)

    async def _hand_over(self, sink: _Sink) -> bool:
        """Request a mark and wait for it: the sink has the facts then. False: it has nothing."""
        if not self.complete:
            return False
        mark = self._marks.request()
        if not mark:
            return False
        self._awaited = (mark, sink)
        self._decided.clear()
        try:
            async with asyncio.timeout(_MARK_SECONDS):
                await self._decided.wait()
        except TimeoutError:
            _log.info("standby_was_behind", waited_seconds=_MARK_SECONDS)
        self._awaited = None
        return self._sink is not None

    async def _stop(self) -> None:
        self._facts = None
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            async with aclosing(watch_cluster(self._channel, self._subscriber, self._marks)) as changes:
                async for change in changes:
                    self._take(change)
        except Exception as error:
            self._lose()
            if self._sink is not None:
                raise
            _log.error("standby_failed", exc_info=error)  # it can lead nevertheless, with a new snapshot

    def _take(self, change: ClusterChange | MarkReached) -> None:
        if isinstance(change, MarkReached):
            if self._facts is not None and self._awaited is not None and change.mark == self._awaited[0]:
                self._sink = self._awaited[1]
                self._sink(Snapshot(self._facts.snapshot()))
                self._facts = None
                self._decided.set()
            return
        if self._sink is not None:
            self._sink(change)
            return
        match change:
            case Snapshot(batch):
                self._facts = _Followed(batch)
                _log.info("standby_synced", nodes=len(batch.nodes), pods=len(batch.pods))
            case Delta(batch):
                if self._facts is not None:
                    self._facts.take(batch)
            case ViewLost():
                self._lose()
            case _:
                assert_never(change)

    def _lose(self) -> None:
        self._facts = None
        self._decided.set()


class _Followed:
    """Facts with their revisions, as a snapshot has them."""

    def __init__(self, snapshot: Batch) -> None:
        self._store = FactsStore()
        self._changed: dict[str, int] = {}
        self._through: dict[str, int] = {}
        self.take(snapshot)

    def take(self, batch: Batch) -> None:
        self._store.put(batch)
        for kind, revision in batch.changed.items():
            self._changed[kind] = max(revision, self._changed.get(kind, 0))
        self._through = batch.through or self._through

    def snapshot(self) -> Batch:
        return self._store.snapshot(self._changed, self._through)
