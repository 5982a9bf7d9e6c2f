"""How much is sent to the API server at once: as much as it takes, less when it complains, nothing while it asks for a
pause.

The window halves when the API server pushes back and then grows by one per window of successes; below the size at
which it last pushed back it grows by one per success. When the API server could not be reached at all, that says
nothing about its capacity: the window starts small, so that the first requests find out, and grows back fast.
"""

from typing import Final

from muster.retry.retrying import jittered_seconds

_SMALLEST: Final = 4
_PAUSE_SECONDS: Final = (0.05, 2.0)


class Pace:
    """Times are seconds of any one monotonic clock."""

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._least = float(min(_SMALLEST, most))
        self._window = self._threshold = self._most
        self._cut_at = float("-inf")
        self._cuts_in_a_row = 0
        self.paused_until = float("-inf")

    @property
    def window(self) -> int:
        """Requests that may be under way at once."""
        return int(self._window)

    def eased(self, started: float) -> None:
        """A request that was sent at `started` was taken."""
        if started < self._cut_at:
            return  # it was sent before the trouble began
        self._cuts_in_a_row = 0
        step = 1.0 if self._window < self._threshold else 1.0 / self._window
        self._window = min(self._most, self._window + step)

    def strained(self, started: float, now: float, *, after_seconds: float | None, unreachable: bool) -> None:
        """A request that was sent at `started` was pushed back; one cut is made for all that were sent together."""
        if started >= self._cut_at:
            self._cut_at = now
            self._cuts_in_a_row += 1
            if unreachable:
                self._window = self._least
            else:
                self._window = self._threshold = max(self._least, self._window / 2)
            if after_seconds is None:
                after_seconds = jittered_seconds(_PAUSE_SECONDS, self._cuts_in_a_row)
        if after_seconds is not None:
            self.paused_until = max(self.paused_until, now + after_seconds)
