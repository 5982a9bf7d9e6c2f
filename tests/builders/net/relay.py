"""A port on this machine whose connections go on to somebody else: what all relays of TCP have in common."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

CHUNK_BYTES = 2**18


class Relay(ABC):
    """Listens, and ends all that it has begun."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @abstractmethod
    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until one side has ended it. May raise OSError."""

    async def start(self, port: int = 0) -> int:
        """Listen; returns the port."""
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", port)
        taken: int = self._listener.sockets[0].getsockname()[1]
        return taken

    async def stop(self) -> None:
        """Cut everything off."""
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError):
                await self.relay(reader, writer)
        finally:
            writer.close()
            self._tasks.discard(task)


async def until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Let both directions of a connection go on until one of them is over."""
    pumps = [asyncio.create_task(each) for each in directions]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
