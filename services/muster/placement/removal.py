"""Who has to go so that a group has a place: the lowest level that does, spare pods, few gangs, nothing for nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.placing import GroupToPlace, Removable
from muster.placement.answers import NotPlaced, Placed
from muster.placement.candidates import Candidates
from muster.placement.kept import Kept
from muster.placement.parts import Part
from muster.placement.room import Room
from muster.placement.search import Budget
from muster.placement.trial import Trial

PlaceWhole = Callable[[], Placed | NotPlaced]
"""Places the group in the room as it is then."""


def place_by_removal(
    room: Room,
    group: GroupToPlace,
    parts: Sequence[Part],
    removable: Sequence[Removable],
    kept: Kept,
    place: PlaceWhole,
    budget: Budget,
) -> Placed | NotPlaced:
    """Place a group that has no place otherwise, if it has one once some of the removable pods are gone."""
    candidates = Candidates(room, removable, kept)
    mark = room.mark()
    room.shift(candidates.rows, candidates.freed(candidates.count))
    answer = place()
    room.undo(mark)
    if isinstance(answer, NotPlaced):
        summary = f"even if all that may be removed were gone: {answer.explanation.summary}"
        return replace(answer, explanation=replace(answer.explanation, summary=summary))
    removed = _Removal(candidates, Trial(room, group, parts, candidates, budget)).find()
    room.shift(candidates.rows, candidates.freed(removed))
    answer = place()
    return replace(answer, removed=candidates.answer(removed)) if isinstance(answer, Placed) else answer


@dataclass
class _Removal:
    candidates: Candidates
    trial: Trial
    tries_left: int = 2000

    def find(self) -> Int64:
        """How many pods of each entry go."""
        allowed = self._lowest_levels()
        spare = self._spare(allowed)
        return self._put_back(self._fewest_gangs(allowed, spare), spare)

    def _lowest_levels(self) -> Int64:
        """All pods of the levels that suffice."""
        levels = np.unique(self.candidates.level)
        of_entry = self.candidates.level[self.candidates.gang]
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self.trial.fits(self.candidates.count * (of_entry <= levels[middle])):
                high = middle
            else:
                low = middle + 1
        allowed: Int64 = self.candidates.count * (of_entry <= levels[high])
        return allowed

    def _spare(self, allowed: Int64) -> Int64:
        """Of the allowed pods those that may go one by one: of each gang the first where the group may go."""
        candidates = self.candidates
        spare: Int64 = np.zeros(len(candidates), np.int64)
        in_order = np.argsort(candidates.turn)
        useful = (allowed * self.trial.useful())[in_order]
        gang = candidates.gang[in_order]
        before = useful.cumsum() - useful
        first = np.searchsorted(gang, gang)
        before = before - before[first]
        spare[in_order] = np.clip(candidates.spare[gang] - before, 0, useful)
        return spare

    def _fewest_gangs(self, allowed: Int64, spare: Int64) -> Int64:
        """Spare pods and the fewest gangs as a whole."""
        if self.trial.fits(spare):
            return spare
        gang = self.candidates.gang
        gangs = np.unique(gang[(allowed > 0) & (self.trial.useful() > 0)]).tolist()
        for size in (1, 2):
            for chosen in combinations(gangs, size):
                if not self.tries_left:
                    break
                self.tries_left -= 1
                removed: Int64 = np.where(np.isin(gang, chosen), allowed, spare)
                if self.trial.fits(removed):
                    return removed
        return allowed

    def _put_back(self, removed: Int64, spare: Int64) -> Int64:
        """Whole gangs, then spare pods, the last ones first, as long as there is a place without them."""
        gang, in_order = self.candidates.gang, np.argsort(self.candidates.turn)
        whole = np.unique(gang[removed > spare])
        removed = self._put_back_last(
            len(whole), lambda kept: np.where(np.isin(gang, whole[~kept]), removed, np.minimum(removed, spare))
        )
        whole = np.unique(gang[removed > spare])
        one_by_one = np.where(np.isin(gang, whole), 0, removed)
        entry = np.repeat(in_order, one_by_one[in_order])
        return self._put_back_last(
            len(entry), lambda kept: removed - np.bincount(entry[kept], minlength=len(removed)).astype(np.int64)
        )

    def _put_back_last(self, units: int, without: Callable[[np.ndarray], Int64]) -> Int64:
        """Put back as many of the units as can be, from the last; `without` says what goes when some are kept."""
        kept = np.zeros(units, np.bool_)
        end = units
        while end:
            low, high = 0, end  # everything from `high` on can be kept, apart from what was found to be needed
            while low < high:
                middle = (low + high) // 2
                attempt = kept.copy()
                attempt[middle:end] = True
                if self.trial.fits(without(attempt)):
                    high = middle
                else:
                    low = middle + 1
            kept[high:end] = True
            end = max(high - 1, 0)
        return without(kept)
