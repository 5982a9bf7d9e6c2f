"""Real gRPC servers with fake services, and channels to them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from builders.wait import eventually
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as state_grpc
from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.placement.v1 import placement_pb2 as placement_pb
from muster.placement.v1 import placement_pb2_grpc as placement_grpc
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer
from muster.rpc.watch_only import WatchOnly

PLACEMENT = "muster.placement.v1.PlacementService"
CLUSTER_STATE = "muster.clusterstate.v1.ClusterStateService"


class Placement(placement_grpc.PlacementServiceServicer):
    """Answers Describe after calling a function of the test with the call's context."""

    def __init__(self, describe: Callable[[Any], Any] | None = None) -> None:
        self.describe = describe
        self.calls = 0

    async def Describe(self, request: Any, context: Any) -> placement_pb.DescribeResponse:  # noqa: N802
        self.calls += 1
        if self.describe is not None:
            await self.describe(context)
        return placement_pb.DescribeResponse(implementation="test")

    async def Solve(self, request: Any, context: Any) -> placement_pb.SolveResponse:  # noqa: N802
        raise AssertionError("Solve is not expected")


class ClusterState(WatchOnly):
    """Sends the `messages` that a test puts; None ends the stream. `subscribers`: names of all subscribers so far."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[state_pb.WatchResponse | None] = asyncio.Queue()
        self.subscribers: list[str] = []
        self.running = 0

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[state_pb.WatchResponse]:  # noqa: N802
        self.subscribers.append(request.subscriber)
        self.running += 1
        try:
            while (message := await self.messages.get()) is not None:
                yield message
        finally:
            self.running -= 1

    async def all_gone(self) -> None:
        """Wait until there is no subscriber."""
        await eventually(lambda: not self.running, "no subscriber is left", seconds=10)

    def send_snapshot(self, *removed_pods: str, reason: str = "subscribed", pods_revision: int = 1) -> None:
        """Send a complete snapshot; the removed pods serve to recognise it."""
        self.messages.put_nowait(state_pb.WatchResponse(snapshot_begin=state_pb.SnapshotBegin(reason=reason)))
        self.send_delta(*removed_pods)
        through = state_pb.Revision(kinds={"pods": pods_revision})
        self.messages.put_nowait(state_pb.WatchResponse(synced=state_pb.Synced(through=through)))

    def send_delta(self, *removed_pods: str) -> None:
        """Send one batch."""
        self.messages.put_nowait(state_pb.WatchResponse(batch=state_pb.Batch(removed_pods=removed_pods)))

    def end_stream(self) -> None:
        """Let the server end the stream without an error."""
        self.messages.put_nowait(None)


@asynccontextmanager
async def serving(
    *,
    placement: Placement | None = None,
    cluster_state: ClusterState | None = None,
    listen: str = "127.0.0.1:0",
    tls: TlsSettings = PLAIN_TEXT,
    clients: Sequence[str] = (),
    reflects: bool = False,
    ready: bool = True,
) -> AsyncIterator[tuple[RpcServer, int]]:
    """A started server with these services, and its port."""
    server = RpcServer(listen, tls, "test", clients=clients, reflects=reflects)
    if placement is not None:
        server.add(placement_grpc.add_PlacementServiceServicer_to_server, placement, PLACEMENT)
    if cluster_state is not None:
        server.add(state_grpc.add_ClusterStateServiceServicer_to_server, cluster_state, CLUSTER_STATE)
    port = await server.start()
    server.set_ready(ready)
    try:
        yield server, port
    finally:
        await server.stop(0)


@asynccontextmanager
async def channel_to(address: str | int, tls: TlsSettings = PLAIN_TEXT) -> AsyncIterator[aio.Channel]:
    """A channel to an address or a local port."""
    channel = open_channel(f"127.0.0.1:{address}" if isinstance(address, int) else address, tls)
    try:
        yield channel
    finally:
        await channel.close()


async def describe(channel: aio.Channel, timeout_seconds: float = 10, **options: Any) -> str:
    """Call Describe; returns the implementation's name."""
    stub = placement_grpc.PlacementServiceStub(channel)
    answer = await stub.Describe(placement_pb.DescribeRequest(), timeout=timeout_seconds, **options)
    return answer.implementation
