"""ClusterStateService for the implementation under test: streams a cluster that the cases make up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any, Final

import grpc
from grpc import aio
from msgspec.structs import replace

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.conformance.cluster import Cluster
from muster.conformance.labels import with_labels
from muster.gangs.facts import NODE_REVISIONS, POD_REVISIONS, Batch
from muster.rpc.errors import RpcError
from muster.rpc.watch_codec import decode_batch, encode_batch, encode_revision
from muster.rpc.watch_only import WatchOnly

FULL_NAME: Final = "muster.clusterstate.v1.ClusterStateService"
KINDS: Final = (NODE_REVISIONS, POD_REVISIONS)

_END: Final = pb.WatchResponse()
"""Marks the end of a stream in its queue."""


class NoSubscriber(RuntimeError):
    """The implementation has not subscribed, or not again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no implementation subscribed to the cluster-state of this suite within {seconds:g} s")


class ClusterStream(WatchOnly):
    """Sends every change of the cluster to all subscribers."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.order: Random | None = None
        """Shuffles snapshots; None: the order of the case."""
        self.subscriptions = 0
        """Number of subscriptions so far."""
        self.sent: list[pb.WatchResponse] = []
        """The snapshot that was sent last, and the deltas since."""
        self._revision = 0
        self._paused = False
        self._queues: list[asyncio.Queue[pb.WatchResponse]] = []
        self._subscribed = asyncio.Event()

    def start(self, cluster: Cluster) -> None:
        """Replace the cluster and send a snapshot of it."""
        self.cluster = cluster
        self._raise_revision()
        self.sent = self.snapshot()
        self.send(*self.sent)

    def restore(self, messages: Sequence[pb.WatchResponse]) -> None:
        """Replace the cluster by that of an earlier stream, and send the same messages."""
        cluster = Cluster()
        for message in messages:
            cluster.apply(decode_batch(message.batch))
            cluster.revision.update(message.synced.through.kinds)
        self._revision = max(cluster.revision.values(), default=0)
        self.cluster, self.sent = cluster, list(messages)
        self.send(*messages)

    def change(self, batch: Batch) -> None:
        """Change the cluster and send the delta."""
        self._raise_revision()
        self.cluster.apply(batch)
        revision = dict(self.cluster.revision)
        delta = replace(with_labels(batch), changed=revision, through=revision)
        message = pb.WatchResponse(batch=encode_batch(delta))
        self.sent.append(message)
        self.send(message)

    def snapshot(self) -> list[pb.WatchResponse]:
        """The current cluster, from `snapshot_begin` to `synced`."""
        return [
            pb.WatchResponse(snapshot_begin=pb.SnapshotBegin(reason="next case")),
            *(pb.WatchResponse(batch=encode_batch(with_labels(batch))) for batch in self.cluster.batches(self.order)),
            pb.WatchResponse(synced=pb.Synced(through=encode_revision(self.cluster.revision))),
        ]

    def send(self, *messages: pb.WatchResponse) -> None:
        """Send messages to all current subscribers."""
        for queue in self._queues:
            for message in messages:
                queue.put_nowait(message)

    def disconnect(self) -> None:
        """End all streams; new subscribers receive nothing until `resume`."""
        self._paused = True
        self.send(_END)
        self._queues.clear()

    def resume(self) -> None:
        """Send a snapshot to everyone who has subscribed since `disconnect`."""
        self._paused = False
        self.send(*self.snapshot())

    async def subscribed(self, timeout_seconds: float) -> None:
        """Wait for a subscriber. Raises NoSubscriber."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._queues:
                    self._subscribed.clear()
                    await self._subscribed.wait()
        except TimeoutError:
            raise NoSubscriber(timeout_seconds) from None

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.WatchResponse]:
        queue: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()
        for message in () if self._paused else self.snapshot():
            queue.put_nowait(message)
        self._queues.append(queue)
        self.subscriptions += 1
        self._subscribed.set()
        try:
            while (message := await queue.get()) is not _END:
                yield message
        finally:
            if queue in self._queues:
                self._queues.remove(queue)
        raise RpcError(grpc.StatusCode.UNAVAILABLE, "the case ends the stream")

    def _raise_revision(self) -> None:
        self._revision += 1
        self.cluster.revision = dict.fromkeys(KINDS, self._revision)
