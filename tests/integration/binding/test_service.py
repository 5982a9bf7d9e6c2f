"""The binding service as a whole: readiness, shutdown and traces."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry import trace

from builders.binding.service import SECONDS, Rig, results_of, rig
from builders.e2e.faults import BINDS, EVERYTHING, Requests
from builders.telemetry.collector import attributes_of, collecting
from builders.wait import yield_to_loop
from muster.binding import service
from muster.binding.service import report_readiness, run
from muster.binding.settings import Settings
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.config.settings import KubeSettings
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.kube.session import KubeSession
from muster.localcluster.ports import free_port
from muster.rpc.channel import open_channel
from muster.telemetry import tracing

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
BOUND = pb.BindResult.OUTCOME_BOUND
READY = Requests("GET", "/readyz")


@pytest.fixture
async def muster(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path, requests_in_flight=4) as found:
        yield found


async def healthy(port: int, wanted: int) -> None:
    """Wait until the health service reports the status."""
    async with open_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(SECONDS):
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="muster.binding.v1.BindingService"), wait_for_ready=True
        )
        async for answer in watch:
            if answer.status == wanted:
                watch.cancel()
                return


async def test_service_is_ready_while_the_api_server_answers(muster: Rig, tmp_path: Path) -> None:
    session = await KubeSession.connect(KubeSettings(kubeconfig=tmp_path / "faulty"))
    reported: asyncio.Queue[bool] = asyncio.Queue()

    async def until_reported(wanted: bool) -> None:
        async with asyncio.timeout(SECONDS):
            while await reported.get() is not wanted:
                pass

    reporting = asyncio.create_task(
        report_readiness(session, reported.put_nowait, poll_seconds=0.005, grace_seconds=0.05)
    )
    await until_reported(True)
    with muster.faults.cut(EVERYTHING):
        await until_reported(False)
    await until_reported(True)
    with muster.faults.refuse(READY, 500):
        await until_reported(False)
    await until_reported(True)
    with muster.faults.refuse(READY, 401):
        await until_reported(False)
    with muster.faults.refuse(READY, 403):
        await until_reported(True)
    reporting.cancel()
    await session.close()


async def test_service_is_not_ready_before_the_api_server_answers(muster: Rig, tmp_path: Path) -> None:
    session = await KubeSession.connect(KubeSettings(kubeconfig=tmp_path / "faulty"))
    reported: asyncio.Queue[bool] = asyncio.Queue()
    with muster.faults.cut(READY):
        reporting = asyncio.create_task(report_readiness(session, reported.put_nowait))
        assert await reported.get() is False
    reporting.cancel()
    await session.close()


class Coordinator(coordinator_pb2_grpc.CoordinatorServiceServicer):
    """Says who leads."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def Leader(self, request: Any, context: Any) -> coordinator_pb2.LeaderResponse:  # noqa: N802
        return coordinator_pb2.LeaderResponse(identity="a", epoch=await self._rig.read_epoch())


async def test_sigterm_lets_running_binds_finish(muster: Rig, tmp_path: Path) -> None:
    coordinator = grpc.aio.server()
    coordinator_pb2_grpc.add_CoordinatorServiceServicer_to_server(Coordinator(muster), coordinator)  # type: ignore[abstract]
    leader = f"127.0.0.1:{coordinator.add_insecure_port('127.0.0.1:0')}"
    await coordinator.start()
    pods = await muster.pods("trainer-0", "trainer-1")
    port = free_port()
    settings = Settings(
        listen=f"127.0.0.1:{port}", coordinator=leader, kube=KubeSettings(kubeconfig=tmp_path / "faulty")
    )
    running = asyncio.create_task(run(settings))
    await healthy(port, SERVING)
    async with open_channel(f"127.0.0.1:{port}") as channel, open_channel(f"127.0.0.1:{port}") as other:
        muster.stub = pb_grpc.BindingServiceStub(channel)
        with muster.faults.hold(BINDS) as held:
            call = asyncio.create_task(muster.bind(pods))
            await held.until(2)
            stopping = asyncio.create_task(_goes_away(other))
            await yield_to_loop()
            os.kill(os.getpid(), signal.SIGTERM)
            await stopping
            held.release()
            assert [result.outcome for result in await call] == [BOUND, BOUND]
    async with asyncio.timeout(SECONDS):
        await running
    await coordinator.stop(None)


async def _goes_away(channel: grpc.aio.Channel) -> None:
    """Wait until health has been SERVING and is not any more."""
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    async with asyncio.timeout(SECONDS):
        try:
            async for answer in watch:
                if answer.status == NOT_SERVING:
                    return
        except grpc.aio.AioRpcError:
            return


async def test_unfinished_binds_end_after_the_drain_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_LAST_COUNTS_SECONDS", 0.05)
    async with rig(tmp_path, requests_in_flight=4, drain_seconds=0.2) as muster:
        pods = await muster.pods("trainer-0")
        with muster.faults.hold(BINDS) as held:
            call = muster.bind_call(pods)
            reading = asyncio.create_task(results_of(call))
            await held.until(1)
            await muster.service.stop()
            with pytest.raises(grpc.aio.AioRpcError):
                await reading


async def test_trace_has_the_outcome_of_each_pod_and_the_reason_of_retries(
    muster: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = await muster.pods("quick", "retried")
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        shutdown = tracing.configure_tracing("binding", "binding-0")
        try:
            root = tracing.new_traceparent()
            gang = tracing.new_traceparent(root)
            parent = tracing.from_traceparent(gang)
            assert parent is not None
            with (
                trace.use_span(trace.NonRecordingSpan(parent)),
                muster.faults.refuse(Requests("POST", "/retried/binding"), 500, times=1),
            ):
                await muster.bind(pods, "node-3", gang_span=root)
        finally:
            await asyncio.to_thread(shutdown)
    call = collector.named("muster.binding.v1.BindingService/Bind")
    assert call.trace_id.hex() in gang
    found = [pod for event in call.events for pod in _pods_of(event)]
    assert sorted((name, node, outcome) for name, node, outcome, _ in found) == [
        ("ml/quick", "node-3", "bound"),
        ("ml/retried", "node-3", "bound"),
    ]
    slow = collector.named("bind pod")
    assert slow.parent_span_id == call.span_id
    attributes = attributes_of(slow)
    assert "made to fail" in attributes.pop("muster.last_failure")
    assert attributes == {
        "k8s.namespace.name": "ml",
        "k8s.pod.name": "retried",
        "k8s.pod.uid": pods[1]["metadata"]["uid"],
        "k8s.node.name": "node-3",
        "muster.outcome": "bound",
        "muster.attempts": 2,
    }
    assert [f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in slow.links] == [root[3:-3]]


async def test_trace_of_a_large_gang_batches_pods_into_few_events(muster: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = await muster.pods(*(f"trainer-{number}" for number in range(250)))
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        shutdown = tracing.configure_tracing("binding", "binding-0")
        try:
            await muster.bind(pods)
        finally:
            await asyncio.to_thread(shutdown)
    call = collector.named("muster.binding.v1.BindingService/Bind")
    assert len(call.events) <= 100
    assert call.dropped_events_count == 0
    names = {name for event in call.events for name, *_ in _pods_of(event)}
    assert names == {f"ml/{pod['metadata']['name']}" for pod in pods}


def _pods_of(event: Any) -> list[tuple[Any, ...]]:
    """(name, node, outcome, milliseconds) of each pod in a span event."""
    columns = {pair.key: pair.value.array_value.values for pair in event.attributes}
    texts = ([value.string_value for value in columns[f"muster.{name}"]] for name in ("pods", "nodes", "outcomes"))
    return list(zip(*texts, [value.int_value for value in columns["muster.milliseconds"]], strict=True))
