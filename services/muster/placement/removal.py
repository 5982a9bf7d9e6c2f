"""Who has to go so that a group has a place: the lowest levels, spare pods, few gangs, and nobody for nothing."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.placing import GroupToPlace, Removable
from muster.placement.answers import NotPlaced, Placed
from muster.placement.candidates import candidates_of
from muster.placement.fewest import few_gangs, fewest_gangs
from muster.placement.kept import Kept
from muster.placement.parts import Part
from muster.placement.putback import put_back
from muster.placement.room import Room
from muster.placement.spare import Spare
from muster.placement.trial import Spent, Trial

PlaceWhole = Callable[[], Placed | NotPlaced]
"""Places the group in the room as it is then."""


def place_by_removal(
    room: Room,
    group: GroupToPlace,
    parts: Sequence[Part],
    removable: Sequence[Removable],
    kept: Kept,
    place: PlaceWhole,
) -> Placed | NotPlaced:
    """Place a group that has no place otherwise, if it has one once some of the removable pods are gone."""
    candidates = candidates_of(room, removable, kept)
    mark = room.mark()
    room.shift(candidates.rows, candidates.freed(candidates.count))
    answer = place()
    room.undo(mark)
    if isinstance(answer, NotPlaced):
        summary = f"even if all that may be removed were gone: {answer.explanation.summary}"
        return replace(answer, explanation=replace(answer.explanation, summary=summary))
    removed = _who_goes(Trial(room, group, parts, candidates))
    room.shift(candidates.rows, candidates.freed(removed))
    answer = place()
    return replace(answer, removed=candidates.answer(removed)) if isinstance(answer, Placed) else answer


def _who_goes(trial: Trial) -> Int64:
    """How many pods of each entry go."""
    allowed = _lowest_levels(trial)
    spare = Spare(trial, allowed)
    removed = spare.beside(())
    if removed is None:
        removed = _few_gangs(trial, allowed, spare)
    return put_back(trial, removed, spare.allowance)


def _lowest_levels(trial: Trial) -> Int64:
    """All pods of the levels that suffice, by entry."""
    candidates = trial.candidates
    level_of = np.array([gang.level for gang in candidates.gangs], np.int64)[candidates.gang]
    levels = np.unique(level_of)
    low, high = 0, len(levels) - 1
    try:
        while low < high:
            middle = (low + high) // 2
            if trial.fits(candidates.count * (level_of <= levels[middle])):
                high = middle
            else:
                low = middle + 1
    except Spent:
        pass
    allowed: Int64 = candidates.count * (level_of <= levels[high])
    return allowed


def _few_gangs(trial: Trial, allowed: Int64, spare: Spare) -> Int64:
    """What goes if few gangs go whole; in the worst case all that is allowed."""
    for search, spared in ((fewest_gangs, spare.most), (few_gangs, spare.first)):
        try:
            removed = search(trial, spare.limited, spared, allowed - spared, spare.beside)
        except Spent:
            removed = None
        if removed is not None:
            return removed
    return allowed
