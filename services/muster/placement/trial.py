"""Whether a group would have a place if some pods were gone: asked many times while it is sought who has to go."""

from collections.abc import Sequence

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.placing import GroupToPlace
from muster.placement.candidates import Candidates
from muster.placement.eligibility import USABLE
from muster.placement.mixed import seat_minimums
from muster.placement.parts import Part, alike
from muster.placement.room import MOST_FITS, Room
from muster.placement.search import Budget


class Trial:
    """One group, one room, and pods that may go. Nothing stays taken or freed."""

    def __init__(
        self, room: Room, group: GroupToPlace, parts: Sequence[Part], candidates: Candidates, budget: Budget
    ) -> None:
        self._room = room
        self._group = group
        self._parts = parts
        self._candidates = candidates
        self._budget = budget
        self._alike = alike(parts)
        self._needed = sum(gang.minimum for gang in group.gangs)
        rows = candidates.rows
        self._free = room.free[:, rows]
        self._rooms = [room.of(class_id) for class_id in dict.fromkeys(part.class_id for part in parts)]
        self._usable = [each.eligibility.reason[rows] == USABLE for each in self._rooms]
        self._elsewhere = [int(each.fits.sum()) - int(each.fits[rows].sum()) for each in self._rooms]

    def useful(self) -> Int64:
        """Whether a member of the group may go where the entry is: bool[entries] as 0 and 1."""
        useful: Int64 = np.logical_or.reduce(self._usable)[self._candidates.at].astype(np.int64)
        return useful

    def fits(self, removed: Int64) -> bool:
        """All minimums have room once so many pods of each entry are gone."""
        freed = self._candidates.freed(removed)
        if self._alike:
            return self._seats(freed) >= self._needed
        mark = self._room.mark()
        changed = np.flatnonzero(freed.any(axis=0))
        self._room.shift(self._candidates.rows[changed], freed[:, changed])
        try:
            return seat_minimums(self._room, self._group, self._parts, self._budget) is not None
        finally:
            self._room.undo(mark)

    def _seats(self, freed: Int64) -> int:
        [room] = self._rooms
        free = self._free[room.columns] + freed[room.columns]
        fits = (free // room.amounts[:, None]).min(axis=0, initial=MOST_FITS)
        return self._elsewhere[0] + int(np.maximum(fits, 0)[self._usable[0]].sum())
