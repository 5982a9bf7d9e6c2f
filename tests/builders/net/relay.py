"""Base class of TCP relays: listens on a local port and forwards connections."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

CHUNK_BYTES = 2**18


class Relay(ABC):
    """Listens, and ends all its connections when it stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @abstractmethod
    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until one side ends it. May raise OSError."""

    async def start(self, port: int = 0) -> int:
        """Listen; returns the port."""
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", port)
        taken: int = self._listener.sockets[0].getsockname()[1]
        return taken

    async def stop(self) -> None:
        """Close the listener and all connections."""
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
    """Run both directions of a connection until one of them ends."""
    pumps = [asyncio.create_task(each) for each in directions]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
