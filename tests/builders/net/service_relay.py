"""A stand-in for a Kubernetes Service: a stable address in front of changing backends."""

import asyncio

from builders.net.relay import CHUNK_BYTES, Relay, until_one_ends
from muster.localcluster.ports import free_port


class ServiceRelay(Relay):
    """Forwards connections to backends in turn; without backends, closes them."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self._backends: list[int] = []
        self._next = 0

    async def start(self, port: int = 0) -> int:
        return await super().start(port or self.port)

    def add(self, port: int) -> None:
        """Add a backend for new connections."""
        self._backends.append(port)

    def remove(self, port: int) -> None:
        """Remove a backend; its open connections stay."""
        if port in self._backends:
            self._backends.remove(port)

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._backends:
            return
        self._next += 1
        answers, upstream = await asyncio.open_connection("127.0.0.1", self._backends[self._next % len(self._backends)])
        try:
            await until_one_ends(_pump(reader, upstream), _pump(answers, writer))
        finally:
            upstream.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
