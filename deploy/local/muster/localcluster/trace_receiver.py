"""OTLP receiver over gRPC: writes exported spans to the trace file that `muster trace` reads, bounded in size."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from muster.cli.trace_file import Span, SpanEvent, encode_span, previous_file
from muster.localcluster.trace_forwarder import Forwarder

LIMIT_BYTES = 64 * 2**20
"""Both files together: about 150,000 spans."""

_MAX_MESSAGE_BYTES = 64 * 2**20


class TraceWriter:
    """Appends spans to the trace file and drops the oldest half when it is full. One writer per file."""

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path, self._half_bytes = path, limit_bytes // 2
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def add(self, spans: Iterable[Span]) -> None:
        """Write spans; readers see them at once."""
        self._file.write(b"".join(map(encode_span, spans)))
        self._file.flush()
        if self._file.tell() >= self._half_bytes:
            self._file.close()
            self._path.replace(previous_file(self._path))
            self._file = self._path.open("ab")

    def close(self) -> None:
        self._file.close()


class TraceReceiver:
    """OTLP server on a loopback port."""

    def __init__(self, path: Path, *, forwarder: Forwarder | None = None) -> None:
        """`forwarder` also receives every request."""
        self.path, self._forwarder = path, forwarder
        self._writer = TraceWriter(path)
        self._server: grpc.aio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self, port: int = 0) -> int:
        """Listen; returns the port."""
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES)])
        add = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
        add(_Servicer(self._writer, self._forwarder), self._server)  # type: ignore[no-untyped-call]
        self._port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        await self._server.start()
        return self._port

    async def stop(self) -> None:
        """Finish requests in flight, then close the file."""
        if self._server is not None:
            await self._server.stop(grace=1)
        if self._forwarder is not None:
            await self._forwarder.close()
        self._writer.close()


class _Servicer(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, writer: TraceWriter, forwarder: Forwarder | None) -> None:
        self._writer, self._forwarder = writer, forwarder

    async def Export(  # noqa: N802 (gRPC's name)
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self._writer.add(spans_in(request.resource_spans))
        if self._forwarder is not None:
            self._forwarder.send(request)
        return trace_service_pb2.ExportTraceServiceResponse()


def spans_in(resources: Iterable[trace_pb2.ResourceSpans]) -> Iterator[Span]:
    """Spans of an export request in the form of the trace file."""
    for resource in resources:
        resource_attributes = _attributes(resource.resource.attributes)
        service = str(resource_attributes.get("service.name", "unknown"))
        instance = str(resource_attributes.get("service.instance.id", ""))
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span(span, service, instance)


def _span(span: trace_pb2.Span, service: str, instance: str) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        service=service,
        instance=instance,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        error=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        message=span.status.message,
        attributes=_attributes(span.attributes),
        events=tuple(
            SpanEvent(event.name, event.time_unix_nano, _attributes(event.attributes)) for event in span.events
        ),
        links=tuple(link.trace_id.hex() for link in span.links),
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return getattr(value, kind)
