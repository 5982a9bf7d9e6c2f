"""Limits of solves: when a group, or the whole request, must end without a placement.

Time is checked wherever work is done per class or per search step, in the thread that solves; memory, whenever a class
is evaluated for the first time.
"""

import math
import time
from collections.abc import Callable

_LEAST_SECONDS = 0.05
"""Seconds of each group, however many share the request, as long as the request has any left."""


class LimitExceeded(Exception):
    """A group takes more than one group may; a placement may exist. The message says what, for users."""


class OutOfTime(LimitExceeded):
    """The time of a group has passed. `seconds` is what the group was given."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no placement was found within {seconds:.3g} s")
        self.seconds = seconds


class OutOfMemory(LimitExceeded):
    """The pods of a group differ so much that their capacity on all nodes would take too much memory."""

    def __init__(self, classes: int, selectors: int, nodes: int) -> None:
        super().__init__(
            f"no placement was looked for: {classes} different pods, with {selectors} selectors of other pods, are more"
            f" than one gang may have on {nodes} nodes"
        )


class Abandoned(Exception):
    """The caller no longer waits for the answer."""


class TimeLimit:
    """Time of one request: `seconds` in all, of which each group gets an equal share of what is left, at most
    `seconds_per_group`.

    So a group that takes long costs its request no more than its share, and every other group is tried.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        seconds_per_group: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._seconds_per_group = seconds_per_group
        self._clock = clock
        self._ends = self._group_ends = math.inf
        self._granted = math.inf
        self._abandoned = False

    def start(self) -> None:
        """Begin to count the time of the request."""
        self._ends = self._clock() + self._seconds

    def begin_group(self, groups_left: int) -> None:
        """Give the next group its share; `groups_left` counts it and those after it."""
        now = self._clock()
        left = max(0.0, self._ends - now)
        share = max(left / groups_left, _LEAST_SECONDS)
        self._granted = min(left, share, self._seconds_per_group)
        self._group_ends = now + self._granted

    def check(self) -> None:
        """Raises OutOfTime or Abandoned."""
        if self._abandoned:
            raise Abandoned
        if self._clock() >= self._group_ends:
            raise OutOfTime(self._granted)

    def abandon(self) -> None:
        """End the solve at its next check. Any thread may call this."""
        self._abandoned = True


class _Unlimited(TimeLimit):
    """Time limit outside of requests, as in tests and benchmarks of the solver alone."""

    def begin_group(self, groups_left: int) -> None:
        pass

    def check(self) -> None:
        pass


UNLIMITED = _Unlimited()
