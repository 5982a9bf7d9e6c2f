"""Upper bounds on the members that domains hold, and lower bounds on the cost of dividing members below a domain.

Domains of all levels are numbered consecutively, see `Tiers`: `caps` is int64[domains], and domain `d` contains the
domains `starts[d]` to before `starts[d + 1]`.
"""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.compilation import INT, INTS, TABLE, inner, kernel
from muster.placement.kernels.divide import PACK, max_even

SHAPE: Final = 0
HARD: Final = 1
COUNTS: Final = 2
LEVEL: Final = 3
LEAST: Final = 4
MOST: Final = 5
STEP: Final = 6
PARTS: Final = 7
FIELDS: Final = 8
"""Fields of a rule: a table of rules is int64[tiers, FIELDS]."""

_NO_LIMIT: Final = 2**31 - 1


@kernel(INTS, INTS, INT, INTS)
def node_caps(fits: Int64, rows: Int64, wanted: int, caps: Int64) -> int:
    """Writes to `caps` how many of `wanted` members fit on each of `rows`; returns the number of nodes on which any
    fits.
    """
    usable = 0
    for at in range(len(rows)):
        caps[at] = min(fits[rows[at]], wanted)
        usable += caps[at] > 0
    return usable


@inner
def _size(cap: int, most: int, least: int, step: int) -> int:
    """The largest size up to `cap` that the range and the factor allow."""
    size = min(cap, most)
    if step > 1:
        size -= size % step
    return size if size >= least else 0


@kernel(INTS, TABLE, INTS, TABLE, INT)
def capacities(fits: Int64, rules: Int64, starts: Int64, tiers: Int64, wanted: int) -> Int64:
    """Upper bounds on the members of each domain by its own rule and those below, int64[domains]; `fits` is by node.

    No bound exceeds `wanted`. The first domain is the root: its bound is that of the whole tree.
    """
    first = tiers[len(rules) - 1, 0]
    caps = np.empty(first + len(fits), np.int64)
    most, least, step = rules[-1, MOST], rules[-1, LEAST], rules[-1, STEP]
    if most >= _NO_LIMIT and least <= 1 and step <= 1:
        caps[first:] = fits
    else:
        for at in range(len(fits)):
            caps[first + at] = _size(fits[at], most, least, step)
    for tier in range(len(rules) - 1, -1, -1):
        shape, hard, parts = rules[tier, SHAPE], rules[tier, HARD], rules[tier, PARTS]
        difference = 1 if rules[tier, STEP] == 1 else 0
        above, last = 0 if tier == 0 else tiers[tier - 1, 0], tiers[tier, 0]
        most, least, step = _NO_LIMIT, 1, 1
        if tier:
            most, least, step = rules[tier - 1, MOST], rules[tier - 1, LEAST], rules[tier - 1, STEP]
        if hard and shape != PACK:
            even = max_even(caps, starts[above : last + 1], parts, difference)
            for at in range(above, last):
                caps[at] = _size(min(even[at - above], wanted), most, least, step)
            continue
        for at in range(above, last):
            below, held = caps[starts[at] : starts[at + 1]], 0
            for each in range(len(below)):
                held = max(held, below[each]) if hard else held + below[each]
            caps[at] = _size(min(held, wanted), most, least, step)
    return caps


@inner
def tightest(caps: Int64, first: int, last: int, members: int) -> tuple[int, int]:
    """The domain from `first` to before `last` with the least capacity for all members, or -1; and how many have it."""
    best, number = -1, 0
    for at in range(first, last):
        if caps[at] >= members:
            number += 1
            if best < 0 or caps[at] < caps[best]:
                best = at
    return best, number


@inner
def most_promising(bounds: Int64, caps: Int64, first: int, last: int, members: int, number: int) -> Int64:
    """Up to `number` domains from `first` to before `last` that hold all members: least bound, then capacity, then
    index.

    `bounds` are of these domains.
    """
    found = np.empty(min(number, last - first), np.int64)
    chosen, before = 0, -1
    while chosen < len(found):
        best = -1
        for at in range(first, last):
            if caps[at] < members or (before >= 0 and not _less_promising(bounds, caps, first, at, before)):
                continue
            if best < 0 or _less_promising(bounds, caps, first, best, at):
                best = at
        if best < 0:
            break
        found[chosen] = before = best
        chosen += 1
    return found[:chosen]


@inner
def _less_promising(bounds: Int64, caps: Int64, first: int, one: int, other: int) -> bool:
    """One domain is less promising than another."""
    behind = one > other
    if bounds[one - first] != bounds[other - first]:
        behind = bounds[one - first] > bounds[other - first]
    elif caps[one] != caps[other]:
        behind = caps[one] > caps[other]
    return behind


@inner
def packed_bounds(
    caps: Int64,
    starts: Int64,
    first: int,
    last: int,
    members: int,
    below: Int64,
    one: int,
    several: Int64,
    by: int,
    bounds: Int64,
) -> None:
    """Writes to `bounds` lower bounds on the cost of packing all members below domains `first` to before `last`.

    In one domain the cost is `one` plus the bound in `below`, if known; else that of `several` domains, their number,
    shifted.
    """
    for above in range(first, last):
        best = -1
        for at in range(starts[above], starts[above + 1]):
            if caps[at] >= members:
                cost = one + (below[at] if len(below) else 0)
                if best < 0 or cost < best:
                    best = cost
        bounds[above - first] = best if best >= 0 else shifted(several[above - first], by)


@inner
def even_bounds(
    caps: Int64,
    starts: Int64,
    first: int,
    last: int,
    members: int,
    least: int,
    parts: int,
    parts_by: int,
    by: int,
    bounds: Int64,
) -> None:
    """As `packed_bounds`, for spreading or for `parts` parts: sum of squared sizes, and missing parts."""
    for above in range(first, last):
        usable = 0
        for at in range(starts[above], starts[above + 1]):
            usable += caps[at] > 0
        used = min(usable, members // least)
        if parts:
            used = min(used, parts)
        used = max(used, 1)
        each, more = members // used, members % used
        squares = used * each * each + more * (2 * each + 1)
        if parts:
            squares += (parts - used) << parts_by
        bounds[above - first] = shifted(squares, by)


@inner
def shifted(term: int, by: int) -> int:
    """Shift left; right if `by` is negative."""
    return term << by if by >= 0 else term >> -by
