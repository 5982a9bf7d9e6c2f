"""A collector of spans that speaks OTLP over gRPC, as a test needs one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        for part in request.resource_spans:
            self.resources.append({pair.key: pair.value.string_value for pair in part.resource.attributes})
            for scope in part.scope_spans:
                self.spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()

    def named(self, name: str) -> Span:
        """The one span of that name."""
        (span,) = (span for span in self.spans if span.name == name)
        return span


@asynccontextmanager
async def collecting() -> AsyncIterator[tuple[Collector, str]]:
    """A running collector and its endpoint."""
    collector, server = Collector(), aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        await server.stop(0)


def trace_of(span: Span) -> str:
    """Its trace id and own id, as in a traceparent."""
    return f"{span.trace_id.hex()}-{span.span_id.hex()}"
