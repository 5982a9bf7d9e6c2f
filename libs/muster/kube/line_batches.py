"""Batches the lines of a stream by availability: a consumer slower than the stream gets larger batches."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType


class LineBatches:
    """Async iterator of nonempty lists of lines. No line waits for a later one.

    Reads ahead by a few batches; beyond that the connection's flow control stops the sender.
    """

    _READ_AHEAD_BATCHES = 8

    def __init__(self, lines: AsyncIterator[bytes], batch_size: int) -> None:
        self._lines = lines
        self._batch_size = batch_size
        self._pending: list[bytes] = []
        self._nonempty = asyncio.Event()
        self._nonfull = asyncio.Event()
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
            await asyncio.sleep(0)  # yield to other tasks between batches
        while not self._pending:
            if self._reader.done():
                self._reader.result()
                raise StopAsyncIteration
            self._nonempty.clear()
            await self._nonempty.wait()
        batch, self._pending = self._pending[: self._batch_size], self._pending[self._batch_size :]
        self._nonfull.set()
        return batch

    async def _read(self) -> None:
        limit = self._READ_AHEAD_BATCHES * self._batch_size
        try:
            async for line in self._lines:
                self._pending.append(line)
                self._nonempty.set()
                if len(self._pending) >= limit:
                    self._nonfull.clear()
                    await self._nonfull.wait()
        finally:
            self._nonempty.set()
