"""A relay between a client and a server that can hold a connection from the first occurrence of some bytes.

relay = await stack.enter_async_context(relaying(server))       # clients connect to relay.address
held = relay.hold_requests(b"gang-a")                           # holds data from these bytes on
await held.caught()
...
held.release()
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from builders.net.relay import CHUNK_BYTES, Relay, until_one_ends

_SECONDS = 60.0


class Held:
    """A connection that is held from the first occurrence of `marker`."""

    def __init__(self, marker: bytes, *, answers: bool) -> None:
        self.marker, self.answers = marker, answers
        self._caught, self._released, self._answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def caught(self) -> None:
        """Wait until a connection is held."""
        async with asyncio.timeout(_SECONDS):
            await self._caught.wait()

    def release(self) -> None:
        """Forward the held data and everything after it."""
        self._released.set()

    async def answered(self) -> None:
        """Wait until the server has sent data after the release."""
        async with asyncio.timeout(_SECONDS):
            await self._answered.wait()

    # -- for the relay

    def takes(self, request: bytes) -> bool:
        """The request contains the marker for the first time."""
        if self._caught.is_set() or self.marker not in request:
            return False
        self._caught.set()
        return True

    async def passed(self) -> None:
        """Wait for the release."""
        await self._released.wait()

    def server_answered(self) -> None:
        """Note that the server sent data."""
        if self._released.is_set():
            self._answered.set()


class TcpRelay(Relay):
    """Relays all connections to one server."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._host, _, port = server.rpartition(":")
        self._port = int(port)
        self._holds: list[Held] = []
        self.address = ""

    def hold_requests(self, marker: bytes) -> Held:
        """Hold the client's data from these bytes on."""
        self._holds.append(Held(marker, answers=False))
        return self._holds[-1]

    def hold_answers(self, marker: bytes) -> Held:
        """Hold the server's data after the client has sent these bytes."""
        self._holds.append(Held(marker, answers=True))
        return self._holds[-1]

    async def start(self, port: int = 0) -> int:
        taken = await super().start(port)
        self.address = f"127.0.0.1:{taken}"
        return taken

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self._holds)
        answers, upstream = await asyncio.open_connection(self._host, self._port)
        try:
            await until_one_ends(connection.requests(reader, upstream), connection.answers(answers, writer))
        finally:
            upstream.close()


class _Connection:
    """Both directions of one connection."""

    def __init__(self, holds: list[Held]) -> None:
        self._holds = holds
        self._held: Held | None = None

    async def requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self._held is None:
                self._held = next((each for each in self._holds if each.takes(data)), None)
            if self._held is not None and not self._held.answers:
                await self._held.passed()
            writer.write(data)
            await writer.drain()

    async def answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self._held is not None:
                if self._held.answers:
                    await self._held.passed()
                self._held.server_answered()
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def relaying(server: str) -> AsyncIterator[TcpRelay]:
    """A running relay."""
    relay = TcpRelay(server)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
