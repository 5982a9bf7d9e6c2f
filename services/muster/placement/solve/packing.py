"""Best fit for equal pods: chooses nodes by counts, so that large nodes stay free for pods that need them.

Nodes with the lowest penalty come first. Ties are broken by the sum of free capacity (less is better: the node is
closer to full), then by name.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.state.capacity import FITS_SHIFT, CapacityState
from muster.placement.state.class_capacity import MAX_FITS, Seatable

Seats = tuple[Int64, Int64]
"""Distinct rows and the number of pods on each, both int64[some]."""

Choice = Callable[[Int64, int], tuple[Int64, Int64]]
"""Chooses among the keys of nodes on which the pods fit together: chosen keys and counts."""

_FITS_FIELD: Final = MAX_FITS << FITS_SHIFT


def fewest_nodes(keys: Int64, wanted: int) -> tuple[Int64, Int64]:
    """Fewest nodes: the tightest one that holds all, or the largest ones and the tightest that holds the rest."""
    whole = keys[keys >= wanted << FITS_SHIFT]
    if len(whole):
        return whole.min(keepdims=True), np.array([wanted])
    roomiest_first = keys ^ _FITS_FIELD
    if len(keys) > 4 * wanted:
        roomiest_first = np.partition(roomiest_first, wanted)[:wanted]
    roomiest_first.sort()
    counts = MAX_FITS - (roomiest_first >> FITS_SHIFT)
    held = counts.cumsum()
    full = int(np.searchsorted(held, wanted, side="right"))
    remaining = wanted - (int(held[full - 1]) if full else 0)
    chosen, counts = roomiest_first[:full] ^ _FITS_FIELD, counts[:full]
    if not remaining:
        return chosen, counts
    larger = keys[((keys ^ _FITS_FIELD) > roomiest_first[full - 1]) & (keys >= remaining << FITS_SHIFT)]
    return np.append(chosen, larger.min()), np.append(counts, remaining)


def tightest_first(keys: Int64, wanted: int) -> tuple[Int64, Int64]:
    """Fill the node on which fewest fit, then the next, as if the pods were placed one by one."""
    if wanted == 1:
        return keys.min(keepdims=True), np.array([1])
    tightest = np.partition(keys, wanted)[:wanted] if len(keys) > 4 * wanted else keys.copy()
    tightest.sort()
    counts = tightest >> FITS_SHIFT
    held = counts.cumsum()
    last = int(np.searchsorted(held, wanted))
    counts[last] -= held[last] - wanted
    return tightest[: last + 1], counts[: last + 1]


def choose(state: CapacityState, of_class: Seatable, wanted: int, choice: Choice) -> Seats:
    """Nodes for up to `wanted` pods of the class, in the order of choice; fewer if not all fit."""
    keys = state.keys(of_class)
    levels = of_class.penalties
    if len(levels) <= 1:
        return _among(state, keys, wanted, choice)
    penalty = of_class.penalty[of_class.fits > 0]
    chosen: list[Seats] = []
    for level in levels:
        chosen.append(_among(state, keys[penalty == level], wanted, choice))
        wanted -= int(chosen[-1][1].sum())
        if not wanted:
            break
    if len(chosen) == 1:
        return chosen[0]
    return np.concatenate([rows for rows, _ in chosen]), np.concatenate([counts for _, counts in chosen])


def _among(state: CapacityState, keys: Int64, wanted: int, choice: Choice) -> Seats:
    if int((keys >> FITS_SHIFT).sum()) > wanted:
        keys, counts = choice(keys, wanted)
    else:
        keys = np.sort(keys)
        counts = keys >> FITS_SHIFT
    return state.rows_of(keys), counts
