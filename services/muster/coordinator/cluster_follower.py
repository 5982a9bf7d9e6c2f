"""The cluster as a standby follows it, so that it need not be read again when the standby becomes the leader."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self, assert_never

import structlog
from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.coordinator.cluster_watch import ClusterChange, watch_cluster
from muster.coordinator.core.events import Delta, Snapshot, ViewLost
from muster.gangs.facts import Batch
from muster.gangs.facts_store import FactsStore
from muster.rpc.errors import describe
from muster.rpc.watch_codec import decode_revision

_SECONDS_BEHIND: Final = 1.0
"""Longest wait for what the standby has to reach the newest changes; then a new snapshot is read."""
_END_SECONDS: Final = 1.0
"""Longest wait for the end of a subscription: a leader must not depend on it."""

_log = structlog.get_logger()

_Sink = Callable[[ClusterChange], None]


class ClusterFollower:
    """Keeps the newest facts of the cluster, as many as cluster-state has, until they are given to the leader (I11).

    A context manager: it follows cluster-state during the block.
    """

    def __init__(self, channel: aio.Channel, subscriber: str) -> None:
        self._channel, self._subscriber = channel, subscriber
        self._facts: _Followed | None = None
        """None: they are not complete, or the leader has them."""
        self._sink: _Sink | None = None
        """The leader, once it has the facts."""
        self._changed = asyncio.Event()
        """The facts have changed since it was cleared, or the subscription has failed."""
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow(), name="follow the cluster")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()

    @property
    def complete(self) -> bool:
        """Whether the whole cluster is known, and nobody leads by it yet."""
        return self._facts is not None

    async def lead(self, sink: _Sink) -> None:
        """Give all changes to the sink from now on, until cancelled; first a snapshot that is no older than this call.

        It consists of what was followed so far, once that has all changes that cluster-state had sent before this
        call. If cluster-state cannot tell these, or they do not come soon, the snapshot is read anew.
        """
        assert self._following is not None
        if await self._reach_newest():
            assert self._facts is not None
            sink(Snapshot(self._facts.snapshot()))
            self._facts, self._sink = None, sink
            await self._following
            return
        await self._end()
        self._facts = None
        async with aclosing(watch_cluster(self._channel, self._subscriber)) as changes:
            async for change in changes:
                sink(change)

    async def _end(self) -> None:
        assert self._following is not None
        self._following.cancel()
        await asyncio.wait([self._following], timeout=_END_SECONDS)

    async def _reach_newest(self) -> bool:
        """Wait until the facts have what cluster-state has now. False: they do not."""
        assert self._following is not None
        newest: Mapping[str, int] | None = None
        while await self._complete():
            try:
                if newest is None:
                    newest = await self._newest()
                async with asyncio.timeout(_SECONDS_BEHIND):
                    while self._facts is not None and not self._facts.reach(newest):
                        await self._next_change()
            except aio.AioRpcError as error:
                _log.info("newest_revision_unknown", reason=describe(error))
                return False
            except TimeoutError:
                _log.info("standby_was_behind", waited_seconds=_SECONDS_BEHIND)
                return False
            if self._facts is not None:
                return True
        return False

    async def _complete(self) -> bool:
        """Wait until the facts are complete. False: the subscription has failed."""
        assert self._following is not None
        while self._facts is None and not self._following.done():
            await self._next_change()
        return not self._following.done()

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _newest(self) -> dict[str, int]:
        """Revisions of the newest changes of a replica of cluster-state. Raises AioRpcError."""
        stub: Any = pb_grpc.ClusterStateServiceStub(self._channel)
        return decode_revision((await stub.GetRevision(pb.GetRevisionRequest(), timeout=_SECONDS_BEHIND)).changed)

    async def _follow(self) -> None:
        try:
            async with aclosing(watch_cluster(self._channel, self._subscriber)) as changes:
                async for change in changes:
                    if self._sink is None:
                        self._keep(change)
                    else:
                        self._sink(change)
        except Exception as error:
            if self._sink is not None:
                raise
            _log.error("standby_failed", exc_info=error)  # it can lead nevertheless, with a new snapshot
        finally:
            self._changed.set()

    def _keep(self, change: ClusterChange) -> None:
        match change:
            case Snapshot(batch):
                self._facts = _Followed(batch)
                _log.info("standby_synced", nodes=len(batch.nodes), pods=len(batch.pods))
            case Delta(batch):
                if self._facts is not None:
                    self._facts.take(batch)
            case ViewLost():
                self._facts = None
            case _:
                assert_never(change)
        self._changed.set()


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

    def reach(self, revisions: Mapping[str, int]) -> bool:
        """Whether all changes up to these are contained."""
        return all(self._through.get(kind, 0) >= revision for kind, revision in revisions.items())

    def snapshot(self) -> Batch:
        return self._store.snapshot(self._changed, self._through)
