"""Fewer nodes to look at when all of them are too many: those where a group is most likely to have its best place."""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.mixed.ground import Ground
from muster.placement.room.nodes import Bool

_OF_EACH: Final = 2
"""Domains of each level that hold the whole group most tightly, and that have most room, whose nodes come first."""


def narrowed(ground: Ground, places: int) -> Ground:
    """The ground with room on so many places only, besides those where members are."""
    levels = sorted({rule.level for one in ground.asked for rule in one.rules if rule.level < len(ground.tree.levels)})
    preferred = np.zeros(ground.fits.shape[1], np.bool_)
    for level in levels:
        preferred |= _promising(ground, ground.tree.levels[level].of)
    room_for = ground.fits.sum(axis=0)
    usable = np.flatnonzero(room_for)
    lowest = ground.tree.levels[levels[-1]].of if levels else np.zeros(len(preferred), np.int64)
    turn = _turns(lowest[usable], room_for[usable])
    order = np.lexsort((turn, ~preferred[usable]))
    chosen: Bool = np.zeros(len(preferred), np.bool_)
    chosen[usable[order[:places]]] = True
    return ground.only(chosen)


def _promising(ground: Ground, of: Int64) -> Bool:
    """Places in those domains of a level that hold all members most tightly, and in those with most room."""
    wanted = np.array([part.wanted for part in ground.parts])
    seats = np.array([np.bincount(of, fits) for fits in ground.fits]).astype(np.int64)  # int64[parts, domains]
    whole = np.flatnonzero((seats >= wanted[:, None]).all(axis=0))
    total = seats.sum(axis=0)
    most = np.minimum(seats, wanted[:, None]).sum(axis=0)
    tightest = whole[np.argsort(total[whole], kind="stable")[:_OF_EACH]]
    roomiest = np.lexsort((-total, -most))[:_OF_EACH]
    return np.isin(of, np.concatenate((tightest, roomiest)))


def _turns(domain: Int64, room_for: Int64) -> Int64:
    """Place of each node among those of its domain, the one with most room first."""
    order = np.lexsort((-room_for, domain))
    sorted_ = domain[order]
    first = np.flatnonzero(np.append(True, sorted_[1:] != sorted_[:-1])) if len(order) else order
    turns = np.zeros(len(order), np.int64)
    turns[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return turns
