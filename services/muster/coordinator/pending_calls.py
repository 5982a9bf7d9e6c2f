"""Tasks of the gRPC calls that a term has in flight. Each call ends in an event; one that raises ends the term."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

BIND_DRAIN_SECONDS: Final = 5.0
"""Binds in flight are permitted, so they may complete after the end of the term."""
EVICTION_DRAIN_SECONDS: Final = 1.0
"""Evictions may complete as well, but disruption budgets can delay them; the next term requests them again."""


class PendingCalls:
    """Tasks of calls in flight, grouped by how they end with the term. A task ends at the deadline of its call."""

    def __init__(self) -> None:
        self._solves: set[asyncio.Task[None]] = set()
        self._binds: set[asyncio.Task[None]] = set()
        self._evictions: set[asyncio.Task[None]] = set()
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None

    def solve(self, call: Coroutine[Any, Any, None]) -> None:
        """Starts a solve, which is cancelled when the term ends."""
        self._start(call, self._solves)

    def bind(self, call: Coroutine[Any, Any, None]) -> None:
        self._start(call, self._binds)

    def evict(self, call: Coroutine[Any, Any, None]) -> None:
        self._start(call, self._evictions)

    async def raise_failure(self) -> None:
        """Waits until a call raises, and raises its exception."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def drain(self) -> None:
        """Waits for binds and evictions within their limits, then cancels all remaining calls."""
        for task in self._solves:
            task.cancel()
        await asyncio.gather(
            _wait_for(self._binds, BIND_DRAIN_SECONDS),
            _wait_for(self._evictions, EVICTION_DRAIN_SECONDS),
        )
        left = [*self._solves, *self._binds, *self._evictions]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _start(self, call: Coroutine[Any, Any, None], pending: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(call)
        pending.add(task)
        task.add_done_callback(lambda done: self._remove(done, pending))

    def _remove(self, task: asyncio.Task[None], pending: set[asyncio.Task[None]]) -> None:
        pending.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure
            self._failed.set()


async def _wait_for(calls: set[asyncio.Task[None]], timeout_seconds: float) -> None:
    if calls:
        await asyncio.wait(set(calls), timeout=timeout_seconds)
