"""Retries of I/O: exponential backoff with full jitter, so that many clients do not retry at the same moment."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from muster.retry.backoff import backoff_seconds

R = TypeVar("R")


def jittered_seconds(bounds: tuple[float, float], failures: int, least_jitter: float = 0.0) -> float:
    """A random wait after the `failures`-th failure in a row.

    `bounds`: upper bound of the first wait and of the longest one, in seconds. The wait is at least the fraction
    `least_jitter` of its upper bound.
    """
    first_seconds, longest_seconds = bounds
    jitter = random.uniform(least_jitter, 1.0)  # noqa: S311 (spreads requests, guards no secret)
    return backoff_seconds(first_seconds, longest_seconds, failures, jitter)


class Backoff:
    """Counts failures in a row and waits after each."""

    def __init__(self, first_seconds: float = 0.1, longest_seconds: float = 2.0) -> None:
        """`first_seconds` and `longest_seconds` bound the first wait and the longest one."""
        self._bounds = (first_seconds, longest_seconds)
        self._failures = 0

    def reset(self) -> None:
        """An attempt succeeded: the next wait is a short one again."""
        self._failures = 0

    def next_seconds(self) -> float:
        """Seconds to wait before the next attempt; counts one failure."""
        self._failures += 1
        return jittered_seconds(self._bounds, self._failures)

    async def pause(self) -> None:
        """Count one failure and wait."""
        await asyncio.sleep(self.next_seconds())


async def retry_forever(
    step: Callable[[], Awaitable[R]],
    *,
    on: tuple[type[Exception], ...],
    bounds: tuple[float, float],
    before_wait: Callable[[int, Exception, float], None],
) -> R:
    """Call `step` until it does not fail with one of `on`; there is no limit to the number of attempts.

    `bounds`: upper bound of the first wait and of the longest one, in seconds. An error that has `retry_after_seconds`
    is waited out for at least that long. `before_wait` receives the number of failures in a row, the error and the
    seconds to wait.
    """
    failures = 0
    while True:
        try:
            return await step()
        except on as error:
            failures += 1
            seconds = max(getattr(error, "retry_after_seconds", None) or 0.0, jittered_seconds(bounds, failures))
            before_wait(failures, error, seconds)
        await asyncio.sleep(seconds)
