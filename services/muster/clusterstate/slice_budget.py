"""The time of one slice, in which objects are taken in or facts computed, before other tasks run (I12)."""

from collections.abc import Callable
from typing import Final

SLICE_SECONDS: Final = 0.02
"""Objects are delivered in batches that are bounded by bytes and number, and ordinary ones fit: 200 pods take 5 ms.
But what an object says decides how long it takes: a pod with 98 resource names up to a hundred times as long as one
with two.
"""


class SliceBudget:
    """How long the present slice may go on. Every slice has at least one object, however long that takes."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock`: monotonic seconds; None: slices are bounded by number alone."""
        self._clock = clock
        self._end = 0.0
        self.begin()

    def begin(self) -> None:
        """A slice begins."""
        if self._clock is not None:
            self._end = self._clock() + SLICE_SECONDS

    def is_used(self, more_seconds: float = 0.0) -> bool:
        """Whether the time of the slice is over, with the time that work at its end will take."""
        return self._clock is not None and self._clock() + more_seconds >= self._end
