"""Channels: mandatory deadlines, trace propagation, and reconnects."""

import asyncio
from contextlib import AsyncExitStack

import grpc
import pytest
from opentelemetry import trace

from builders.net.grpc import ClusterState, Placement, channel_to, describe, serving
from builders.wait import WAIT_SECONDS
from muster.clusterstate.v1 import clusterstate_pb2, clusterstate_pb2_grpc
from muster.placement.v1 import placement_pb2, placement_pb2_grpc
from muster.rpc.errors import MissingDeadline
from muster.telemetry import tracing

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_call_without_a_deadline_is_refused_before_it_leaves() -> None:
    placement = Placement()
    async with serving(placement=placement) as (_, port), channel_to(port) as channel:
        stub = placement_pb2_grpc.PlacementServiceStub(channel)
        with pytest.raises(MissingDeadline, match=r"Describe was called without a deadline; pass timeout="):
            await stub.Describe(placement_pb2.DescribeRequest())
    assert placement.calls == 0


async def test_a_subscription_needs_no_deadline() -> None:
    cluster_state = ClusterState()
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        stream = clusterstate_pb2_grpc.ClusterStateServiceStub(channel).Watch(clusterstate_pb2.WatchRequest())
        cluster_state.send_delta("a")
        message = await stream.read()
        assert isinstance(message, clusterstate_pb2.WatchResponse)
        assert list(message.batch.removed_pods) == ["a"]
        stream.cancel()


async def test_the_trace_of_the_caller_travels_with_the_call() -> None:
    seen: list[str] = []

    async def note(context: grpc.aio.ServicerContext[object, object]) -> None:
        seen.extend(str(value) for key, value in context.invocation_metadata() or () if key == "traceparent")

    async with serving(placement=Placement(note)) as (_, port), channel_to(port) as channel:
        parent = tracing.from_traceparent(TRACEPARENT)
        assert parent is not None
        with trace.use_span(trace.NonRecordingSpan(parent)):
            await describe(channel)
        await describe(channel)  # no trace, nothing sent
        own = TRACEPARENT.replace("b7ad", "a1b2")
        with trace.use_span(trace.NonRecordingSpan(parent)):
            await describe(channel, metadata=(("traceparent", own),))  # the caller's word counts
    assert seen == [TRACEPARENT, own]


async def test_messages_above_the_default_limit_of_grpc_pass() -> None:
    cluster_state = ClusterState()
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        stream = clusterstate_pb2_grpc.ClusterStateServiceStub(channel).Watch(clusterstate_pb2.WatchRequest())
        cluster_state.send_delta("x" * (20 * 1024 * 1024))
        message = await stream.read()
        assert isinstance(message, clusterstate_pb2.WatchResponse)
        assert len(message.batch.removed_pods[0]) == 20 * 1024 * 1024
        stream.cancel()


async def test_a_channel_reconnects_to_a_restarted_server() -> None:
    async with AsyncExitStack() as stack:
        async with serving(placement=Placement()) as (_, port):
            channel = await stack.enter_async_context(channel_to(port))
            assert await describe(channel) == "test"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await describe(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await stack.enter_async_context(serving(placement=Placement(), listen=f"127.0.0.1:{port}"))
        assert await describe(channel, timeout_seconds=30, wait_for_ready=True) == "test"


async def test_replicas_that_are_not_ready_get_no_calls() -> None:
    """With dns:/// and round robin, health decides; a name of this machine has one replica, which is enough."""
    placement = Placement()
    async with (
        serving(placement=placement, listen="localhost:0", ready=False) as (server, port),
        channel_to(f"dns:///localhost:{port}") as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await describe(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert placement.calls == 0
        server.set_ready(True)
        async with asyncio.timeout(WAIT_SECONDS):
            assert await describe(channel, timeout_seconds=30, wait_for_ready=True) == "test"
