"""Forwards received OTLP requests unchanged to a collector of the user, e.g. Jaeger."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from muster.telemetry.otlp import Target

_MAX_IN_FLIGHT: Final = 64
"""Requests; more are dropped, so that a collector that hangs does not fill the memory."""

_Request = trace_service_pb2.ExportTraceServiceRequest


class Forwarder:
    """Sends requests in the background; failures are reported once and the spans dropped."""

    def __init__(self, target: Target, report: Callable[[str], None]) -> None:
        """`report` receives one line when spans are lost, and again only after some have got through."""
        self._target, self._report = target, report
        self._in_flight: set[asyncio.Task[None]] = set()
        self._lost = 0
        self._channel: grpc.aio.Channel | None = None
        self._session: aiohttp.ClientSession | None = None

    def send(self, request: _Request) -> None:
        """Send a request in the background."""
        if len(self._in_flight) >= _MAX_IN_FLIGHT:
            self._failed("too many requests in flight")
            return
        task = asyncio.create_task(self._send(request))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def close(self) -> None:
        """Wait for requests in flight, then close the connections."""
        await asyncio.gather(*self._in_flight)
        if self._channel is not None:
            await self._channel.close()
        if self._session is not None:
            await self._session.close()

    async def _send(self, request: _Request) -> None:
        send: Callable[[_Request], Awaitable[str]] = self._by_grpc if self._target.protocol == "grpc" else self._by_http
        try:
            async with asyncio.timeout(self._target.timeout_seconds):
                problem = await send(request)
        except (grpc.aio.AioRpcError, aiohttp.ClientError, OSError, TimeoutError) as error:
            problem = getattr(error, "details", lambda: "")() or str(error) or type(error).__name__
        if problem:
            self._failed(problem)
        else:
            self._lost = 0

    def _failed(self, reason: str) -> None:
        self._lost += 1
        if self._lost == 1:  # later failures before the next success have the same reason
            self._report(f"spans cannot be forwarded to {self._target.endpoint}: {reason[:300]}")

    async def _by_grpc(self, request: _Request) -> str:
        if self._channel is None:
            self._channel = self._open()
        stub = trace_service_pb2_grpc.TraceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        await stub.Export(request, timeout=self._target.timeout_seconds, metadata=self._target.headers)
        return ""

    def _open(self) -> grpc.aio.Channel:
        if not self._target.secure:
            return grpc.aio.insecure_channel(self._target.endpoint)
        return grpc.aio.secure_channel(self._target.endpoint, self._target.credentials())

    async def _by_http(self, request: _Request) -> str:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._target.ssl_context() if self._target.secure else True)
            headers = {**dict(self._target.headers), "content-type": "application/x-protobuf"}
            self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        async with self._session.post(self._target.endpoint, data=request.SerializeToString()) as response:
            return "" if response.status < 300 else f"HTTP status {response.status}"
