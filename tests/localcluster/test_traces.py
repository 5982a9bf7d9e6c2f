"""The trace file: writing, reading, rotation, and OTLP export."""

from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from muster.cli.trace_file import Span, SpanEvent, newest_trace_with, spans_of_trace, values_of
from muster.localcluster.trace_receiver import TraceReceiver, TraceWriter

T1, T2 = "1" * 32, "2" * 32


def span(trace: str, number: int, **fields: object) -> Span:
    values = {"name": "solve", "service": "placement", "start_ns": number, "end_ns": number + 5, **fields}
    return Span(trace_id=trace, span_id=f"{number:016x}", **values)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "traces.jsonl"


def test_spans_are_read_back_by_start(path: Path) -> None:
    first = span(T1, 1, attributes={"muster.gang": 'odd "name"', "n": 3}, events=(SpanEvent("bound", 4, {"pod": "a"}),))
    second = span(T1, 2, parent_id=first.span_id, error=True, message="no room")
    writer = TraceWriter(path)
    writer.add([second, span(T2, 7), first])
    assert spans_of_trace(path, T1) == [first, second]


def test_a_span_that_was_sent_twice_is_read_once(path: Path) -> None:
    writer = TraceWriter(path)
    writer.add([span(T1, 1)])
    writer.add([span(T1, 1)])
    assert len(spans_of_trace(path, T1)) == 1


def test_the_newest_trace_with_an_attribute(path: Path) -> None:
    writer = TraceWriter(path)
    writer.add([span(T1, 1, attributes={"muster.gang": "g"}), span(T2, 2, attributes={"muster.gang": "g"})])
    writer.add([span("3" * 32, 3, attributes={"muster.gang": "gg"})])
    assert newest_trace_with(path, "muster.gang", "g") == T2
    assert newest_trace_with(path, "muster.gang", "unknown") is None
    assert values_of(path, "muster.gang") == ["gg", "g"]


def test_the_files_are_bounded_and_keep_the_newest_spans(path: Path) -> None:
    limit = 20_000
    writer = TraceWriter(path, limit_bytes=limit)
    for number in range(1000):
        writer.add([span(f"{number:032x}", number)])
    stored = sum(file.stat().st_size for file in path.parent.iterdir())
    assert stored <= limit + 1000
    assert spans_of_trace(path, f"{999:032x}")
    assert not spans_of_trace(path, f"{0:032x}")


def test_a_trace_in_both_files_is_read_completely(path: Path) -> None:
    writer = TraceWriter(path, limit_bytes=10_000)
    writer.add([span(T1, 1)])
    while not path.with_name("traces.jsonl.1").exists():
        writer.add([span(T2, 2)])
    writer.add([span(T1, 3)])
    assert [one.start_ns for one in spans_of_trace(path, T1)] == [1, 3]


def test_a_truncated_line_is_skipped(path: Path) -> None:
    TraceWriter(path).add([span(T1, 1)])
    with path.open("ab") as file:
        file.write(b'{"trace_id":"' + T1.encode() + b'","span_id":"00')
    assert len(spans_of_trace(path, T1)) == 1


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_has_no_spans(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    assert spans_of_trace(path, T1) == []


async def test_exported_spans_are_written(path: Path) -> None:
    receiver = TraceReceiver(path)
    await receiver.start()
    sent = trace_pb2.Span(
        trace_id=bytes.fromhex(T1),
        span_id=b"\x01" * 8,
        parent_span_id=b"\x02" * 8,
        name="gang.solving",
        start_time_unix_nano=10,
        end_time_unix_nano=30,
        attributes=[
            KeyValue(key="muster.gang", value=AnyValue(string_value="koordinator/ml/a")),
            KeyValue(key="pods", value=AnyValue(int_value=8)),
            KeyValue(key="nodes", value=AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="n1")]))),
        ],
        events=[trace_pb2.Span.Event(name="bound", time_unix_nano=20)],
        links=[trace_pb2.Span.Link(trace_id=bytes.fromhex(T2), span_id=b"\x03" * 8)],
        status=trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR, message="gone"),
    )
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="coordinator"))])
    scope = trace_pb2.ScopeSpans(scope=InstrumentationScope(name="muster"), spans=[sent])
    request = trace_service_pb2.ExportTraceServiceRequest(
        resource_spans=[trace_pb2.ResourceSpans(resource=resource, scope_spans=[scope])]
    )
    async with grpc.aio.insecure_channel(receiver.url.removeprefix("http://")) as channel:
        stub = trace_service_pb2_grpc.TraceServiceStub(channel)  # type: ignore[no-untyped-call]
        await stub.Export(request, timeout=30)
    await receiver.stop()
    assert spans_of_trace(path, T1) == [
        Span(
            trace_id=T1,
            span_id="01" * 8,
            parent_id="02" * 8,
            name="gang.solving",
            service="coordinator",
            start_ns=10,
            end_ns=30,
            error=True,
            message="gone",
            attributes={"muster.gang": "koordinator/ml/a", "pods": 8, "nodes": ["n1"]},
            events=(SpanEvent("bound", 20),),
            links=(T2,),
        )
    ]
