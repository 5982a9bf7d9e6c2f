"""The gRPC server: health, reflection, error statuses, and draining."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from builders.net.grpc import CLUSTER_STATE, PLACEMENT, ClusterState, Placement, channel_to, describe, serving
from builders.wait import WAIT_SECONDS, eventually
from muster.clusterstate.v1 import clusterstate_pb2, clusterstate_pb2_grpc
from muster.config.settings import PLAIN_TEXT
from muster.placement.v1 import placement_pb2, placement_pb2_grpc
from muster.rpc.errors import RpcError
from muster.rpc.server import CannotListen, RpcServer
from muster.rpc.watch_only import WatchOnly

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def health(channel: grpc.aio.Channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
    return int(answer.status)


async def test_it_is_not_ready_before_it_says_so() -> None:
    async with serving(placement=Placement(), ready=False) as (server, port), channel_to(port) as channel:
        assert await health(channel) == NOT_SERVING
        assert await health(channel, PLACEMENT) == NOT_SERVING
        server.set_ready(True)
        assert await health(channel) == SERVING
        assert await health(channel, PLACEMENT) == SERVING
        server.set_ready(False)
        assert await health(channel, PLACEMENT) == NOT_SERVING


async def test_health_of_an_unknown_service_is_not_found() -> None:
    async with serving(placement=Placement()) as (_, port), channel_to(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health(channel, "muster.nothing.v1.Nothing")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "muster.nothing.v1.Nothing" in (caught.value.details() or "")


async def test_health_watchers_hear_every_change_at_once() -> None:
    async with serving(placement=Placement()) as (server, port), channel_to(port) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=PLACEMENT))
        assert (await watch.read()).status == SERVING
        server.set_ready(False)
        assert (await watch.read()).status == NOT_SERVING
        server.set_ready(True)
        assert (await watch.read()).status == SERVING
        watch.cancel()


async def test_a_slow_health_watcher_blocks_nobody() -> None:
    async with serving(placement=Placement()) as (server, port), channel_to(port) as channel:
        lazy = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await lazy.read()
        for _ in range(1000):
            server.set_ready(False)
            server.set_ready(True)
        assert await health(channel) == SERVING
        lazy.cancel()


async def test_reflection_lists_the_services_where_it_is_asked_for() -> None:
    async with serving(placement=Placement(), reflects=True) as (_, port), channel_to(port) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async for answer in stub.ServerReflectionInfo(iter([request]), timeout=30):
            names = {service.name for service in answer.list_services_response.service}
    assert names == {PLACEMENT, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_without_it_there_is_no_reflection() -> None:
    async with serving(placement=Placement()) as (_, port), channel_to(port) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ServerReflectionInfo(iter([request]), timeout=30).read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_an_error_with_a_code_becomes_that_status_and_one_line() -> None:
    async def refuse(_: object) -> None:
        raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, "pods 7 was not reached, only 5")

    with capture_logs() as logs:
        async with serving(placement=Placement(refuse)) as (_, port), channel_to(port) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await describe(channel)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details() == "pods 7 was not reached, only 5"
    reported = [line for line in logs if line["event"] in ("call_failed", "call_rejected")]
    assert [(line["log_level"], line["code"]) for line in reported] == [("info", "FAILED_PRECONDITION")]


async def test_a_bug_becomes_internal_and_one_line_with_its_traceback() -> None:
    async def fail(_: object) -> None:
        raise KeyError("node-7")

    with capture_logs() as logs:
        async with serving(placement=Placement(fail)) as (_, port), channel_to(port) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await describe(channel)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details() == "KeyError: 'node-7'"
    reported = [line for line in logs if line["event"] in ("call_failed", "call_rejected")]
    assert [(line["log_level"], line["method"]) for line in reported] == [("error", f"/{PLACEMENT}/Describe")]
    assert isinstance(reported[0]["exc_info"], KeyError)


async def test_a_status_set_by_the_method_itself_is_kept() -> None:
    async def abort(context: grpc.aio.ServicerContext[object, object]) -> None:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    async with serving(placement=Placement(abort)) as (_, port), channel_to(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await describe(channel)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "full")


async def test_a_call_past_its_deadline_is_cancelled_on_the_server() -> None:
    ended = asyncio.Event()

    async def hang(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(placement=Placement(hang)) as (_, port), channel_to(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await describe(channel, timeout_seconds=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        async with asyncio.timeout(WAIT_SECONDS):
            await ended.wait()


async def test_stop_finishes_running_calls_and_accepts_no_new_ones() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> None:
        arrived.set()
        await go_on.wait()

    async with serving(placement=Placement(slow)) as (server, port), channel_to(port) as channel:
        running = asyncio.create_task(describe(channel))
        await arrived.wait()
        stopping = asyncio.create_task(server.stop(30))
        await eventually(lambda: not server.ready, seconds=10, every_seconds=0)
        async with channel_to(port) as late:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await describe(late)
        # A call that comes in at the very moment of the stop is cancelled by gRPC; later ones find nobody.
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert not stopping.done()
        go_on.set()
        assert await running == "test"
        async with asyncio.timeout(WAIT_SECONDS):
            await stopping


async def test_stop_cuts_off_what_does_not_finish_in_time() -> None:
    arrived = asyncio.Event()

    async def hang(_: object) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with serving(placement=Placement(hang)) as (server, port), channel_to(port) as channel:
        running = asyncio.create_task(describe(channel, timeout_seconds=60))
        await arrived.wait()
        async with asyncio.timeout(WAIT_SECONDS):
            await server.stop(0.1)
            with pytest.raises(grpc.aio.AioRpcError):
                await running


async def test_stop_ends_subscriptions_at_once_and_says_why() -> None:
    cluster_state = ClusterState()
    async with serving(cluster_state=cluster_state) as (server, port), channel_to(port) as channel:
        stub = clusterstate_pb2_grpc.ClusterStateServiceStub(channel)
        stream = stub.Watch(clusterstate_pb2.WatchRequest(subscriber="test"))
        cluster_state.send_delta("a")
        await stream.read()
        async with asyncio.timeout(WAIT_SECONDS):  # far below the grace
            await server.stop(600)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == "this server is stopping"


async def test_stop_during_the_first_write_ends_the_subscription() -> None:
    stops: list[asyncio.Task[None]] = []

    class StopsMeanwhile(WatchOnly):
        async def Watch(self, request: object, context: object) -> AsyncIterator[Any]:  # noqa: N802
            stops.append(asyncio.create_task(server.stop(600)))
            yield clusterstate_pb2.WatchResponse()
            await asyncio.Event().wait()

    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "test")
    register = clusterstate_pb2_grpc.add_ClusterStateServiceServicer_to_server
    server.add(register, StopsMeanwhile(), CLUSTER_STATE)
    port = await server.start()
    async with channel_to(port) as channel, asyncio.timeout(WAIT_SECONDS):  # far below the grace
        stream = clusterstate_pb2_grpc.ClusterStateServiceStub(channel).Watch(clusterstate_pb2.WatchRequest())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stream:
                pass
        await asyncio.gather(*stops)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == "this server is stopping"


async def test_an_address_in_use_is_named() -> None:
    async with serving(placement=Placement()) as (_, port):
        second = RpcServer(f"127.0.0.1:{port}", PLAIN_TEXT, "second")
        with pytest.raises(CannotListen, match=f"127.0.0.1:{port}"):
            await second.start()


async def test_a_method_that_is_not_there_is_unimplemented() -> None:
    async with serving(cluster_state=ClusterState()) as (_, port), channel_to(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await placement_pb2_grpc.PlacementServiceStub(channel).Solve(placement_pb2.SolveRequest(), timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
