"""The fewest gangs that have to go whole, exactly: one, two, ... as long as all sets of that size can be looked at."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.holds import Holds

MAX_CELLS: Final = 1_500_000
"""What may be looked at, in holds times sets: some 20 nanoseconds each, so that pairs of 300 gangs of 8 can be."""
_OVERHEAD_CELLS: Final = 2_000
"""What looking at all holds once costs besides."""

Accept = Callable[[Sequence[int]], Int64 | None]
"""What goes if these gangs go whole (indexes into the request), or None if the group has no place then either."""


def fewest_gangs(holds: Holds, accept: Accept) -> Int64 | None:
    """What goes if the fewest of the gangs go whole, of those the first; None if too many sets would have to be looked
    at.

    `holds.free` must be at least what is free when spare pods of other gangs go. Raises what `accept` does.
    """
    cells = MAX_CELLS
    for size in range(1, len(holds.gangs) + 1):
        cells -= comb(len(holds.gangs), size - 1) * (len(holds) + _OVERHEAD_CELLS)
        if cells < 0 and size > 1:
            return None
        for chosen in _sets(holds, size):
            removed = accept([holds.gangs[index] for index in chosen])
            if removed is not None:
                return removed
    return None


def _sets(holds: Holds, size: int) -> Iterator[tuple[int, ...]]:
    """Sets of gangs that may do, in order."""
    for first in combinations(range(len(holds.gangs)), size - 1):
        free = holds.free.copy()
        for gang in first:
            of_gang = holds.of_gangs([gang])
            free[:, holds.at[of_gang]] += holds.amounts[:, of_gang]
        start = first[-1] + 1 if first else 0
        for last in (start + np.flatnonzero(_enough(holds, free)[start:])).tolist():
            yield (*first, last)


def _enough(holds: Holds, free: Int64) -> Int64:
    """Whether every class by itself has the seats it needs if one gang more goes: bool[gangs] as 0 and 1."""
    enough: Int64 = np.ones(len(holds.gangs), np.int64)
    for need in holds.needs:
        if enough.any():
            now = need.fits(free)
            seats = need.elsewhere + int(now.sum()) + holds.by_gang(holds.gains(need, free, now))
            enough &= seats >= need.needed
    return enough
