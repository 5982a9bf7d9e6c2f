"""The one way to try again: exponential backoff with full jitter, and at least as long as the server asks for."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_base

R = TypeVar("R")


def jittered_seconds(bounds: tuple[float, float], attempt: int) -> float:
    """A random pause after the attempt-th failure in a row; its bound starts at the first and doubles to the last."""
    first, last = bounds
    return random.uniform(0, min(last, first * 2.0 ** min(attempt - 1, 32)))  # noqa: S311 (it spreads requests)


class _Pause(wait_base):
    def __init__(self, bounds: tuple[float, float]) -> None:
        self._bounds = bounds

    def __call__(self, retry_state: RetryCallState) -> float:
        outcome = retry_state.outcome
        error = outcome.exception() if outcome is not None else None
        asked: float = getattr(error, "retry_after_seconds", None) or 0.0
        return max(asked, jittered_seconds(self._bounds, retry_state.attempt_number))


async def until_done(
    step: Callable[[], Awaitable[R]],
    *,
    on: tuple[type[Exception], ...],
    bounds: tuple[float, float],
    before_pause: Callable[[int, BaseException, float], None],
) -> R:
    """Call `step` until it does not fail with one of `on`, for ever.

    `bounds`: first and longest bound of the pause in seconds. An error with `retry_after_seconds` is waited out for at
    least so long. `before_pause` is told the number of failures so far, the error and the seconds to wait.
    """

    def pausing(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        assert error is not None and state.next_action is not None
        before_pause(state.attempt_number, error, float(state.next_action.sleep))

    retrying = AsyncRetrying(retry=retry_if_exception_type(on), wait=_Pause(bounds), before_sleep=pausing, reraise=True)
    return await retrying(step)
