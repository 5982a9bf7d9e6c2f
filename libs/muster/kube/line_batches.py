"""Groups the lines of a stream by what is there already: whoever is slower than the stream works in larger batches."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType


class LineBatches:
    """An async iterator of lists of lines, none of them empty. No line waits for another one.

    Reads ahead by some batches at most; beyond that the sender is held back by the connection's flow control.
    """

    _READ_AHEAD_BATCHES = 8

    def __init__(self, lines: AsyncIterator[bytes], batch_size: int) -> None:
        self._lines = lines
        self._batch_size = batch_size
        self._pending: list[bytes] = []
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "LineBatches":
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._reader

    def __aiter__(self) -> "LineBatches":
        return self

    async def __anext__(self) -> list[bytes]:
        assert self._reader is not None, "enter it first"
        if self._pending:
            await asyncio.sleep(0)  # others have their turn between batches
        while not self._pending:
            if self._reader.done():
                self._reader.result()
                raise StopAsyncIteration
            self._some.clear()
            await self._some.wait()
        batch, self._pending = self._pending[: self._batch_size], self._pending[self._batch_size :]
        self._room.set()
        return batch

    async def _read(self) -> None:
        limit = self._READ_AHEAD_BATCHES * self._batch_size
        try:
            async for line in self._lines:
                self._pending.append(line)
                self._some.set()
                if len(self._pending) >= limit:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._some.set()
