"""A fake cluster-state: a real gRPC server that streams the steps that a test gives it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio

from builders.wait import WAIT_SECONDS
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.config.settings import PLAIN_TEXT
from muster.gangs.facts import Batch
from muster.rpc.errors import RpcError
from muster.rpc.server import RpcServer
from muster.rpc.watch_codec import batch_step, snapshot_begin_step, synced_step
from muster.rpc.watch_only import WatchOnly

FULL_NAME = "muster.clusterstate.v1.ClusterStateService"


class ClusterStream(WatchOnly):
    """Sends `opening` to each new subscriber, then everything that is sent while it is subscribed."""

    def __init__(self) -> None:
        self.opening: list[pb.WatchResponse] = []
        self.subscribers: list[str] = []
        self._queues: list[asyncio.Queue[pb.WatchResponse | None]] = []
        self._subscribed = asyncio.Condition()

    def opens_with(self, batch: Batch, through: Mapping[str, int]) -> None:
        """Set the snapshot for new subscribers."""
        self.opening = [snapshot_begin_step("subscribed"), batch_step(batch), synced_step(through)]

    def send(self, *messages: pb.WatchResponse) -> None:
        """Send messages to all present subscribers."""
        for queue in self._queues:
            for message in messages:
                queue.put_nowait(message)

    def cut(self) -> None:
        """End all streams as if the server had stopped."""
        for queue in self._queues:
            queue.put_nowait(None)

    async def until_subscribed(self, times: int = 1) -> None:
        """Wait until there have been this many subscriptions."""
        async with asyncio.timeout(WAIT_SECONDS), self._subscribed:
            await self._subscribed.wait_for(lambda: len(self.subscribers) >= times)

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.WatchResponse]:
        queue: asyncio.Queue[pb.WatchResponse | None] = asyncio.Queue()
        for message in self.opening:
            queue.put_nowait(message)
        self._queues.append(queue)
        async with self._subscribed:
            self.subscribers.append(request.subscriber)
            self._subscribed.notify_all()
        try:
            while (next_message := await queue.get()) is not None:
                yield next_message
        finally:
            self._queues.remove(queue)
        raise RpcError(grpc.StatusCode.UNAVAILABLE, "cut by the test")


@asynccontextmanager
async def serving(stream: ClusterStream) -> AsyncIterator[str]:
    """Serve the stream; yields its address."""
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "cluster-stream")
    server.add(pb_grpc.add_ClusterStateServiceServicer_to_server, stream, FULL_NAME)
    port = await server.start()
    server.set_ready(True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace_seconds=0)
