"""What domains can take, by what those below them can; and what dividing members below them costs at least.

Domains of all levels are numbered in one row, as `Tiers` says: `caps` is int64[domains], and those within domain `d`
are `starts[d]` to before `starts[d + 1]`.
"""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.compilation import INT, INTS, TABLE, inner, kernel
from muster.placement.kernels.divide import PACK, most_even

SHAPE: Final = 0
HARD: Final = 1
COUNTS: Final = 2
LEVEL: Final = 3
LEAST: Final = 4
MOST: Final = 5
STEP: Final = 6
PARTS: Final = 7
FIELDS: Final = 8
"""Of a rule, as kernels take it: a table of rules is int64[tiers, FIELDS]."""

_NO_LIMIT: Final = 2**31 - 1


@kernel(INTS, INTS, INT, INTS)
def in_order(fits: Int64, rows: Int64, wanted: int, caps: Int64) -> int:
    """How many of so many members fit on each of `rows`, into `caps`; returns on how many of them any does."""
    usable = 0
    for at in range(len(rows)):
        caps[at] = min(fits[rows[at]], wanted)
        usable += caps[at] > 0
    return usable


@inner
def _size(cap: int, most: int, least: int, step: int) -> int:
    """The largest size up to `cap` that a range and a factor allow."""
    size = min(cap, most)
    if step > 1:
        size -= size % step
    return size if size >= least else 0


@kernel(INTS, TABLE, INTS, TABLE, INT)
def capacities(fits: Int64, rules: Int64, starts: Int64, tiers: Int64, wanted: int) -> Int64:
    """What each domain can take by its own rule and what is below it, int64[domains], by `fits` of the nodes.

    Nobody wants more than `wanted`. The first is what there is a place for in all: more can not be placed, as many
    perhaps.
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
            even = most_even(caps, starts[above : last + 1], parts, difference)
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
    """Of domains `first` to before `last` the one with least room for all members, or -1; and how many have room."""
    best, number = -1, 0
    for at in range(first, last):
        if caps[at] >= members:
            number += 1
            if best < 0 or caps[at] < caps[best]:
                best = at
    return best, number


@inner
def most_promising(bounds: Int64, caps: Int64, first: int, last: int, members: int, number: int) -> Int64:
    """Up to so many of domains `first` to before `last` that have room for all members: least bound, then room, first.

    `bounds` are of these domains.
    """
    found = np.empty(min(number, last - first), np.int64)
    chosen, before = 0, -1
    while chosen < len(found):
        best = -1
        for at in range(first, last):
            if caps[at] < members or (before >= 0 and not _is_behind(bounds, caps, first, at, before)):
                continue
            if best < 0 or _is_behind(bounds, caps, first, best, at):
                best = at
        if best < 0:
            break
        found[chosen] = before = best
        chosen += 1
    return found[:chosen]


@inner
def _is_behind(bounds: Int64, caps: Int64, first: int, one: int, other: int) -> bool:
    """One domain promises less than another one."""
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
    """What packing all members below each of domains `first` to before `last` costs at least, into `bounds`.

    In one domain it is `one` and what is `below` that, nothing if that is not told; else what `several` domains cost,
    which is their number, shifted.
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
    """As `packed_bounds`, of squares where members are spread, or in so many `parts`, and of parts that are missing."""
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
    """Left, or right if that is negative."""
    return term << by if by >= 0 else term >> -by
