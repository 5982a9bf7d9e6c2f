"""A gang's trace in the real Jaeger: one complete trace across a crash, by both protocols of OTLP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.faults import BINDS
from builders.e2e.world import World
from builders.gangs.manifests import gang
from builders.telemetry.jaeger import PROGRAM, Jaeger, JaegerSpan, running_jaeger

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="Jaeger is not there: make tools builds it where Go is"),
]

TRACE_ID = "muster.dev/trace-id"
RESOURCE = "deployment.environment.name=test,k8s.namespace.name=muster-system"


@pytest_asyncio.fixture(loop_scope="session")
async def jaeger(tmp_path: Path) -> AsyncIterator[Jaeger]:
    async with running_jaeger(tmp_path) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def traced(jaeger: Jaeger, tmp_path: Path) -> AsyncIterator[Cluster]:
    environment = {"OTEL_RESOURCE_ATTRIBUTES": RESOURCE}
    async with running_cluster(
        tmp_path / "cluster", otlp_endpoint=f"http://{jaeger.grpc}", service_environment=environment
    ) as cluster:
        yield cluster


def names(spans: list[JaegerSpan]) -> set[str]:
    return {span.name for span in spans}


def one(spans: list[JaegerSpan], name: str, kind: str = "internal") -> JaegerSpan:
    [span] = [span for span in spans if span.name == name and span.tags.get("span.kind", "internal") == kind]
    return span


async def test_a_gang_is_one_trace_across_a_coordinator_crash_in_mid_bind(traced: Cluster, jaeger: Jaeger) -> None:
    world, coordinator = World(traced), traced.stack.children["coordinator"]
    await world.nodes(4, 4)
    with traced.faults.hold(BINDS, let_pass=3) as held:
        [a] = await world.create(gang("a").of(8))
        await world.bound(a, count=3)
        await held.until(1)
        trace_id = (await traced.explain(a.id)).gang.trace_id
        await jaeger.trace_when(trace_id, lambda spans: "gang.permitted" in names(spans))
        await traced.stack.kill("coordinator")
        held.drop()
    # the next coordinator uses the other protocol and would not keep its own first spans
    coordinator.environment |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{jaeger.http}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0",
    }
    with traced.faults.refuse(BINDS, 500, times=1):  # a retried pod has a span of its own
        await traced.stack.start(["coordinator"])
        await world.satisfied(a)
    for service in ("coordinator", "binding"):  # unsent spans are exported at shutdown
        await traced.stack.stop_one(service)
    # Jaeger ingests batches one after the other
    last = {"gang", "gang.binding", "placement.search", "bind pod"}
    spans = await jaeger.trace_when(trace_id, lambda spans: last <= names(spans))

    root = one(spans, "gang")
    assert root.parent == ""
    assert root.tags["muster.gang"] == a.id
    assert root.tags["muster.gang.pods"] == 8
    ids = {span.span_id for span in spans}
    assert {span.name for span in spans if span.parent not in ids} == {"gang"}, "no span hangs in the air"
    phases = {span.name for span in spans if span.parent == root.span_id}
    assert {"gang.queued", "gang.solving", "gang.permitted", "gang.binding"} <= phases
    assert one(spans, "gang.permitted").tags["muster.gang.next_phase"] == "binding"

    solve = one(spans, "solve")
    asked = one(spans, "muster.placement.v1.PlacementService/Solve", "client")
    answered = one(spans, "muster.placement.v1.PlacementService/Solve", "server")
    assert (asked.parent, answered.parent) == (solve.span_id, asked.span_id)
    assert asked.tags["rpc.system.name"] == "grpc"
    assert one(spans, "placement.search").tags["muster.groups_in_batch"] == 1

    binding = one(spans, "gang.binding")
    calls = [span for span in spans if span.name == "muster.binding.v1.BindingService/Bind"]
    assert len(calls) >= 2, "both coordinators asked for binds"
    assert {span.parent for span in calls} == {binding.span_id}
    pods = [span for span in spans if span.name == "bind pod"]
    assert {link for span in pods for link in span.links} == {f"{trace_id}-{root.span_id}"}
    reported = {pod for span in calls for event in span.events for pod in json.loads(event["muster.pods"])}
    assert reported == {"/".join(key) for key in traced.pods if key[0] == a.namespace}

    services = {span.service for span in spans}
    assert services == {"muster-coordinator", "muster-placement", "muster-binding"}
    for span in spans:
        assert span.resource["service.namespace"] == "muster"
        assert span.resource["deployment.environment.name"] == "test"
        assert span.resource["service.version"]
    instances = {span.resource["service.instance.id"] for span in spans if span.service == "muster-coordinator"}
    assert len(instances) == 2, "both coordinators are seen"

    annotated = {pod["metadata"]["annotations"][TRACE_ID] for (ns, _), pod in traced.pods.items() if ns == a.namespace}
    assert annotated == {trace_id}
    notes = [event.get("note", "") for event in traced.events.values() if event["metadata"]["namespace"] == a.namespace]
    assert any(note.endswith(f"(trace {trace_id})") for note in notes)
    found = await jaeger.get("/api/traces", service="muster-coordinator", tags=json.dumps({"muster.gang": a.id}))
    assert [trace["traceID"] for trace in found["data"]] == [trace_id]
