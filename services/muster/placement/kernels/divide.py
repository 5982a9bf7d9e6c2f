"""Divides members over the domains of one tier, for many domains above at once, each with its own members and domains.

Within one domain above, `room` is how many more each of its domains can take, counted in steps of a factor; what they
are given goes to `counts`, which are 0 before. Ties go to the first domain.
"""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.compilation import FLAG, INT, INTS, inner, kernel

PACK: Final = 1
PARTITION: Final = 3

IMPOSSIBLE: Final = -1
"""For squares: the members cannot be divided so."""

_ENDLESS: Final = 2**62
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
    """`members[i]` of the domain `above[i]` over its own, which are `starts[above[i]]` to before the next one's.

    `caps` is int64[domains], how many more each can take: 0, or a size that the rule allows. Writes the domains that
    are used, rising, and members on each. Returns how many they are; the sum of the squares, NEVER if that cannot be;
    and by how many parts the domains above miss `parts`. Ranges and factors hold whether they are hard or not.
    `domains` and `sizes` are as long as there are domains, or one longer than there are members.
    """
    widest = 0
    for at in range(len(above)):
        widest = max(widest, starts[above[at] + 1] - starts[above[at]])
    scaled, given = np.empty(widest, np.int64), np.zeros(widest, np.int64)
    order, spare, tally = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(_DIGITS, np.int64)
    used, squares, off = 0, 0, 0
    smallest = -(-least // step)
    for at in range(len(above)):
        first, wanted = starts[above[at]], members[at]
        width = starts[above[at] + 1] - first
        if wanted % step:
            return 0, IMPOSSIBLE, 0
        wanted //= step
        if not wanted and (shape == PACK or not hard):
            off += parts
            continue
        room, counts = caps[first : first + width], given[:width]
        if step > 1:
            for domain in range(width):
                scaled[domain] = room[domain] // step
            room = scaled[:width]
        if shape == PACK:
            done = _pack(room, wanted, smallest, hard, counts, order, spare, tally)
        elif shape != PARTITION and least <= step and _one_each(room, wanted, counts, tally):
            done = True
        else:
            difference = -1 if not hard else 1 if step == 1 else 0
            partition = shape == PARTITION
            numbers = parts if partition else wanted // smallest
            done = _level(room, wanted, numbers, smallest, difference, partition, counts, order, spare, tally)
        if not done:
            return 0, IMPOSSIBLE, 0
        before = used
        for domain in range(width):
            size = counts[domain] * step
            domains[used], sizes[used] = first + domain, size  # written over unless it is used: this has no branches
            squares += size * size
            used += size > 0
            counts[domain] = 0
        off += abs(used - before - parts)
    return used, squares, off


@inner
def _pack(
    room: Int64, wanted: int, least: int, one: bool, counts: Int64, order: Int64, spare: Int64, tally: Int64
) -> bool:
    """Few domains: the tightest that holds all, or the roomiest and the tightest that holds the rest."""
    if wanted < least:
        return False
    whole = _tightest(room, wanted, counts)
    if whole >= 0:
        counts[whole] = wanted
        return True
    if one:
        return False
    rest = wanted
    for at in range(_roomiest_first(room, False, order, spare, tally)):
        if room[order[at]] > rest:
            break
        counts[order[at]] = room[order[at]]
        rest -= room[order[at]]
    if not rest:
        return True
    last = _tightest(room, max(rest, least), counts)
    if last < 0:
        return False
    counts[last] = rest
    return rest >= least or _top_up(counts, last, least)


@inner
def _tightest(room: Int64, wanted: int, counts: Int64) -> int:
    """Of the domains that are not used, the one with least room of those with so much; -1 if there is none."""
    best, tightest = -1, _ENDLESS
    for at in range(len(room)):
        size = room[at] if room[at] >= wanted and counts[at] == 0 else _ENDLESS
        if size < tightest:
            best, tightest = at, size
    return best


@inner
def _top_up(counts: Int64, index: int, least: int) -> bool:
    """A domain with too few gets more from those that can spare it, the last first; whether it has enough then."""
    for other in range(len(counts) - 1, -1, -1):
        given = min(least - counts[index], counts[other] - least)
        if other != index and given > 0:
            counts[other] -= given
            counts[index] += given
    return bool(counts[index] >= least)


@inner
def _one_each(room: Int64, wanted: int, counts: Int64, tally: Int64) -> bool:
    """One member on each of the tightest domains, which needs no sorting; False if `_level` has to say on which."""
    most = 0
    for at in range(len(room)):
        most = max(most, room[at])
    if most >= _DIGITS or not 0 < wanted <= len(room):
        return False
    for size in range(most + 1):
        tally[size] = 0
    for at in range(len(room)):
        tally[room[at]] += 1
    single, several = tally[1] if most else 0, len(room) - tally[0] - (tally[1] if most else 0)
    if single + several < wanted or (single > wanted > several):
        return False
    size, rest = 1, wanted
    while tally[size] < rest:
        rest -= tally[size]
        size += 1
    for at in range(len(room)):
        last = (room[at] == size) & (rest > 0)
        rest -= last
        counts[at] = last | ((room[at] > 0) & (room[at] < size))
    return True


@inner
def _level(
    room: Int64,
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
    """As evenly as room allows over `parts` domains, or as many as there can be.

    If `difference` is not negative, sizes differ by no more than that, and a partition has as many parts as was said.
    Otherwise it has more if so many have too little room.
    """
    usable = _roomiest_first(room, True, order, spare, tally)
    able = min(parts, usable, wanted // least)
    if difference >= 0:
        while able and not _is_even(room, order, wanted, able, difference):
            able -= 1
        if partition and able != parts:
            return False
    held = 0
    for at in range(able):
        held += room[order[at]]
    while partition and difference < 0 and held < wanted and able < usable:
        held += room[order[able]]
        able += 1
    if held < wanted or able * least > wanted:
        return False
    _fill(room, wanted, able, usable, counts, order)
    if least > 1:
        for at in range(len(counts)):
            if 0 < counts[at] < least:
                return False
    return True


@inner
def _is_even(room: Int64, order: Int64, wanted: int, parts: int, difference: int) -> bool:
    """Whether the members can be divided evenly over so many of the roomiest domains."""
    each, more = wanted // parts, wanted % parts
    roomier = more == 0 or (difference > 0 and bool(room[order[more - 1]] > each))
    return roomier and bool(room[order[parts - 1]] >= each)


@inner
def _fill(room: Int64, wanted: int, parts: int, usable: int, counts: Int64, order: Int64) -> None:
    """Those of the roomiest `parts` that have less than an equal share are filled; the others share what is left.

    Any domain with so much room does as well as those: the tightest share.
    """
    rest, sharing = wanted, parts
    while sharing and room[order[sharing - 1]] * sharing <= rest:
        sharing -= 1
        counts[order[sharing]] = room[order[sharing]]
        rest -= room[order[sharing]]
    if not sharing:
        return
    each, more = rest // sharing, rest % sharing
    share = max(1, each + (1 if more else 0))
    left, at = sharing, usable
    while left:
        at -= 1
        if room[order[at]] >= share and not counts[order[at]]:
            counts[order[at]] = -1
            left -= 1
    for domain in range(len(room)):
        if counts[domain] < 0:
            counts[domain] = each + (1 if left < more else 0)
            left += 1


@inner
def _roomiest_first(room: Int64, last_first: bool, order: Int64, spare: Int64, tally: Int64) -> int:
    """All domains into `order`, the roomiest first, of equal ones the first (or last); returns how many have room.

    Sorted by digits of what they have less than the roomiest, from the lowest: linear, and without branches.
    """
    if not len(room):
        return 0
    usable, most, least = 0, room[0], room[0]
    for at in range(len(room)):
        usable += room[at] > 0
        most, least = max(most, room[at]), min(least, room[at])
    _begin_digits(room, most, least, 0, tally)
    for at in range(len(room)):
        domain = len(room) - 1 - at if last_first else at
        digit = (most - room[domain]) & (_DIGITS - 1)
        order[tally[digit]] = domain
        tally[digit] += 1
    shift = 8
    while (most - least) >> shift:
        _begin_digits(room, most, least, shift, tally)
        for at in range(len(room)):
            digit = ((most - room[order[at]]) >> shift) & (_DIGITS - 1)
            spare[tally[digit]] = order[at]
            tally[digit] += 1
        for at in range(len(room)):
            order[at] = spare[at]
        shift += 8
    return usable


@inner
def _begin_digits(room: Int64, most: int, least: int, shift: int, tally: Int64) -> None:
    """Where the domains with each digit begin, into `tally`."""
    digits = min(_DIGITS, ((most - least) >> shift) + 1)
    tally[:digits] = 0
    for at in range(len(room)):
        tally[((most - room[at]) >> shift) & (_DIGITS - 1)] += 1
    before = 0
    for digit in range(digits):
        before, tally[digit] = before + tally[digit], before


@kernel(INTS, INTS, INT, INT, INT, FLAG)
def fewest(caps: Int64, starts: Int64, first: int, last: int, members: int, counted: bool) -> Int64:
    """How many domains within each of `first` to before `last` above it takes to hold so many members, if they can.

    At least so many, as if all were as roomy as the roomiest, if they are not to be `counted`.
    """
    found = np.empty(last - first, np.int64)
    widest = 0
    for above in range(first, last):
        widest = max(widest, starts[above + 1] - starts[above])
    order, spare, tally = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(_DIGITS, np.int64)
    for above in range(first, last):
        room = caps[starts[above] : starts[above + 1]]
        held = 0
        for at in range(len(room)):
            held = max(held, room[at])
        number = 1 if counted else -(-members // max(held, 1))
        if counted and held < members:
            usable = _roomiest_first(room, False, order, spare, tally)
            while held < members and number < usable:
                held += room[order[number]]
                number += 1
            if held < members:
                number = usable + 1
        found[above - first] = number
    return found


@kernel(INTS, INTS, INT, INT)
def most_even(caps: Int64, starts: Int64, parts: int, difference: int) -> Int64:
    """The most members over domains of each one above whose sizes differ by no more: over `parts`, 0 for any number."""
    found = np.zeros(len(starts) - 1, np.int64)
    widest = 0
    for above in range(len(found)):
        widest = max(widest, starts[above + 1] - starts[above])
    order, spare, tally = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(_DIGITS, np.int64)
    for above in range(len(found)):
        room = caps[starts[above] : starts[above + 1]]
        most = 0
        for at in range(len(room)):
            most = max(most, room[at])
        if most < _DIGITS:
            found[above] = _most_even_of_few_sizes(room, most, parts, difference, tally)
            continue
        roomier = 0
        for at in range(_roomiest_first(room, False, order, spare, tally)):
            size = room[order[at]]
            if at and room[order[at - 1]] > size:
                roomier = at
            if parts in (0, at + 1):
                found[above] = max(found[above], size * (at + 1) + difference * roomier)
    return found


@inner
def _most_even_of_few_sizes(room: Int64, most: int, parts: int, difference: int, tally: Int64) -> int:
    """As `most_even`, by how many domains have each size: nothing is sorted."""
    tally[: most + 1] = 0
    for at in range(len(room)):
        tally[room[at]] += 1
    found, roomier = 0, 0
    for size in range(most, 0, -1):
        number = roomier + tally[size]
        if parts == 0:
            found = max(found, size * number + difference * roomier)
        elif roomier < parts <= number:
            found = size * parts + difference * roomier
        roomier = number
    return found
