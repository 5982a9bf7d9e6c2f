"""The probe port for Kubernetes: health only, without TLS."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from builders.net.certificates import Authority
from builders.net.grpc import PLACEMENT, Placement, channel_to, describe
from builders.wait import WAIT_SECONDS
from muster.config.settings import PLAIN_TEXT
from muster.localcluster.ports import free_port
from muster.placement.v1 import placement_pb2_grpc
from muster.rpc.health import LIVENESS
from muster.rpc.server import CannotListen, RpcServer

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RpcServer]:
    tls = Authority(tmp_path).issue("server")
    server = RpcServer("127.0.0.1:0", tls, "test", clients=["muster-coordinator"], health_listen="127.0.0.1:0")
    server.add(placement_pb2_grpc.add_PlacementServiceServicer_to_server, Placement(), PLACEMENT)
    await server.start()
    yield server
    await server.stop(0)


async def health(channel: grpc.aio.Channel, service: str = "") -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
    return int(answer.status)


async def test_liveness_is_serving_before_readiness(server: RpcServer) -> None:
    async with channel_to(server.health_port) as channel:
        assert (await health(channel), await health(channel, LIVENESS)) == (NOT_SERVING, SERVING)
        server.set_ready(True)
        assert (await health(channel), await health(channel, LIVENESS)) == (SERVING, SERVING)


async def test_the_probe_port_serves_health_only(server: RpcServer) -> None:
    async with channel_to(server.health_port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await describe(channel)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=30).read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_long_probe_request_is_rejected(server: RpcServer) -> None:
    async with channel_to(server.health_port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health(channel, "x" * 2000)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_draining_server_is_alive_and_not_ready() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> None:
        arrived.set()
        await go_on.wait()

    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "test", health_listen="127.0.0.1:0")
    server.add(placement_pb2_grpc.add_PlacementServiceServicer_to_server, Placement(slow), PLACEMENT)
    port = await server.start()
    server.set_ready(True)
    async with channel_to(port) as channel, channel_to(server.health_port) as probes:
        assert await health(probes) == SERVING
        running = asyncio.create_task(describe(channel))
        await arrived.wait()
        stopping = asyncio.create_task(server.stop(30))
        async with asyncio.timeout(WAIT_SECONDS):
            while await health(probes) == SERVING:
                pass
            assert await health(probes, LIVENESS) == SERVING
            go_on.set()
            await asyncio.gather(running, stopping)


async def test_an_address_in_use_is_named(server: RpcServer) -> None:
    taken = f"127.0.0.1:{server.health_port}"
    second = RpcServer(f"127.0.0.1:{free_port()}", PLAIN_TEXT, "second", health_listen=taken)
    with pytest.raises(CannotListen, match=taken):
        await second.start()
