"""How one sees that a process serves: one question per kind, asked until it says yes or the process ends."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from muster.localcluster.child import Child

Probe = Callable[[], Awaitable[bool]]

_PAUSE_SECONDS = 0.05  # between questions: a started process has no other way to tell us
_ANSWER_SECONDS = 2.0


async def wait_until_ready(child: Child, probe: Probe) -> None:
    """Return when the probe says yes. Raises ChildDied if the process ends first; has no deadline of its own."""
    ended = asyncio.ensure_future(child.wait())
    try:
        while not await probe():
            done, _ = await asyncio.wait([ended], timeout=_PAUSE_SECONDS)
            if done:
                raise child.died()
    finally:
        ended.cancel()


def grpc_serving(address: str) -> Probe:
    """The standard health service says SERVING for the server as a whole."""

    async def probe() -> bool:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_ANSWER_SECONDS)
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    return probe


def http_ready(address: str, path: str) -> Probe:
    """A plain HTTP GET is answered with status 200."""

    async def probe() -> bool:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                    status = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in status

    return probe


async def always() -> bool:
    """For processes that have nothing to ask."""
    return True
