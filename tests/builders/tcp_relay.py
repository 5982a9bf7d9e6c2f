"""A relay between a client and a server that can hold a connection from the moment some bytes pass.

relay = await stack.enter_async_context(relaying(server))       # clients are told relay.address
held = relay.hold_requests(b"gang-a")                           # what has these bytes, and all after it, waits
await held.caught()
...
held.release()
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

_CHUNK_BYTES = 2**18
_SECONDS = 30.0


class Held:
    """One connection that is held once the bytes came."""

    def __init__(self, marker: bytes, *, answers: bool) -> None:
        self.marker, self.answers = marker, answers
        self._caught, self._released, self._answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def caught(self) -> None:
        """Wait until a connection is held."""
        async with asyncio.timeout(_SECONDS):
            await self._caught.wait()

    def release(self) -> None:
        """What waits goes on its way, and all after it."""
        self._released.set()

    async def answered(self) -> None:
        """Wait until the server has said something on the connection after it was released."""
        async with asyncio.timeout(_SECONDS):
            await self._answered.wait()

    # -- for the relay

    def takes(self, request: bytes) -> bool:
        """The bytes are in it, for the first time."""
        if self._caught.is_set() or self.marker not in request:
            return False
        self._caught.set()
        return True

    async def passed(self) -> None:
        """Wait until it may go on."""
        await self._released.wait()

    def said(self) -> None:
        """The server said something."""
        if self._released.is_set():
            self._answered.set()


class TcpRelay:
    """Relays all connections to one server."""

    def __init__(self, server: str) -> None:
        self._host, _, port = server.rpartition(":")
        self._port = int(port)
        self._holds: list[Held] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.address = ""

    def hold_requests(self, marker: bytes) -> Held:
        """Hold what the client sends, beginning with these bytes."""
        self._holds.append(Held(marker, answers=False))
        return self._holds[-1]

    def hold_answers(self, marker: bytes) -> Held:
        """Hold what the server sends after the client has sent these bytes."""
        self._holds.append(Held(marker, answers=True))
        return self._holds[-1]

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = _Connection(self._holds)
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await asyncio.open_connection(self._host, self._port)
            pumps = [
                asyncio.create_task(connection.requests(reader, upstream)),
                asyncio.create_task(connection.answers(answers, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        finally:
            for each in (writer, upstream):
                if each is not None:
                    each.close()
            self._tasks.discard(task)


class _Connection:
    """Both directions of one connection."""

    def __init__(self, holds: list[Held]) -> None:
        self._holds = holds
        self._held: Held | None = None

    async def requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if self._held is None:
                self._held = next((each for each in self._holds if each.takes(data)), None)
            if self._held is not None and not self._held.answers:
                await self._held.passed()
            writer.write(data)
            await writer.drain()

    async def answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if self._held is not None:
                if self._held.answers:
                    await self._held.passed()
                self._held.said()
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def relaying(server: str) -> AsyncIterator[TcpRelay]:
    """A relay that runs."""
    relay = TcpRelay(server)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
