"""A Service in miniature: an address that stays while the pods behind it come and go."""

import asyncio
import contextlib

from muster.localcluster.ports import free_port

_CHUNK_BYTES = 2**18


class ServiceRelay:
    """Every connection goes to the next backend in turn; without backends it is closed, as if nobody listened."""

    def __init__(self) -> None:
        self.port = free_port()
        self._backends: list[int] = []
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, port: int) -> None:
        """New connections may go there."""
        self._backends.append(port)

    def remove(self, port: int) -> None:
        """New connections go there no more; those that there are stay."""
        if port in self._backends:
            self._backends.remove(port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError):
                await self._relay(reader, writer)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._backends:
            return
        self._next += 1
        answers, upstream = await asyncio.open_connection("127.0.0.1", self._backends[self._next % len(self._backends)])
        pumps = [asyncio.create_task(_pump(reader, upstream)), asyncio.create_task(_pump(answers, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            upstream.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
