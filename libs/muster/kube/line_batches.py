"""Batches the lines of a stream by availability: a consumer slower than the stream gets larger batches.

Batches are bounded by lines and by bytes: a tenant may write objects of 1.5 MB.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final

from msgspec import Struct


class Spacing(Struct, frozen=True):
    """When a batch is due, in seconds. A full batch is due at once, and so is the last one of the stream."""

    quiet_seconds: float = 0.0
    """Time after the last line."""
    longest_seconds: float = 0.0
    """Time after the batch before, whatever has come since; so the first line after such a pause is due at once."""


_AT_ONCE: Final = Spacing()


class LineBatches:
    """Async iterator of nonempty lists of lines. Lines that come one after the other share a batch, as `spacing` says.

    Reads ahead by a few batches; beyond that the connection's flow control stops the sender.
    """

    _READ_AHEAD_BATCHES = 8

    def __init__(
        self, lines: AsyncIterator[bytes], batch_size: int, batch_bytes: int, spacing: Spacing = _AT_ONCE
    ) -> None:
        """At most so many lines, and so many bytes or one line, in a batch."""
        self._lines = lines
        self._batch_size = batch_size
        self._batch_bytes = batch_bytes
        self._spacing = spacing
        self._batch_at = self._line_at = float("-inf")
        """When the last batch was taken, and the last line read, on the loop's clock."""
        self._pending: deque[bytes] = deque()  # bounded by _READ_AHEAD_BATCHES and one line
        self._pending_bytes = 0
        self._nonempty = asyncio.Event()
        self._nonfull = asyncio.Event()
        self._full = asyncio.Event()  # the next batch is complete
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
        await self._until_due()
        batch = [self._pending.popleft()]
        size = len(batch[0])
        while self._pending and len(batch) < self._batch_size and size + len(self._pending[0]) <= self._batch_bytes:
            size += len(self._pending[0])
            batch.append(self._pending.popleft())
        self._pending_bytes -= size
        self._nonfull.set()
        if not self._is_full() and not self._reader.done():
            self._full.clear()
        return batch

    async def _until_due(self) -> None:
        loop, latest = asyncio.get_running_loop(), self._batch_at + self._spacing.longest_seconds
        while loop.time() < (due := min(latest, self._line_at + self._spacing.quiet_seconds)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._full.wait()
                    break
        self._batch_at = loop.time()

    def _is_full(self) -> bool:
        return len(self._pending) >= self._batch_size or self._pending_bytes >= self._batch_bytes

    async def _read(self) -> None:
        most, most_bytes = self._READ_AHEAD_BATCHES * self._batch_size, self._READ_AHEAD_BATCHES * self._batch_bytes
        loop = asyncio.get_running_loop()
        try:
            async for line in self._lines:
                self._pending.append(line)
                self._line_at = loop.time()
                self._pending_bytes += len(line)
                self._nonempty.set()
                if self._is_full():
                    self._full.set()
                if len(self._pending) >= most or self._pending_bytes >= most_bytes:
                    self._nonfull.clear()
                    await self._nonfull.wait()
        finally:
            self._nonempty.set()
            self._full.set()
