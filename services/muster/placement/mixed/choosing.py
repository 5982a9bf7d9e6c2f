"""Which of all shares that a ladder has priced is the answer."""

from collections.abc import Sequence

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.mixed.prices import NEVER
from muster.placement.mixed.tables import Cell
from muster.placement.room.parts import Part


def best_cell(table: Int64, parts: Sequence[Part], least: Sequence[int], ties: int = 0) -> Cell | None:
    """At least `least[gang]` members and as many as can be, then the least price, then members of first parts.

    The last `ties` bits of prices are worth less than first parts.
    """
    cells, prices = _cells(table)
    of_gang = _of_gangs(cells, parts, len(least))
    possible = (prices < NEVER) & (of_gang >= np.array(least)[:, None]).all(axis=0)
    return _first(np.flatnonzero(possible), cells, [-cells.sum(axis=0), prices >> ties, *-cells, prices])


def most_toward(table: Int64, parts: Sequence[Part], minimums: Sequence[int]) -> Cell | None:
    """What counts toward minimums comes first, of first gangs before later ones; then first parts, then the price.

    None if that is nothing.
    """
    cells, prices = _cells(table)
    counted = np.minimum(_of_gangs(cells, parts, len(minimums)), np.array(minimums)[:, None])
    possible = (prices < NEVER) & cells.any(axis=0)
    return _first(np.flatnonzero(possible), cells, [-counted.sum(axis=0), *-counted, *-cells, prices])


def _cells(table: Int64) -> tuple[Int64, Int64]:
    """Members of each part and the price of all shares: int64[parts, shares], int64[shares]."""
    return np.indices(table.shape).reshape(table.ndim, -1), table.reshape(-1)


def _of_gangs(cells: Int64, parts: Sequence[Part], gangs: int) -> Int64:
    """Members of each gang: int64[gangs, shares]."""
    return np.array([cells[[part.gang == gang for part in parts]].sum(axis=0) for gang in range(gangs)])


def _first(found: Int64, cells: Int64, keys: Sequence[Int64]) -> Cell | None:
    if not len(found):
        return None
    best = found[np.lexsort([key[found] for key in reversed(keys)])[0]]
    return tuple(int(count) for count in cells[:, best])
