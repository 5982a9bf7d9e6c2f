"""One trace per gang, from its first pod to its last bind, also across a coordinator crash."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.faults import BINDS
from builders.e2e.world import World
from builders.gangs.manifests import gang
from builders.telemetry.metrics import examples_at
from muster.cli.trace_file import Span, newest_trace_with, spans_of_trace
from muster.localcluster.trace_receiver import TraceReceiver

pytestmark = pytest.mark.asyncio(loop_scope="session")

GANG, TRACE_ID = "muster.gang", "muster.dev/trace-id"


@pytest_asyncio.fixture(loop_scope="session")
async def traces(tmp_path: Path) -> AsyncIterator[TraceReceiver]:
    receiver = TraceReceiver(tmp_path / "traces.jsonl")
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def traced(traces: TraceReceiver, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path / "cluster", otlp_endpoint=traces.url) as cluster:
        yield cluster


def children_of(spans: list[Span], name: str) -> set[str]:
    """Names of the child spans of the span with this name."""
    [parent] = [span for span in spans if span.name == name]
    return {span.name for span in spans if span.parent_id == parent.span_id}


async def test_a_trace_continues_after_a_crash_in_mid_bind(traced: Cluster, traces: TraceReceiver) -> None:
    world = World(traced)
    await world.nodes(4, 4)
    with traced.faults.hold(BINDS, let_pass=3) as held:
        [a] = await world.create(gang("a").of(8))
        await world.bound(a, count=3)
        await held.until(1)
        await traced.stack.kill("coordinator")
        held.drop()
        await traced.stack.start(["coordinator"])
    await world.bound(a)
    await world.satisfied(a)
    addresses = traced.stack.metrics_addresses
    slow = await examples_at(addresses["coordinator"], "muster_gang_phase_duration_seconds")
    slow_calls = await examples_at(addresses["binding"], "rpc_server_call_duration_seconds")
    for service in ("coordinator", "binding"):  # unsent spans are exported at shutdown
        await traced.stack.stop_one(service)

    trace_id = newest_trace_with(traces.path, GANG, a.id)
    assert trace_id is not None
    assert trace_id in slow & slow_calls, "one gets from a slow bucket to the gang's trace"
    spans = spans_of_trace(traces.path, trace_id)
    assert "gang.binding" in children_of(spans, "gang")
    annotated = {pod["metadata"]["annotations"][TRACE_ID] for (ns, _), pod in traced.pods.items() if ns == a.namespace}
    assert annotated == {trace_id}
    bound = [event for span in spans if span.service == "muster-binding" for event in span.events]
    assert len(bound) >= 5, "the binds of the second coordinator are in the trace of the first"
