"""The cluster-state that the implementation under test subscribes to: it tells of a world that the cases make up."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any, Final

import grpc
from grpc import aio
from msgspec.structs import replace

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.conformance.world import World
from muster.gangs.facts import NODE_REVISIONS, POD_REVISIONS, Batch
from muster.rpc.errors import RpcError
from muster.rpc.watch_codec import encode_batch, encode_revision

FULL_NAME: Final = "muster.clusterstate.v1.ClusterStateService"
KINDS: Final = (NODE_REVISIONS, POD_REVISIONS)

_CUT: Final = pb.WatchResponse()
"""Stands in a queue for the end of its stream."""


class NobodySubscribes(RuntimeError):
    """The implementation is not there any more, or never came."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nobody has subscribed to the cluster-state of this suite within {seconds:g} s")


class Stage(pb_grpc.ClusterStateServiceServicer):
    """ClusterStateService on a world. All changes of the world are told to all who are subscribed."""

    def __init__(self) -> None:
        self.world = World()
        self.order: Random | None = None
        """By which snapshots are shuffled; None: as the case wrote it down."""
        self.subscriptions = 0
        """How many there have been."""
        self._revision = 0
        self._silent = False
        self._queues: list[asyncio.Queue[pb.WatchResponse]] = []
        self._subscribed = asyncio.Event()

    # -- what cases do

    def begin(self, world: World) -> None:
        """A new world: everybody is sent a snapshot of it."""
        self.world = world
        self._rise()
        self._to_all(*self.snapshot())

    def change(self, batch: Batch) -> None:
        """The world changes: everybody is sent the delta."""
        self._rise()
        self.world.apply(batch)
        news = replace(batch, changed=dict(self.world.revision), through=dict(self.world.revision))
        self.send(pb.WatchResponse(batch=encode_batch(news)))

    def snapshot(self) -> list[pb.WatchResponse]:
        """The world as it is now, from `snapshot_begin` to `synced`."""
        return [
            pb.WatchResponse(snapshot_begin=pb.SnapshotBegin(reason="another case begins")),
            *(pb.WatchResponse(batch=encode_batch(batch)) for batch in self.world.batches(self.order)),
            pb.WatchResponse(synced=pb.Synced(through=encode_revision(self.world.revision))),
        ]

    def send(self, *messages: pb.WatchResponse) -> None:
        """To all who are subscribed now, whatever it says."""
        self._to_all(*messages)

    def cut(self) -> None:
        """All streams end, and who comes again is told nothing until `speak`."""
        self._silent = True
        self._to_all(_CUT)

    def speak(self) -> None:
        """Whoever came since the cut is sent a snapshot, as is everybody who comes."""
        self._silent = False
        self._to_all(*self.snapshot())

    async def subscribed(self, timeout_seconds: float) -> None:
        """Return as soon as somebody is. Raises NobodySubscribes."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._queues:
                    self._subscribed.clear()
                    await self._subscribed.wait()
        except TimeoutError:
            raise NobodySubscribes(timeout_seconds) from None

    # -- the service

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.WatchResponse]:
        queue: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()
        for message in () if self._silent else self.snapshot():
            queue.put_nowait(message)
        self._queues.append(queue)
        self.subscriptions += 1
        self._subscribed.set()
        try:
            while (message := await queue.get()) is not _CUT:
                yield message
        finally:
            if queue in self._queues:
                self._queues.remove(queue)
        raise RpcError(grpc.StatusCode.UNAVAILABLE, "the stream is cut, as a case wants it")

    def _to_all(self, *messages: pb.WatchResponse) -> None:
        for queue in self._queues:
            for message in messages:
                queue.put_nowait(message)
        if _CUT in messages:
            self._queues.clear()

    def _rise(self) -> None:
        self._revision += 1
        self.world.revision = dict.fromkeys(KINDS, self._revision)
