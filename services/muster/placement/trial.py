"""Whether a group would have a place if some pods were gone: asked many times while it is sought who has to go."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.placing import GroupToPlace
from muster.placement.candidates import Candidates
from muster.placement.eligibility import USABLE
from muster.placement.mixed import seat_minimums
from muster.placement.nodes import Bool
from muster.placement.parts import Part, alike
from muster.placement.room import MOST_FITS, ClassRoom, Room
from muster.placement.search import Budget

STEPS_PER_TRIAL: Final = 2_000
STEPS_FOR_ALL: Final = 30_000
TRIALS_OF_MIXED: Final = 400
"""What trials may spend on exact searches, and how many there may be at most: mixed groups take a millisecond each."""


class ClassNeed:
    """How many members of one class must have a seat, and where they have one: `usable` is bool[nodes]."""

    def __init__(self, room: ClassRoom, needed: int, rows: Int64) -> None:
        self.needed = needed
        self.usable: Bool = room.eligibility.reason[rows] == USABLE
        self.elsewhere = int(room.fits.sum()) - int(room.fits[rows].sum())
        self._columns = room.columns
        self._amounts = room.amounts[:, None]

    def fits(self, free: Int64, at: Int64 | slice = slice(None)) -> Int64:
        """Seats where so much is free: `free` is int64[resources, some], `at` the nodes meant."""
        fits: Int64 = np.maximum((free[self._columns] // self._amounts).min(axis=0, initial=MOST_FITS), 0)
        return fits * self.usable[at]


class Spent(Exception):
    """There were more trials than there may be."""


class Trial:
    """One group, one room, and pods that may go. Nothing stays taken or freed.

    `free` is what is free on the candidates' nodes, int64[resources, nodes]; `needs` has each class of the group once.
    """

    def __init__(self, room: Room, group: GroupToPlace, parts: Sequence[Part], candidates: Candidates) -> None:
        self.room = room
        self.group = group
        self.parts = parts
        self.candidates = candidates
        self.free: Int64 = room.free[:, candidates.rows]
        must_seat = _must_seat(group, parts)
        self.needs = [ClassNeed(room.of(each), needed, candidates.rows) for each, needed in must_seat.items()]
        self._alike = alike(parts)
        self._steps_left = STEPS_FOR_ALL
        self._trials_left = TRIALS_OF_MIXED

    def among(self, candidates: Candidates) -> "Trial":
        """The same for some of the candidates, with what is left to be spent."""
        trial = Trial(self.room, self.group, self.parts, candidates)
        trial._steps_left, trial._trials_left = self._steps_left, self._trials_left
        return trial

    def useful(self) -> Bool:
        """Whether some member of the group may go where the entry is, bool[entries]."""
        useful: Bool = np.logical_or.reduce([need.usable for need in self.needs])[self.candidates.at]
        return useful

    def fits(self, removed: Int64) -> bool:
        """All minimums have room once so many pods of each entry are gone.

        Raises Spent.
        """
        freed = self.candidates.freed(removed)
        free = self.free + freed
        if any(need.elsewhere + int(need.fits(free).sum()) < need.needed for need in self.needs):
            return False
        return self._alike or self._seated(freed)

    def _seated(self, freed: Int64) -> bool:
        self._trials_left -= 1
        if self._trials_left < 0:
            raise Spent
        changed = np.flatnonzero(freed.any(axis=0))
        mark = self.room.mark()
        self.room.shift(self.candidates.rows[changed], freed[:, changed])
        budget = Budget(min(STEPS_PER_TRIAL, self._steps_left))
        granted = budget.left
        try:
            return seat_minimums(self.room, self.group, self.parts, budget) is not None
        finally:
            self._steps_left -= granted - max(0, budget.left)
            self.room.undo(mark)


def _must_seat(group: GroupToPlace, parts: Sequence[Part]) -> Counter[str]:
    """How many members of each class must have a seat even if all others had one."""
    must_seat: Counter[str] = Counter()
    for index, gang in enumerate(group.gangs):
        wanted = sum(part.wanted for part in parts if part.gang == index)
        for part in parts:
            if part.gang == index:
                must_seat[part.class_id] += max(0, gang.minimum - (wanted - part.wanted))
    return must_seat
