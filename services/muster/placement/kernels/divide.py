"""Divides members over the domains of one tier, separately within each domain above.

Within one domain above, `free` is how many more members each of its domains can take, in units of a factor; the members
placed go to `counts`, initially 0. Ties go to the first domain.
"""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.compilation import FLAG, INT, INTS, inner, kernel

PACK: Final = 1
PARTITION: Final = 3

IMPOSSIBLE: Final = -1
"""Instead of squares: no such division exists."""

_UNLIMITED: Final = 2**62
_DIGITS: Final = 2**8


@kernel(INT, FLAG, INT, INT, INT, INTS, INTS, INTS, INTS, INTS, INTS)
def divide(
    shape: int,
    hard: bool,
    parts: int,
    least: int,
    step: int,
    caps: Int64,
    starts: Int64,
    above: Int64,
    members: Int64,
    domains: Int64,
    sizes: Int64,
) -> tuple[int, int, int]:
    """Divides `members[i]` over the domains within `above[i]`, `starts[above[i]]` to before `starts[above[i] + 1]`.

    `caps` is int64[domains], how many more members each can take: 0, or a size that the rule allows. Writes the used
    domains, ascending, and the members on each. Returns their number; the sum of squared sizes, IMPOSSIBLE if there is
    no division; and by how many parts the domains above miss `parts`. Ranges and factors hold whether hard or not.
    `domains` and `sizes` are as long as there are domains, or one longer than there are members.
    """
    widest = 0
    for at in range(len(above)):
        widest = max(widest, starts[above[at] + 1] - starts[above[at]])
    scaled, given = np.empty(widest, np.int64), np.zeros(widest, np.int64)
    order, spare, tally = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(_DIGITS, np.int64)
    used, squares, missed_parts = 0, 0, 0
    smallest = -(-least // step)
    for at in range(len(above)):
        first, wanted = starts[above[at]], members[at]
        width = starts[above[at] + 1] - first
        if wanted % step:
            return 0, IMPOSSIBLE, 0
        wanted //= step
        if not wanted and (shape == PACK or not hard):
            missed_parts += parts
            continue
        free, counts = caps[first : first + width], given[:width]
        if step > 1:
            for domain in range(width):
                scaled[domain] = free[domain] // step
            free = scaled[:width]
        if shape == PACK:
            done = _pack(free, wanted, smallest, hard, counts, order, spare, tally)
        elif shape != PARTITION and least <= step and _one_each(free, wanted, counts, tally):
            done = True
        else:
            difference = -1 if not hard else 1 if step == 1 else 0
            partition = shape == PARTITION
            numbers = parts if partition else wanted // smallest
            done = _even(free, wanted, numbers, smallest, difference, partition, counts, order, spare, tally)
        if not done:
            return 0, IMPOSSIBLE, 0
        before = used
        for domain in range(width):
            size = counts[domain] * step
            domains[used], sizes[used] = first + domain, size  # branch-free: unused entries are overwritten
            squares += size * size
            used += size > 0
            counts[domain] = 0
        missed_parts += abs(used - before - parts)
    return used, squares, missed_parts


@inner
def _pack(
    free: Int64, wanted: int, least: int, one: bool, counts: Int64, order: Int64, spare: Int64, tally: Int64
) -> bool:
    """Few domains: the tightest that holds all, or the largest ones and the tightest that holds the rest."""
    if wanted < least:
        return False
    whole = _tightest(free, wanted, counts)
    if whole >= 0:
        counts[whole] = wanted
        return True
    if one:
        return False
    rest = wanted
    for at in range(_largest_first(free, False, order, spare, tally)):
        if free[order[at]] > rest:
            break
        counts[order[at]] = free[order[at]]
        rest -= free[order[at]]
    if not rest:
        return True
    last = _tightest(free, max(rest, least), counts)
    if last < 0:
        return False
    counts[last] = rest
    return rest >= least or _raise_to_least(counts, last, least)


@inner
def _tightest(free: Int64, wanted: int, counts: Int64) -> int:
    """The unused domain with the least capacity that is at least `wanted`; -1 if there is none."""
    best, tightest = -1, _UNLIMITED
    for at in range(len(free)):
        size = free[at] if free[at] >= wanted and counts[at] == 0 else _UNLIMITED
        if size < tightest:
            best, tightest = at, size
    return best


@inner
def _raise_to_least(counts: Int64, index: int, least: int) -> bool:
    """Moves members to a domain with too few, from the last domains first; returns whether it has enough then."""
    for other in range(len(counts) - 1, -1, -1):
        given = min(least - counts[index], counts[other] - least)
        if other != index and given > 0:
            counts[other] -= given
            counts[index] += given
    return bool(counts[index] >= least)


@inner
def _one_each(free: Int64, wanted: int, counts: Int64, tally: Int64) -> bool:
    """One member on each of the tightest domains, without sorting; False if `_even` has to decide."""
    most = 0
    for at in range(len(free)):
        most = max(most, free[at])
    if most >= _DIGITS or not 0 < wanted <= len(free):
        return False
    for size in range(most + 1):
        tally[size] = 0
    for at in range(len(free)):
        tally[free[at]] += 1
    single, several = tally[1] if most else 0, len(free) - tally[0] - (tally[1] if most else 0)
    if single + several < wanted or (single > wanted > several):
        return False
    size, rest = 1, wanted
    while tally[size] < rest:
        rest -= tally[size]
        size += 1
    for at in range(len(free)):
        last = (free[at] == size) & (rest > 0)
        rest -= last
        counts[at] = last | ((free[at] > 0) & (free[at] < size))
    return True


@inner
def _even(
    free: Int64,
    wanted: int,
    parts: int,
    least: int,
    difference: int,
    partition: bool,
    counts: Int64,
    order: Int64,
    spare: Int64,
    tally: Int64,
) -> bool:
    """As evenly as capacity allows over `parts` domains, or as many as possible.

    If `difference` is not negative, sizes differ by at most that, and a partition has exactly `parts` parts. Otherwise
    it has more if those have too little capacity.
    """
    usable = _largest_first(free, True, order, spare, tally)
    used = min(parts, usable, wanted // least)
    if difference >= 0:
        while used and not _is_even(free, order, wanted, used, difference):
            used -= 1
        if partition and used != parts:
            return False
    held = 0
    for at in range(used):
        held += free[order[at]]
    while partition and difference < 0 and held < wanted and used < usable:
        held += free[order[used]]
        used += 1
    if held < wanted or used * least > wanted:
        return False
    _fill(free, wanted, used, usable, counts, order)
    if least > 1:
        for at in range(len(counts)):
            if 0 < counts[at] < least:
                return False
    return True


@inner
def _is_even(free: Int64, order: Int64, wanted: int, parts: int, difference: int) -> bool:
    """The members can be divided evenly over the `parts` largest domains."""
    each, more = wanted // parts, wanted % parts
    larger = more == 0 or (difference > 0 and bool(free[order[more - 1]] > each))
    return larger and bool(free[order[parts - 1]] >= each)


@inner
def _fill(free: Int64, wanted: int, parts: int, usable: int, counts: Int64, order: Int64) -> None:
    """Fills those of the largest `parts` domains that hold less than an equal share; the others share the rest.

    All domains that hold the share are equally good: the tightest of them share.
    """
    rest, sharing = wanted, parts
    while sharing and free[order[sharing - 1]] * sharing <= rest:
        sharing -= 1
        counts[order[sharing]] = free[order[sharing]]
        rest -= free[order[sharing]]
    if not sharing:
        return
    each, more = rest // sharing, rest % sharing
    share = max(1, each + (1 if more else 0))
    left, at = sharing, usable
    while left:
        at -= 1
        if free[order[at]] >= share and not counts[order[at]]:
            counts[order[at]] = -1
            left -= 1
    for domain in range(len(free)):
        if counts[domain] < 0:
            counts[domain] = each + (1 if left < more else 0)
            left += 1


@inner
def _largest_first(free: Int64, last_first: bool, order: Int64, spare: Int64, tally: Int64) -> int:
    """Writes all domains to `order`, largest first, ties by first (or last); returns how many have capacity.

    Radix sort by the difference to the largest, lowest digit first: linear and branch-free.
    """
    if not len(free):
        return 0
    usable, most, least = 0, free[0], free[0]
    for at in range(len(free)):
        usable += free[at] > 0
        most, least = max(most, free[at]), min(least, free[at])
    _digit_starts(free, most, least, 0, tally)
    for at in range(len(free)):
        domain = len(free) - 1 - at if last_first else at
        digit = (most - free[domain]) & (_DIGITS - 1)
        order[tally[digit]] = domain
        tally[digit] += 1
    shift = 8
    while (most - least) >> shift:
        _digit_starts(free, most, least, shift, tally)
        for at in range(len(free)):
            digit = ((most - free[order[at]]) >> shift) & (_DIGITS - 1)
            spare[tally[digit]] = order[at]
            tally[digit] += 1
        for at in range(len(free)):
            order[at] = spare[at]
        shift += 8
    return usable


@inner
def _digit_starts(free: Int64, most: int, least: int, shift: int, tally: Int64) -> None:
    """Writes to `tally` where the domains with each digit start."""
    digits = min(_DIGITS, ((most - least) >> shift) + 1)
    tally[:digits] = 0
    for at in range(len(free)):
        tally[((most - free[at]) >> shift) & (_DIGITS - 1)] += 1
    before = 0
    for digit in range(digits):
        before, tally[digit] = before + tally[digit], before


@kernel(INTS, INTS, INT, INT, INT, FLAG)
def fewest(caps: Int64, starts: Int64, first: int, last: int, members: int, counted: bool) -> Int64:
    """Number of domains needed within each of `first` to before `last` to hold all members, if they can.

    If not `counted`, a lower bound: as if all domains were as large as the largest.
    """
    found = np.empty(last - first, np.int64)
    widest = 0
    for above in range(first, last):
        widest = max(widest, starts[above + 1] - starts[above])
    order, spare, tally = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(_DIGITS, np.int64)
    for above in range(first, last):
        free = caps[starts[above] : starts[above + 1]]
        held = 0
        for at in range(len(free)):
            held = max(held, free[at])
        number = 1 if counted else -(-members // max(held, 1))
        if counted and held < members:
            usable = _largest_first(free, False, order, spare, tally)
            while held < members and number < usable:
                held += free[order[number]]
                number += 1
            if held < members:
                number = usable + 1
        found[above - first] = number
    return found


@kernel(INTS, INTS, INT, INT)
def max_even(caps: Int64, starts: Int64, parts: int, difference: int) -> Int64:
    """The most members over the domains within each one above with sizes that differ by at most `difference`, in
    `parts` domains, 0 for any number.
    """
    found = np.zeros(len(starts) - 1, np.int64)
    widest = 0
    for above in range(len(found)):
        widest = max(widest, starts[above + 1] - starts[above])
    order, spare, tally = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(_DIGITS, np.int64)
    for above in range(len(found)):
        free = caps[starts[above] : starts[above + 1]]
        most = 0
        for at in range(len(free)):
            most = max(most, free[at])
        if most < _DIGITS:
            found[above] = _max_even_of_small_sizes(free, most, parts, difference, tally)
            continue
        larger = 0
        for at in range(_largest_first(free, False, order, spare, tally)):
            size = free[order[at]]
            if at and free[order[at - 1]] > size:
                larger = at
            if parts in (0, at + 1):
                found[above] = max(found[above], size * (at + 1) + difference * larger)
    return found


@inner
def _max_even_of_small_sizes(free: Int64, most: int, parts: int, difference: int, tally: Int64) -> int:
    """As `most_even`, by the number of domains of each size, without sorting."""
    tally[: most + 1] = 0
    for at in range(len(free)):
        tally[free[at]] += 1
    found, larger = 0, 0
    for size in range(most, 0, -1):
        number = larger + tally[size]
        if parts == 0:
            found = max(found, size * number + difference * larger)
        elif larger < parts <= number:
            found = size * parts + difference * larger
        larger = number
    return found
