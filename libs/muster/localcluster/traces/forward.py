"""Hands on what the receiver takes to a collector of the user's, e.g. a Jaeger, as it came."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from muster.telemetry.otlp import Target

_MOST_UNDER_WAY: Final = 64
"""Requests; more are left out, so that a collector that hangs takes no memory."""

_Request = trace_service_pb2.ExportTraceServiceRequest


class Forwarder:
    """Sends requests behind the back of those who made them; what cannot be sent is told and left out."""

    def __init__(self, target: Target, tell: Callable[[str], None]) -> None:
        """`tell` is given a line when spans get lost, once until some get through."""
        self._target, self._tell = target, tell
        self._under_way: set[asyncio.Task[None]] = set()
        self._lost = 0
        self._channel: grpc.aio.Channel | None = None
        self._session: aiohttp.ClientSession | None = None

    def send(self, request: _Request) -> None:
        """Send it, soon."""
        if len(self._under_way) >= _MOST_UNDER_WAY:
            self._failed("too many requests are under way")
            return
        task = asyncio.create_task(self._send(request))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._under_way)
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

    def _failed(self, why: str) -> None:
        self._lost += 1
        if self._lost == 1:  # the others until it gets through again have the same reason
            self._tell(f"spans are not handed on to {self._target.endpoint}: {why[:300]}")

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
