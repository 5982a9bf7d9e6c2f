"""Readiness probes of the processes that a local cluster starts, polled until one succeeds or its process exits.

`python -m muster.localcluster.probes HOST:PORT PATH` exits with 0 if GET is answered with status 200, else with 1, for
healthchecks of containers.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from muster.localcluster.child_process import Child
from muster.rpc.health_probe import is_serving

Probe = Callable[[], Awaitable[bool]]

_POLL_SECONDS = 0.05  # a process that starts has no other way to announce that it is ready
_TIMEOUT_SECONDS = 2.0


async def wait_until_ready(child: Child, probe: Probe) -> None:
    """Return when the probe succeeds. Raises ChildDied if the process ends first; has no deadline of its own."""
    ended = asyncio.ensure_future(child.wait())
    try:
        while not await probe():
            done, _ = await asyncio.wait([ended], timeout=_POLL_SECONDS)
            if done:
                raise child.died()
    finally:
        ended.cancel()


def grpc_serving(address: str) -> Probe:
    """Succeeds if the gRPC health service reports SERVING for the server as a whole."""

    async def probe() -> bool:
        return await is_serving(address)

    return probe


def http_ready(address: str, path: str) -> Probe:
    """Succeeds if a plain HTTP GET is answered with status 200."""

    async def probe() -> bool:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
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
    """Probe of processes that serve nothing."""
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.probes")
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("path")
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(_succeeds(http_ready(options.address, options.path))) else 1)


async def _succeeds(probe: Probe) -> bool:
    return await probe()


if __name__ == "__main__":
    main()
