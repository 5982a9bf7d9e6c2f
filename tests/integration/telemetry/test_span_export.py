"""Export of spans to a real collector: both protocols, TLS, headers, sampling, and lost spans."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog

from builders.net.certificates import Authority
from builders.telemetry.collector import collecting, trace_of
from muster.telemetry import tracing
from muster.telemetry.logs import configure_logs
from muster.telemetry.otlp import BadTracing, OtlpSettings, Target

Protocol = Literal["grpc", "http/protobuf"]
both_protocols = pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Returns the lines since the last call."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers.clear()  # so that configuring does not close what belongs to pytest
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


async def ended(shutdown: Any) -> None:
    async with asyncio.timeout(15):
        await asyncio.to_thread(shutdown)


@both_protocols
async def test_spans_arrive_with_headers_and_resource(monkeypatch: pytest.MonkeyPatch, protocol: Protocol) -> None:
    async with collecting(protocol) as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20s3cret")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=muster-0,service.namespace=batch")
        shutdown = tracing.configure_tracing("placement", "placement-0")
        tracing.record_span("solve", 1_000, 4_500, attributes={"muster.groups": 8})
        await ended(shutdown)
    assert collector.named("solve").start_time_unix_nano == 1_000
    assert collector.headers[0]["authorization"] == "Bearer s3cret"
    assert (
        collector.resources[0].items()
        >= {
            "service.name": "muster-placement",
            "service.namespace": "batch",
            "service.instance.id": "placement-0",
            "k8s.pod.name": "muster-0",
        }.items()
    )
    assert collector.resources[0]["service.version"]
    counts = tracing.span_counts()
    assert counts is not None
    assert (counts.sent, counts.lost) == (1, 0)


@both_protocols
async def test_mutual_tls_with_the_collector(
    monkeypatch: pytest.MonkeyPatch, protocol: Protocol, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ours")
    client = authority.issue("client")
    async with collecting(protocol, authority.issue("collector")) as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(client.ca_file))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", str(client.certificate_file))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(client.key_file))
        shutdown = tracing.configure_tracing("test", "test-0")
        tracing.record_span("secret", 1, 2)
        await ended(shutdown)
    assert collector.named("secret")


@both_protocols
async def test_collector_of_another_ca_receives_nothing(
    monkeypatch: pytest.MonkeyPatch, protocol: Protocol, tmp_path: Path
) -> None:
    theirs = Authority(tmp_path / "theirs").issue("collector")
    async with collecting(protocol, theirs) as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(Authority(tmp_path / "ours").certificate))
        shutdown = tracing.configure_tracing("test", "test-0")
        tracing.record_span("secret", 1, 2)
        await ended(shutdown)
    assert collector.spans == []


@both_protocols
async def test_rejected_spans_are_counted_and_logged(
    monkeypatch: pytest.MonkeyPatch, protocol: Protocol, logged: Any
) -> None:
    configure_logs("test")
    async with collecting(protocol) as (collector, endpoint):
        collector.refuses = True
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
        shutdown = tracing.configure_tracing("test", "test-0")
        for number in range(10):
            tracing.record_span(f"lost-{number}", 1, 2)
        await ended(shutdown)
        counts = tracing.span_counts()
        assert counts is not None
        assert (counts.sent, counts.failed, counts.dropped) == (0, 10, 0)
    lines = logged()
    assert {(line["event"], line["level"]) for line in lines} == {("spans_lost", "warning")}
    assert sum(line["spans"] for line in lines) == 10
    assert all("PERMISSION_DENIED" in line["reason"] or "403" in line["reason"] for line in lines)
    assert "s3cret" not in str(lines)


async def test_unreachable_collector_costs_seconds_and_one_log_line(
    monkeypatch: pytest.MonkeyPatch, logged: Any
) -> None:
    configure_logs("test")
    async with collecting() as (_, endpoint):
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    shutdown = tracing.configure_tracing("test", "test-0")
    for number in range(1000):
        tracing.record_span(f"lost-{number}", 1, 2)
    await ended(shutdown)
    counts = tracing.span_counts()
    assert counts is not None
    assert (counts.sent, counts.lost) == (0, 1000)
    assert sum(line["spans"] for line in logged()) == 1000


async def test_full_queue_drops_the_newest_without_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "5")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")  # sent as soon as there are as many as are sent at once
        shutdown = tracing.configure_tracing("test", "test-0")
        collector.answers.clear()
        for number in range(5):
            tracing.record_span(f"sent-{number}", 1, 2)
        await collector.asked.wait()
        for number in range(8):
            tracing.record_span(f"queued-{number}", 1, 2)
        counts = tracing.span_counts()
        assert counts is not None
        assert counts.dropped == 3
        collector.answers.set()
        await ended(shutdown)
    assert (counts.sent, counts.dropped, counts.failed) == (10, 3, 0)
    queued = {span.name for span in collector.spans if span.name.startswith("queued")}
    assert queued == {f"queued-{number}" for number in range(5)}


async def test_spans_of_many_threads_all_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4000")
        shutdown = tracing.configure_tracing("test", "test-0")

        def record() -> None:
            for number in range(500):
                tracing.record_span(f"span-{number}", 1, 2)

        await asyncio.gather(*(asyncio.to_thread(record) for _ in range(4)))
        await ended(shutdown)
    assert len({trace_of(span) for span in collector.spans}) == 2000


async def test_invalid_span_limit_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "many")
    with pytest.raises(BadTracing, match="OTEL_SPAN_EVENT_COUNT_LIMIT"):
        tracing.configure_tracing("test", "test-0")


# -- which traces are kept


async def kept_of(monkeypatch: pytest.MonkeyPatch, sampler: str, ratio: str, roots: list[str]) -> set[str]:
    """Traceparents of the spans that arrive, of the given roots and as many new ones."""
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
        shutdown = tracing.configure_tracing("test", "test-0")
        for root in roots:
            tracing.record_span("gang", 1, 2, traceparent=root)
            tracing.record_span("gang.binding", 1, 2, parent=root)
        await ended(shutdown)
    return {trace_of(span) for span in collector.spans if span.name == "gang"} | {
        span.trace_id.hex() for span in collector.spans if span.name == "gang.binding"
    }


@pytest.mark.parametrize("ratio", ["0", "1"])
async def test_sampling_decision_survives_a_change_of_the_ratio(monkeypatch: pytest.MonkeyPatch, ratio: str) -> None:
    yes, no = f"00-{'ab' * 16}-{'cd' * 8}-01", f"00-{'ef' * 16}-{'cd' * 8}-00"
    kept = await kept_of(monkeypatch, "parentbased_traceidratio", ratio, [yes, no])
    assert kept == {yes[3:-3], yes[3:35]}


async def test_sampled_traces_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
        shutdown = tracing.configure_tracing("test", "test-0")
        roots = [tracing.new_traceparent() for _ in range(200)]
        for root in roots:
            tracing.record_span("gang.binding", 1, 2, parent=root)
            tracing.record_span("gang", 1, 2, traceparent=root)
        kept = {root[3:35] for root in roots if tracing.is_sampled(root)}
        await ended(shutdown)
    assert 0 < len(kept) < 200
    for name in ("gang", "gang.binding"):
        assert {span.trace_id.hex() for span in collector.spans if span.name == name} == kept


async def test_always_off_assigns_traceparents_and_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        shutdown = tracing.configure_tracing("test", "test-0")
        root = tracing.new_traceparent()
        tracing.record_span("gang", 1, 2, traceparent=root)
        await ended(shutdown)
    assert not tracing.is_sampled(root)
    assert collector.spans == []


def test_repr_of_a_target_has_no_headers() -> None:
    target = Target("grpc", "collector:4317", secure=False, headers=(("authorization", "s3cret"),))
    assert "s3cret" not in f"{OtlpSettings(target)}"
