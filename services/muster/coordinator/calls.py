"""Calls that a term has under way: each is answered by an event, so one that breaks without an answer ends the term."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

DRAIN_SECONDS: Final = 5.0
"""Binds that were sent are permitted: they may end after the term does."""
EVICTION_DRAIN_SECONDS: Final = 1.0
"""Evictions may end, too, but they may wait for a disruption budget for long; the next term asks for them again."""


class Calls:
    """Tasks by what is done when the term ends."""

    def __init__(self) -> None:
        self._solves: set[asyncio.Task[None]] = set()
        self._binds: set[asyncio.Task[None]] = set()
        self._evictions: set[asyncio.Task[None]] = set()
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None

    def solve(self, call: Coroutine[Any, Any, None]) -> None:
        """Nothing comes of it when the term is over."""
        self._start(call, self._solves)

    def bind(self, call: Coroutine[Any, Any, None]) -> None:
        self._start(call, self._binds)

    def evict(self, call: Coroutine[Any, Any, None]) -> None:
        self._start(call, self._evictions)

    async def failed(self) -> None:
        """Wait until a call breaks, and raise what it raised."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def drain(self) -> None:
        """Let them end that may, for a while; cancel the others."""
        for task in self._solves:
            task.cancel()
        await asyncio.gather(
            _ended(self._binds, within_seconds=DRAIN_SECONDS),
            _ended(self._evictions, within_seconds=EVICTION_DRAIN_SECONDS),
        )
        left = [*self._solves, *self._binds, *self._evictions]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _start(self, call: Coroutine[Any, Any, None], under_way: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(call)
        under_way.add(task)
        task.add_done_callback(lambda done: self._ended(done, under_way))

    def _ended(self, task: asyncio.Task[None], under_way: set[asyncio.Task[None]]) -> None:
        under_way.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure
            self._failed.set()


async def _ended(calls: set[asyncio.Task[None]], *, within_seconds: float) -> None:
    if calls:
        await asyncio.wait(set(calls), timeout=within_seconds)
