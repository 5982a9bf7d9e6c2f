"""A Service in miniature: an address that stays while the pods behind it come and go."""

import asyncio

from builders.net.relay import CHUNK_BYTES, Relay, until_one_ends
from muster.localcluster.ports import free_port


class ServiceRelay(Relay):
    """Every connection goes to the next backend in turn; without backends it is closed, as if nobody listened."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self._backends: list[int] = []
        self._next = 0

    async def start(self, port: int = 0) -> int:
        return await super().start(port or self.port)

    def add(self, port: int) -> None:
        """New connections may go there."""
        self._backends.append(port)

    def remove(self, port: int) -> None:
        """New connections go there no more; those that there are stay."""
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
