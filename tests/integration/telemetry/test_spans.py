"""Spans as a collector receives them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from builders.net.grpc import PLACEMENT, ClusterState, Placement, channel_to, describe, serving
from builders.telemetry.collector import Collector, attributes_of, collecting, trace_of
from builders.wait import WAIT_SECONDS, eventually, yield_to_loop
from muster.clusterstate.v1 import clusterstate_pb2, clusterstate_pb2_grpc
from muster.rpc.errors import RpcError
from muster.telemetry import tracing

CLIENT, SERVER = OtlpSpan.SPAN_KIND_CLIENT, OtlpSpan.SPAN_KIND_SERVER
DESCRIBE = f"{PLACEMENT}/Describe"


class Traced:
    """Enabled tracing; `ended` disables it and waits until all spans have arrived."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self._shutdown = tracing.configure_tracing("test", "test-0")

    async def ended(self) -> Collector:
        await asyncio.to_thread(self._shutdown)
        return self.collector


@pytest.fixture
async def traced(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Traced]:
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        on = Traced(collector)
        yield on
        await on.ended()


def short(traceparent: str) -> str:
    return traceparent[3:-3]


async def test_span_with_given_times(traced: Traced) -> None:
    name = tracing.record_span("solve", 1_000, 4_500, attributes={"gang": "a", "pods": 8}, error="no room")
    collector = await traced.ended()
    span = collector.named("solve")
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000, 4_500)
    assert trace_of(span) == short(name)
    assert span.parent_span_id == b""
    assert {pair.key for pair in span.attributes} == {"gang", "pods"}
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "no room")
    assert collector.resources[0].items() >= {"service.name": "muster-test", "service.instance.id": "test-0"}.items()


async def test_children_may_be_recorded_before_their_parent(traced: Traced) -> None:
    root = tracing.new_traceparent()
    child = tracing.record_span("cycle", 2, 3, parent=root)
    grandchild = tracing.new_traceparent(child)
    assert tracing.record_span("solve", 2, 3, parent=child, traceparent=grandchild) == grandchild
    assert tracing.record_span("gang", 1, 9, traceparent=root) == root
    collector = await traced.ended()
    gang, cycle, solve = (collector.named(name) for name in ("gang", "cycle", "solve"))
    assert (trace_of(gang), trace_of(cycle), trace_of(solve)) == (short(root), short(child), short(grandchild))
    assert gang.parent_span_id == b""
    assert cycle.parent_span_id == gang.span_id
    assert solve.parent_span_id == cycle.span_id
    assert len({span.trace_id for span in (gang, cycle, solve)}) == 1


async def test_preassigned_traceparent_applies_to_one_span(traced: Traced) -> None:
    root = tracing.new_traceparent()
    tracing.record_span("first", 1, 2, traceparent=root)
    other = tracing.record_span("second", 1, 2)
    with tracing.tracer().start_as_current_span("third"):
        third = tracing.current_traceparent()
    assert len({root, other, third}) == 3


async def test_unsampled_trace_is_not_sent(traced: Traced) -> None:
    unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    tracing.record_span("dropped", 1, 2, parent=unsampled)
    assert tracing.new_traceparent(unsampled).endswith("-00")
    assert (await traced.ended()).spans == []


async def test_server_continues_the_trace_of_its_client(traced: Traced) -> None:
    async def work(_: Any) -> None:
        with tracing.tracer().start_as_current_span("inside"):
            pass

    async with serving(placement=Placement(work)) as (_, port), channel_to(port) as channel:
        with tracing.tracer().start_as_current_span("caller"):
            await describe(channel)
    collector = await traced.ended()
    caller, inside = collector.named("caller"), collector.named("inside")
    made, served = collector.named(DESCRIBE, CLIENT), collector.named(DESCRIBE, SERVER)
    assert made.parent_span_id == caller.span_id
    assert served.parent_span_id == made.span_id
    assert inside.parent_span_id == served.span_id
    assert caller.trace_id == made.trace_id == served.trace_id == inside.trace_id
    assert attributes_of(served) == {"rpc.system.name": "grpc", "rpc.method": DESCRIBE}
    assert attributes_of(made) == {
        "rpc.system.name": "grpc",
        "rpc.method": DESCRIBE,
        "rpc.response.status_code": "OK",
        "server.address": "127.0.0.1",
        "server.port": port,
    }


async def test_concurrent_calls_keep_their_own_traces(traced: Traced) -> None:
    async def work(_: Any) -> None:
        await yield_to_loop()
        with tracing.tracer().start_as_current_span("inside"):
            await yield_to_loop()

    async def call(channel: grpc.aio.Channel) -> str:
        with tracing.tracer().start_as_current_span("caller"):
            await describe(channel)
            return tracing.current_traceparent()

    async with serving(placement=Placement(work)) as (_, port), channel_to(port) as channel:
        callers = await asyncio.gather(*(call(channel) for _ in range(20)))
    collector = await traced.ended()
    traces = [span.trace_id.hex() for span in collector.spans if span.name == "inside"]
    assert sorted(traces) == sorted(short(caller)[:32] for caller in callers)


@pytest.mark.parametrize(
    ("code", "is_the_servers_fault"), [(grpc.StatusCode.NOT_FOUND, False), (grpc.StatusCode.UNAVAILABLE, True)]
)
async def test_failed_call_has_error_spans(traced: Traced, code: grpc.StatusCode, is_the_servers_fault: bool) -> None:
    async def refuse(_: Any) -> None:
        raise RpcError(code, "no such gang")

    async with serving(placement=Placement(refuse)) as (_, port), channel_to(port) as channel:
        with tracing.tracer().start_as_current_span("caller"), pytest.raises(grpc.aio.AioRpcError):
            await describe(channel)
    # The server ends its span after the client has the answer.
    await eventually(lambda: any(span.kind == SERVER for span in traced.collector.spans))
    collector = await traced.ended()
    made, served = collector.named(DESCRIBE, CLIENT), collector.named(DESCRIBE, SERVER)
    assert (made.status.code, made.status.message) == (Status.STATUS_CODE_ERROR, "no such gang")
    assert (served.status.code == Status.STATUS_CODE_ERROR) is is_the_servers_fault
    assert attributes_of(made)["error.type"] == code.name
    assert ("error.type" in attributes_of(served)) is is_the_servers_fault
    assert {attributes_of(span)["rpc.response.status_code"] for span in (made, served)} == {code.name}


async def test_unanswered_call_has_a_client_span(traced: Traced) -> None:
    async with serving() as (_, port):
        pass
    async with channel_to(port) as channel:
        with tracing.tracer().start_as_current_span("caller"), pytest.raises(grpc.aio.AioRpcError):
            await describe(channel)
    span = (await traced.ended()).named(DESCRIBE)
    assert (span.kind, span.status.code) == (CLIENT, Status.STATUS_CODE_ERROR)
    assert attributes_of(span)["error.type"] == "UNAVAILABLE"


async def test_call_outside_of_a_trace_has_no_client_span(traced: Traced) -> None:
    async with serving(placement=Placement()) as (_, port), channel_to(port) as channel:
        await describe(channel)
    assert [span.kind for span in (await traced.ended()).spans] == [SERVER]


async def test_health_and_subscriptions_have_no_spans(traced: Traced) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    cluster_state = ClusterState()
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
        stub = clusterstate_pb2_grpc.ClusterStateServiceStub(channel)
        stream = stub.Watch(clusterstate_pb2.WatchRequest(subscriber="test"))
        cluster_state.send_delta("a")
        await stream.read()
        stream.cancel()
    assert (await traced.ended()).spans == []


async def test_shutdown_without_a_collector_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as (_, endpoint):
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    shutdown = tracing.configure_tracing("test", "test-0")
    tracing.record_span("lost", 1, 2)
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.to_thread(shutdown)
    assert not tracing.enabled()
