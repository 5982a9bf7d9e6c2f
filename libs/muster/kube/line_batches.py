"""Batches the lines of a stream by availability: a consumer slower than the stream gets larger batches.

Batches are bounded by lines and by bytes: a tenant may write objects of 1.5 MB.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType


class LineBatches:
    """Async iterator of nonempty lists of lines. A line waits for later ones only for a while after another batch.

    Reads ahead by a few batches; beyond that the connection's flow control stops the sender.
    """

    _READ_AHEAD_BATCHES = 8

    def __init__(
        self, lines: AsyncIterator[bytes], batch_size: int, batch_bytes: int, spacing_seconds: float = 0.0
    ) -> None:
        """At most so many lines, and so many bytes or one line, in a batch. After a batch the next one, unless it is
        full, waits for `spacing_seconds`.
        """
        self._lines = lines
        self._batch_size = batch_size
        self._batch_bytes = batch_bytes
        self._spacing_seconds = spacing_seconds
        self._next_at = 0.0
        self._pending: deque[bytes] = deque()  # bounded by _READ_AHEAD_BATCHES and one line
        self._pending_bytes = 0
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
        if self._spacing_seconds:
            await self._keep_distance()
        batch = [self._pending.popleft()]
        size = len(batch[0])
        while self._pending and len(batch) < self._batch_size and size + len(self._pending[0]) <= self._batch_bytes:
            size += len(self._pending[0])
            batch.append(self._pending.popleft())
        self._pending_bytes -= size
        self._nonfull.set()
        return batch

    async def _keep_distance(self) -> None:
        loop = asyncio.get_running_loop()
        early = self._next_at - loop.time()
        if early > 0 and len(self._pending) < self._batch_size and self._pending_bytes < self._batch_bytes:
            await asyncio.sleep(early)
        self._next_at = loop.time() + self._spacing_seconds

    async def _read(self) -> None:
        most, most_bytes = self._READ_AHEAD_BATCHES * self._batch_size, self._READ_AHEAD_BATCHES * self._batch_bytes
        try:
            async for line in self._lines:
                self._pending.append(line)
                self._pending_bytes += len(line)
                self._nonempty.set()
                if len(self._pending) >= most or self._pending_bytes >= most_bytes:
                    self._nonfull.clear()
                    await self._nonfull.wait()
        finally:
            self._nonempty.set()
