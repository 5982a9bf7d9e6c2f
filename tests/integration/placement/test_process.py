"""The service process: ready once kernels are compiled and the mirror is complete, until it is stopped."""

import asyncio
import threading

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from builders.clusterstate.stream import ClusterStream, serving
from builders.placement.service import Placement, asks, snapshot, where
from muster.config.settings import PLAIN_TEXT
from muster.localcluster.ports import free_port
from muster.placement.service import FULL_NAME, run
from muster.placement.settings import Settings
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel


class SlowCompiler:
    """Replaces a kernel: compiles until released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def load(self) -> bool:
        self.begun.set()
        return self.let_go.wait(30)


async def test_alive_but_not_ready_while_kernels_compile(
    stream: ClusterStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = SlowCompiler()
    monkeypatch.setattr("muster.placement.service.all_kernels", lambda: (compiler,))
    stream.opens_with(snapshot("a"), {"pods": 1})
    async with serving(stream) as address:
        listen = f"127.0.0.1:{free_port()}"
        service = asyncio.create_task(run(Settings(listen=listen, cluster_state=address, instance="test-0")))
        channel = open_channel(listen, PLAIN_TEXT)
        try:
            placement = Placement(channel, pb_grpc.PlacementServiceStub(channel), health_pb2_grpc.HealthStub(channel))
            assert await asyncio.to_thread(compiler.begun.wait, 10)
            asked = health_pb2.HealthCheckRequest(service=FULL_NAME)
            status = await placement.health.Check(asked, timeout=30, wait_for_ready=True)
            assert status.status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert stream.subscribers == []
            compiler.let_go.set()
            await placement.until_ready()
            assert where((await placement.solve(asks(("x", 4)))).results[0]) == {"a": 4}
        finally:
            compiler.let_go.set()
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)
            await channel.close()


async def test_the_service_serves_until_it_is_stopped(stream: ClusterStream) -> None:
    stream.opens_with(snapshot("a"), {"pods": 1})
    async with serving(stream) as address:
        listen = f"127.0.0.1:{free_port()}"
        service = asyncio.create_task(run(Settings(listen=listen, cluster_state=address, instance="test-0")))
        channel = open_channel(listen, PLAIN_TEXT)
        try:
            stub: pb_grpc.PlacementServiceAsyncStub = pb_grpc.PlacementServiceStub(channel)
            response = await stub.Solve(pb.SolveRequest(groups=[asks(("x", 4))]), timeout=30, wait_for_ready=True)
            assert where(response.results[0]) == {"a": 4}
            assert stream.subscribers == ["placement/test-0"]
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)
            with pytest.raises(aio.AioRpcError, match="UNAVAILABLE"):
                await stub.Describe(pb.DescribeRequest(), timeout=30)
        finally:
            service.cancel()
            await channel.close()
