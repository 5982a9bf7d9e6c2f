"""Waiting in tests: the only module of the tests that sleeps (ruff's TID251 bans sleeping everywhere else)."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")
What = str | Callable[[], object]

WAIT_SECONDS: Final = 60.0
"""Deadline of waits for what must happen: long, since machines that run tests stall for many seconds at times."""


@overload
async def eventually(
    condition: Callable[[], Awaitable[T | None]],
    what: What = "",
    *,
    seconds: float = WAIT_SECONDS,
    every_seconds: float = 0.01,
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T | None], what: What = "", *, seconds: float = WAIT_SECONDS, every_seconds: float = 0.01
) -> T: ...


async def eventually(
    condition: Callable[[], Any], what: What = "", *, seconds: float = WAIT_SECONDS, every_seconds: float = 0.01
) -> Any:
    """Evaluate `condition` until its result is true; return that result.

    For state that reports no change: files, other processes, objects that nobody watches. Await the event where there
    is one. `condition` may be a coroutine function. Raises AssertionError after `seconds`, also if one evaluation does
    not end by then; its message is `what`, or what `what` returns then.
    """
    try:
        async with asyncio.timeout(seconds):
            while True:
                result = condition()
                value = await result if inspect.isawaitable(result) else result
                if value:
                    return value
                await asyncio.sleep(every_seconds)
    except TimeoutError:
        raise AssertionError(
            f"not true within {seconds:g} s: {what() if callable(what) else what or condition}"
        ) from None


async def yield_to_loop(times: int = 1) -> None:
    """Let every task that is ready run, `times` times."""
    for _ in range(times):
        await asyncio.sleep(0)


async def latency(seconds: float) -> None:
    """Take this long to answer, as a slow or unreachable service does: for fakes, not for tests."""
    await asyncio.sleep(seconds)


def block_event_loop(seconds: float) -> None:
    """Hold the event loop of the caller for this long, as a long computation does."""
    time.sleep(seconds)
