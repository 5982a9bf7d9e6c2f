"""An OTLP collector of spans over gRPC or HTTP, for tests."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import grpc
from aiohttp import web
from grpc import aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from muster.config.settings import TlsSettings


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Records the received spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        """Headers of each request, with lower-case names."""
        self.refuses = False
        """Rejects all spans."""
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        """Set after a request has arrived; the response waits for the event."""
        self.answers.set()

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.headers.append({key: str(value) for key, value in context.invocation_metadata()})
        self.asked.set()
        await self.answers.wait()
        if self.refuses:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not from you")
        self._keep(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    async def post(self, request: web.Request) -> web.Response:
        """The OTLP endpoint over HTTP."""
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        if self.refuses:
            return web.Response(status=403)
        body = await request.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self._keep(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
        answer = trace_service_pb2.ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    def _keep(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        for part in request.resource_spans:
            self.resources.append({pair.key: pair.value.string_value for pair in part.resource.attributes})
            for scope in part.scope_spans:
                self.spans.extend(scope.spans)

    def named(self, name: str, kind: "Span.SpanKind.ValueType | None" = None) -> Span:
        """The only span with that name and kind."""
        (span,) = (span for span in self.spans if span.name == name and kind in (None, span.kind))
        return span


@asynccontextmanager
async def collecting(
    protocol: Literal["grpc", "http/protobuf"] = "grpc", tls: TlsSettings | None = None
) -> AsyncIterator[tuple[Collector, str]]:
    """A running collector and its endpoint. `tls`: its certificate, and the CA of its clients."""
    collector = Collector()
    running = _grpc(collector, tls) if protocol == "grpc" else _http(collector, tls)
    async with running as port:
        yield collector, f"{'https' if tls else 'http'}://127.0.0.1:{port}"


@asynccontextmanager
async def _grpc(collector: Collector, tls: TlsSettings | None) -> AsyncIterator[int]:
    server = aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    if tls is None or tls.files is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        certificate, key, authority = (file.read_bytes() for file in tls.files)
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@asynccontextmanager
async def _http(collector: Collector, tls: TlsSettings | None) -> AsyncIterator[int]:
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/traces", collector.post)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_context(tls) if tls else None)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _context(tls: TlsSettings) -> ssl.SSLContext:
    assert tls.files is not None
    certificate, key, authority = tls.files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def attributes_of(span: Span) -> dict[str, Any]:
    """Attributes without lists."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in span.attributes}


def trace_of(span: Span) -> str:
    """Trace id and span id, as in a traceparent."""
    return f"{span.trace_id.hex()}-{span.span_id.hex()}"
