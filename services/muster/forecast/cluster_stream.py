"""ClusterStateService for a placement of one's own: streams a virtual cluster instead of a real one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch
from muster.rpc.watch_codec import batch_step, snapshot_begin_step, synced_step

FULL_NAME: Final = "muster.clusterstate.v1.ClusterStateService"


class ClusterStream(pb_grpc.ClusterStateServiceServicer):
    """Sends the virtual cluster and its changes to all subscribers.

    A queue per subscriber, which holds what was sent and not read yet: changes of the cluster end when nobody solves.
    """

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self._queues: set[asyncio.Queue[pb.WatchResponse]] = set()

    def begin(self, cluster: VirtualCluster) -> None:
        """Another cluster replaces the present one."""
        self.cluster = cluster
        self._send(*_snapshot(cluster))

    def change(self, batch: Batch) -> None:
        """The cluster has changed; `batch` has its revisions."""
        self._send(batch_step(batch))

    def _send(self, *messages: pb.WatchResponse) -> None:
        for queue in self._queues:
            for message in messages:
                queue.put_nowait(message)

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.WatchResponse]:
        queue: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()
        self._queues.add(queue)
        try:
            for message in _snapshot(self.cluster):
                yield message
            while True:
                yield await queue.get()
        finally:
            self._queues.discard(queue)


_PIECE: Final = 5000
"""Objects of one message of a snapshot."""


def _snapshot(cluster: VirtualCluster) -> list[pb.WatchResponse]:
    whole = cluster.whole()
    first = Batch(
        pod_classes=whole.pod_classes,
        selectors=whole.selectors,
        label_sets=whole.label_sets,
        namespaces=whole.namespaces,
        trees=whole.trees,
        nodes=whole.nodes,
        budgets=whole.budgets,
    )
    pieces = [Batch(pods=whole.pods[at : at + _PIECE]) for at in range(0, len(whole.pods), _PIECE)]
    steps = [batch_step(each) for each in (first, *pieces)]
    return [snapshot_begin_step("a virtual cluster"), *steps, synced_step(whole.through)]
