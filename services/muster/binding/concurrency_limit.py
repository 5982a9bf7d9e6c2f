"""Limits the number of concurrent requests to the API server, adapting to its capacity.

The window halves when the API server throttles and then grows by one per window of successes; below the size at which
the last throttling occurred it grows by one per success. An API server that could not be reached says nothing about its
capacity: the window restarts small, so that the first requests probe, and grows back fast.
"""

from typing import Final

from muster.retry.retrying import jittered_seconds

_MIN_WINDOW: Final = 4
_PAUSE_SECONDS: Final = (0.05, 2.0)


class ConcurrencyLimit:
    """Times are seconds of any one monotonic clock."""

    def __init__(self, max_window: int) -> None:
        self._max = float(max_window)
        self._min = float(min(_MIN_WINDOW, max_window))
        self._window = self._threshold = self._max
        self._cut_at = float("-inf")
        self._cuts_in_a_row = 0
        self.paused_until = float("-inf")

    @property
    def window(self) -> int:
        """Requests that may be in flight."""
        return int(self._window)

    def succeeded(self, started: float) -> None:
        """Grow the window after the success of a request sent at `started`."""
        if started < self._cut_at:
            return  # sent before the throttling began
        self._cuts_in_a_row = 0
        step = 1.0 if self._window < self._threshold else 1.0 / self._window
        self._window = min(self._max, self._window + step)

    def throttled(self, started: float, now: float, *, after_seconds: float | None, unreachable: bool) -> None:
        """Cut the window after the refusal of a request sent at `started`; once for all requests of one window."""
        if started >= self._cut_at:
            self._cut_at = now
            self._cuts_in_a_row += 1
            if unreachable:
                self._window = self._min
            else:
                self._window = self._threshold = max(self._min, self._window / 2)
            if after_seconds is None:
                after_seconds = jittered_seconds(_PAUSE_SECONDS, self._cuts_in_a_row)
        if after_seconds is not None:
            self.paused_until = max(self.paused_until, now + after_seconds)
