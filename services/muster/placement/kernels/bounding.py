"""What domains can take, by what those below them can; and what dividing members below them costs at least.

`caps` is int64[domains] of one tier, `starts` int64[domains above + 1]: where those within each one above begin.
"""

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.compiled import FLAG, INT, INTS, inner, kernel


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


@kernel(INTS, INT, INT, INT, INTS)
def allowed(caps: Int64, most: int, least: int, step: int, sizes: Int64) -> None:
    """The largest size that a range and a factor allow in each domain, into `sizes`."""
    for at in range(len(caps)):
        sizes[at] = _size(caps[at], most, least, step)


@kernel(INTS, INTS, FLAG, INT, INT, INT, INT, INTS)
def held_above(
    caps: Int64, starts: Int64, one: bool, wanted: int, most: int, least: int, step: int, held: Int64
) -> None:
    """What each domain above can take by its own range and factor, into `held`: what its domains can, or `one` of them.

    Nobody wants more than `wanted`.
    """
    for above in range(len(held)):
        total, roomiest = 0, 0
        for at in range(starts[above], starts[above + 1]):
            total += caps[at]
            roomiest = max(roomiest, caps[at])
        held[above] = _size(min(roomiest if one else total, wanted), most, least, step)


@kernel(INTS, INT, INT, INT)
def tightest(caps: Int64, first: int, last: int, members: int) -> tuple[int, int]:
    """Of domains `first` to before `last` the one with least room for all members, or -1; and how many have room."""
    best, number = -1, 0
    for at in range(first, last):
        if caps[at] >= members:
            number += 1
            if best < 0 or caps[at] < caps[best]:
                best = at
    return best, number


@kernel(INTS, INTS, INT, INT, INT, INT)
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


@kernel(INTS, INTS, INT, INT, INT, INTS, INT, INTS, INT)
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
) -> Int64:
    """What packing all members below each of domains `first` to before `last` above costs at least.

    In one domain it is `one` and what is `below` that, nothing if that is not told; else what `several` domains cost,
    which is their number, shifted.
    """
    bounds = np.empty(last - first, np.int64)
    for above in range(first, last):
        best = -1
        for at in range(starts[above], starts[above + 1]):
            if caps[at] >= members:
                cost = one + (below[at] if len(below) else 0)
                if best < 0 or cost < best:
                    best = cost
        bounds[above - first] = best if best >= 0 else _shifted(several[above - first], by)
    return bounds


@kernel(INTS, INTS, INT, INT, INT, INT, INT, INT, INT)
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
) -> Int64:
    """As `packed_bounds`, of squares where members are spread, or in so many `parts`, and of parts that are missing."""
    bounds = np.empty(last - first, np.int64)
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
        bounds[above - first] = _shifted(squares, by)
    return bounds


@inner
def _shifted(term: int, by: int) -> int:
    return term << by if by >= 0 else term >> -by
