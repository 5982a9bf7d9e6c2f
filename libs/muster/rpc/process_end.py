"""Notices the end of a server's process by its connection: sooner than a lease expires."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.retry.retrying import Backoff
from muster.rpc.channel import open_channel
from muster.rpc.health import LIVENESS

_log = structlog.get_logger()

_CONNECT_SECONDS: Final = 1.0
_FIRST_RETRY_SECONDS: Final = 0.05  # a process that is killed closes its connections before the port, or after it
_LONGEST_RETRY_SECONDS: Final = 1.0


async def until_process_ended(address: str, tls: TlsSettings = PLAIN_TEXT, server_name: str = "") -> None:
    """Return once the process that serves at HOST:PORT has ended: it was connected, the connection broke, and the port
    refuses connections since.

    Runs forever if the server was never reached, if its machine vanished or the network is cut, or if another process
    listens there by the time the connection breaks: none of these proves that the process has ended.
    """
    connected, backoff = False, Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
    async with open_channel(address, tls, server_name) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            with suppress(aio.AioRpcError):
                async for _ in stub.Watch(health_pb2.HealthCheckRequest(service=LIVENESS)):
                    if not connected:
                        _log.info("process_followed", address=address)
                    connected = True
                    backoff.reset()
            if connected and await _refuses(address):
                return
            await backoff.pause()


async def _refuses(address: str) -> bool:
    """Whether no process listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    writer.close()
    return False
