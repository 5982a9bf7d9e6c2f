"""Exponential backoff as a pure function: no clock and no randomness, so that the core can use it."""

from typing import Final

_MAX_DOUBLINGS: Final = 32


def backoff_seconds(first_seconds: float, longest_seconds: float, failures: int, jitter: float = 1.0) -> float:
    """Seconds to wait after the `failures`-th failure in a row (1 is the first).

    The wait starts at `first_seconds`, doubles with every failure and never exceeds `longest_seconds`; `jitter` (0 to
    1) scales it.
    """
    return jitter * min(longest_seconds, first_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
