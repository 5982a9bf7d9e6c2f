"""ClusterStateService for a placement of one's own: streams a virtual cluster instead of a real one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from grpc import aio
from msgspec.structs import replace

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.forecast.turns import in_turns
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch
from muster.rpc.watch_codec import batch_step, snapshot_begin_step, synced_step
from muster.rpc.watch_only import WatchOnly

FULL_NAME: Final = "muster.clusterstate.v1.ClusterStateService"


_PIECE: Final = 5000
"""Objects of one message of a snapshot."""
_END_SECONDS: Final = 5.0
_COPIED: Final = 1000
"""Objects that are copied at once."""

Encode = Callable[[], pb.WatchResponse]
"""Makes a message; of a snapshot in a thread, since that takes long. In a queue, None ends the stream."""


class ClusterStream(WatchOnly):
    """Sends the virtual cluster and its changes to all subscribers.

    A queue per subscriber, which holds what was sent and not read yet: changes of the cluster end when nobody solves.
    """

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self._queues: set[asyncio.Queue[Encode | None]] = set()
        self._ended, self._left = False, asyncio.Event()

    async def copy_of(self, batch: Batch) -> VirtualCluster:
        """Another cluster with these facts. Its revisions are higher than those that were sent, so that no placement
        answers from an earlier one. Other tasks have turns between its pieces (I12).
        """
        copied = VirtualCluster(self.cluster.revision)
        async for piece in in_turns(_pieces(batch, _COPIED), objects_of_turn=1):
            copied.apply(piece)
        return copied

    def begin(self, cluster: VirtualCluster) -> None:
        """Another cluster replaces the present one. What was not sent yet of that is not sent."""
        self.cluster = cluster
        for queue in self._queues:
            _empty(queue)
            for encode in _snapshot(cluster):
                queue.put_nowait(encode)

    async def end(self) -> None:
        """Send nothing more, since the placement that watches it is about to stop; wait for the message under way."""
        self._ended = True
        for queue in self._queues:
            _empty(queue)
            queue.put_nowait(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                while self._queues:
                    self._left.clear()
                    await self._left.wait()

    def change(self, batch: Batch) -> None:
        """The cluster has changed; `batch` has its revisions."""
        for queue in self._queues:
            queue.put_nowait(partial(batch_step, batch))

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.WatchResponse]:
        if self._ended:
            return
        queue: asyncio.Queue[Encode | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            for piece in _snapshot(self.cluster):
                queue.put_nowait(piece)
            while (encode := await queue.get()) is not None:
                yield await asyncio.to_thread(encode) if isinstance(encode, _Piece) else encode()
        finally:
            self._queues.discard(queue)
            self._left.set()


class _Piece(partial[pb.WatchResponse]):
    """Encodes a piece of a snapshot."""


def _empty(queue: "asyncio.Queue[Encode | None]") -> None:
    while not queue.empty():
        queue.get_nowait()


def _pieces(whole: Batch, size: int) -> list[Batch]:
    """Batches with up to `size` nodes or pods each, after one with all that these refer to."""
    pods = [whole.pods[at : at + size] for at in range(0, len(whole.pods), size)]
    nodes = [whole.nodes[at : at + size] for at in range(0, len(whole.nodes), size)]
    first = replace(whole, nodes=(), pods=(), changed={}, through={})
    return [first, *(Batch(nodes=some) for some in nodes), *(Batch(pods=some) for some in pods)]


def _snapshot(cluster: VirtualCluster) -> list[Encode]:
    whole = cluster.whole()
    pieces = _pieces(whole, _PIECE)
    return [
        partial(snapshot_begin_step, "a virtual cluster"),
        *(_Piece(batch_step, each) for each in pieces),
        partial(synced_step, whole.through),
    ]
