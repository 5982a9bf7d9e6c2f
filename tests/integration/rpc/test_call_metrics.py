"""Call metrics: every call is observed once on each side, by status, and subscriptions are counted."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from grpc import aio

from builders.net.grpc import CLUSTER_STATE, PLACEMENT, ClusterState, Placement, channel_to, describe, serving
from builders.telemetry.metrics import Figures, open_metrics
from builders.wait import eventually
from muster.clusterstate.v1 import clusterstate_pb2, clusterstate_pb2_grpc
from muster.rpc.errors import RpcError

SIDES = ("rpc_server_call_duration_seconds", "rpc_client_call_duration_seconds")


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.telemetry.metrics_enabled._State.on", True)


def calls(status: grpc.StatusCode) -> list[float]:
    """Number of calls with this status, on each side."""
    labels = {
        "rpc_system_name": "grpc",
        "rpc_method": f"{PLACEMENT}/Describe",
        "rpc_response_status_code": status.name,
    }
    return [Figures.here()(f"{side}_count", **labels) for side in SIDES]


async def until_counted(status: grpc.StatusCode, wanted: Sequence[float]) -> None:
    """Wait for the counts; one side may observe the end later than the other."""
    await eventually(lambda: calls(status) == wanted, lambda: f"{calls(status)} is {wanted}", seconds=10)


async def _refused(_context: Any) -> None:
    raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, "not now")


async def _aborted(context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")


async def _broken(_context: Any) -> None:
    raise KeyError("nobody thought of it")


async def _well(_context: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("behavior", "status"),
    [
        (_well, grpc.StatusCode.OK),
        (_refused, grpc.StatusCode.FAILED_PRECONDITION),
        (_aborted, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (_broken, grpc.StatusCode.INTERNAL),
    ],
    ids=lambda each: getattr(each, "name", None),
)
async def test_a_call_counts_once_on_each_side(behavior: Any, status: grpc.StatusCode) -> None:
    before = calls(status)
    async with serving(placement=Placement(behavior)) as (_, port), channel_to(port) as channel:
        try:
            await describe(channel)
        except aio.AioRpcError as error:
            assert error.code() is status
        await until_counted(status, [count + 1 for count in before])


async def test_a_call_that_its_caller_gives_up_is_cancelled_on_both_sides() -> None:
    called = asyncio.Event()

    async def for_ever(_context: Any) -> None:
        called.set()
        await asyncio.Event().wait()

    before = calls(grpc.StatusCode.CANCELLED)
    async with serving(placement=Placement(for_ever)) as (_, port), channel_to(port) as channel:
        call = asyncio.create_task(describe(channel))
        await called.wait()
        call.cancel()
        await until_counted(grpc.StatusCode.CANCELLED, [count + 1 for count in before])


async def test_a_call_that_nobody_answers_is_unavailable() -> None:
    before = calls(grpc.StatusCode.UNAVAILABLE)
    async with channel_to(1) as channel:
        with pytest.raises(aio.AioRpcError):
            await describe(channel)
    await until_counted(grpc.StatusCode.UNAVAILABLE, [before[0], before[1] + 1])


async def test_a_subscription_counts_while_it_is_open() -> None:
    def subscribers() -> float:
        return Figures.here()("muster_subscribers", rpc_method=f"{CLUSTER_STATE}/Watch")

    cluster_state = ClusterState()
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        stub = clusterstate_pb2_grpc.ClusterStateServiceStub(channel)
        watch = stub.Watch(clusterstate_pb2.WatchRequest(subscriber="test"))
        cluster_state.send_delta("a pod")
        await watch.read()
        assert subscribers() == 1

        watch.cancel()
        await cluster_state.all_gone()
        await eventually(lambda: not subscribers(), seconds=10)
    assert Figures.here()("rpc_server_call_duration_seconds_count", rpc_method=f"{CLUSTER_STATE}/Watch") == 0


async def test_a_call_in_a_trace_is_an_example() -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with serving(placement=Placement()) as (_, port), channel_to(port) as channel:
        await describe(channel, metadata=(("traceparent", f"00-{trace_id}-00f067aa0ba902b7-01"),))
        await until_counted(grpc.StatusCode.OK, calls(grpc.StatusCode.OK))

    reported = open_metrics()
    for side in SIDES:
        assert any(line.startswith(f"{side}_bucket") and trace_id in line for line in reported), side
