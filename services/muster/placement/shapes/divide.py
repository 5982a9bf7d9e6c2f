"""Divides members over domains: for many domains above at once, each with its own members and its own domains.

Everywhere `caps` is int64[domains], how many more each can take (0, or a size that its rule allows); `starts` is
int64[segments + 1], where the domains of each segment begin; `wants` is int64[segments]. Ties go to the first domain.
"""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.room.nodes import Bool
from muster.placement.shapes.divide_few import FEW, level_few, pack_few
from muster.placement.shapes.rules import Rule, Shape

_NONE: Final = np.iinfo(np.int64).max
_FEW_SIZES: Final = 32
"""Sizes up to which counting the domains that can have each is faster than sorting them."""

Segments = Int64 | int
"""Segments of some domains, for looking up what is known of each: a number if there is but one."""


def divide(rule: Rule, caps: Int64, starts: Int64, wants: Int64) -> Int64 | None:
    """How many go to each domain, int64[domains]; None if that cannot be by this way of dividing.

    Ranges and factors of the rule hold whether they are hard or not.
    """
    step, least = rule.step, rule.least
    if step > 1:
        if (wants % step).any():
            return None
        caps, wants, least = caps // step, wants // step, -(-least // step)
    if len(wants) == 1 and len(caps) <= FEW and least == 1:
        counts = _divide_few(rule, caps.tolist(), int(wants[0]))
    else:
        counts = _divide_many(rule, _Segments(caps, starts, wants), wants, least)
    return counts if counts is None or step == 1 else counts * step


def _divide_few(rule: Rule, caps: list[int], wanted: int) -> Int64 | None:
    if rule.shape is Shape.PACK:
        counts = pack_few(caps, wanted, one=rule.shape_is_hard)
    else:
        partition = rule.shape is Shape.PARTITION
        parts = rule.parts if partition else wanted
        counts = level_few(caps, wanted, parts, _difference(rule), partition=partition)
    return None if counts is None else np.array(counts, np.int64)


def _divide_many(rule: Rule, segments: "_Segments", wants: Int64, least: int) -> Int64 | None:
    if rule.shape is Shape.PACK:
        return segments.pack(least, one=rule.shape_is_hard)
    partition = rule.shape is Shape.PARTITION
    parts = np.full(len(wants), rule.parts) if partition else wants // least
    return segments.level(parts, least, _difference(rule), partition=partition)


def _difference(rule: Rule) -> int | None:
    """By how much sizes may differ, in steps; None: by any number."""
    return int(rule.step == 1) if rule.shape_is_hard else None


class _Segments:
    def __init__(self, caps: Int64, starts: Int64, wants: Int64) -> None:
        self._caps = caps
        self._starts = starts
        self._wants = wants
        self._single = len(wants) == 1
        self._widths: Int64 = starts[1:] - starts[:-1]
        self._segment: Segments = 0 if self._single else np.repeat(np.arange(len(wants)), self._widths)
        self._index: Int64 = np.arange(len(caps))
        self._index_bits = len(caps).bit_length()

    def pack(self, least: int, *, one: bool) -> Int64 | None:
        """Few domains: the tightest that holds all, or the roomiest and the tightest that holds the rest."""
        if least > 1 and ((self._wants > 0) & (self._wants < least)).any():
            return None
        counts: Int64 = np.zeros(len(self._caps), np.int64)
        best = self._tightest(self._caps, self._wants)
        whole = best < _NONE
        counts[self._at(best[whole])] = self._wants[whole]
        if whole.all():
            return counts
        if one:
            return None
        order = self._roomiest_first()
        caps, wanted = self._caps[order], np.where(whole, 0, self._wants)
        full = (self._running(caps) <= wanted[self._segment]) & (caps > 0)
        counts[order[full]] = caps[full]
        rest = np.where(whole, 0, self._wants - self._sums(counts))
        if rest.any():
            usable = np.where(counts == 0, self._caps, 0)
            best = self._tightest(usable, np.where(rest > 0, np.maximum(rest, least), _NONE))
            if (best[rest > 0] == _NONE).any():
                return None
            counts[self._at(best[rest > 0])] = rest[rest > 0]
            if least > 1:
                return self._top_up(counts, least)
        return counts

    def level(self, parts: Int64, least: int, difference: int | None, *, partition: bool) -> Int64 | None:
        """As evenly as room allows over `parts` domains of each segment, or as many as there can be.

        With a `difference`, sizes differ by no more than that, and a `partition` has as many parts as was said.
        Otherwise it has more if so many have too little room.
        """
        wants = self._wants
        order = self._roomiest_first(last_first=True)
        caps, segment = self._caps[order], self._segment
        place = self._index - self._starts[segment]
        usable = self._sums_sorted(caps > 0)
        if difference is not None:
            possible = self._even_over(caps, segment, place, least, difference) & (place < parts[segment])
            even = self._last(possible, place) + 1
            if (even == 0).any() or (partition and (even != parts).any()):
                return None
            parts = even
        else:
            parts = np.minimum(np.minimum(parts, usable), wants // least)
            if partition:
                held = self._running(caps)
                short = self._sums_sorted((held < wants[segment]) & (caps > 0)) + 1
                parts = np.maximum(parts, np.minimum(short, usable))
        chosen = place < parts[segment]
        caps_chosen = np.where(chosen, caps, 0)
        if (self._sums_sorted(caps_chosen) < wants).any() or (parts * least > wants).any():
            return None
        return self._fill(order, caps_chosen, chosen, least)

    def fewest(self) -> Int64:
        """As the function of that name."""
        caps = self._caps[self._roomiest_first()]
        return self._sums_sorted((self._running(caps) < self._wants[self._segment]) & (caps > 0)) + 1

    def most_even(self, parts: int, difference: int) -> Int64:
        """As the function of that name."""
        order = self._roomiest_first(last_first=True)
        caps, segment = self._caps[order], self._segment
        place = self._index - self._starts[segment]
        new = np.append(True, (np.diff(caps) != 0) | (place[1:] == 0))
        roomier = np.maximum.accumulate(np.where(new, self._index, 0)) - self._starts[segment]
        most = caps * (place + 1) + difference * roomier
        if parts:
            most = np.where(place + 1 == parts, most, 0)
        most = np.where(caps > 0, most, 0)
        if self._single:
            best: Int64 = most.max(keepdims=True)
            return best
        return np.maximum.reduceat(most, self._starts[:-1])

    def _fill(self, order: Int64, caps: Int64, chosen: Bool, least: int) -> Int64 | None:
        """`caps`, in the order of room, are 0 where a domain was not `chosen`."""
        wants, segment = self._wants, self._segment
        place = self._index - self._starts[segment]
        # From the first place on at which those before it take no more than the one there has, all are full; those
        # before it share what is left.
        before = self._running(caps) - caps
        if_level = self._sums_sorted(caps)[segment] - before + caps * place
        sharing = self._sums_sorted(chosen & (if_level > wants[segment]))  # int64[segments]
        full = chosen & (place >= sharing[segment])
        each, more = np.divmod(wants - self._sums_sorted(np.where(full, caps, 0)), np.maximum(sharing, 1))
        counts: Int64 = np.zeros(len(self._caps), np.int64)
        counts[order[full]] = caps[full]
        # Any domain with so much room does as well as those that were chosen: the tightest share.
        able = (self._caps[order] >= np.maximum(each + (more > 0), 1)[segment]) & ~full
        turn = self._running(able.astype(np.int64))
        sharers = np.sort(order[able & (turn > (self._sums_sorted(able) - sharing)[segment])])
        of = self._of(sharers)
        turn = np.arange(len(sharers)) - (np.cumsum(sharing) - sharing)[of]
        counts[sharers] = each[of] + (turn < more[of])
        if least > 1 and (counts[counts > 0] < least).any():
            return None
        return counts

    def _even_over(self, caps: Int64, segment: Segments, place: Int64, least: int, difference: int) -> Bool:
        """Whether the members can be divided evenly over the roomiest domains up to here, bool[domains by room]."""
        each, more = np.divmod(self._wants[segment], place + 1)
        roomier = caps[self._starts[segment] + np.maximum(more - 1, 0)]
        even: Bool = (each >= least) & (caps >= each) & ((more == 0) | ((roomier > each) & (difference > 0)))
        return even

    def _last(self, holds: Bool, place: Int64) -> Int64:
        """The last place in each segment at which it holds, -1 if it does at none: int64[segments]."""
        places = np.where(holds, place, -1)
        if self._single:
            last: Int64 = places.max(keepdims=True)
            return last
        return np.maximum.reduceat(places, self._starts[:-1])

    def _top_up(self, counts: Int64, least: int) -> Int64 | None:
        """Domains with too few get more from those of their segment that can spare it, the last first."""
        for index in np.flatnonzero((counts > 0) & (counts < least)).tolist():
            at = int(np.searchsorted(self._starts, index, side="right"))
            for other in range(int(self._starts[at]) - 1, int(self._starts[at - 1]) - 1, -1):
                given = min(least - int(counts[index]), int(counts[other]) - least)
                if other != index and given > 0:
                    counts[other] -= given
                    counts[index] += given
            if counts[index] < least:
                return None
        return counts

    def _tightest(self, caps: Int64, wants: Int64) -> Int64:
        """Key of the tightest domain of each segment that holds so many, _NONE if none does: int64[segments]."""
        keys = np.where(caps >= wants[self._of(self._index)], (caps << self._index_bits) | self._index, _NONE)
        if self._single:
            best: Int64 = np.minimum.reduce(keys, keepdims=True)
            return best
        return np.minimum.reduceat(keys, self._starts[:-1])

    def _at(self, keys: Int64) -> Int64:
        at: Int64 = keys & ((1 << self._index_bits) - 1)
        return at

    def _roomiest_first(self, *, last_first: bool = False) -> Int64:
        """All domains by segment and then by room, most first; of equal ones the first (or last) first."""
        mask = (1 << self._index_bits) - 1
        key = (self._caps << self._index_bits) | (self._index if last_first else self._index ^ mask)
        if not self._single:
            shift = self._index_bits + int(self._caps.max(initial=0)).bit_length()
            segments = len(self._wants)
            if shift + segments.bit_length() > 62:
                tie = -self._index if last_first else self._index
                return np.lexsort((tie, -self._caps, np.asarray(self._segment)))
            key |= (segments - 1 - self._segment) << shift
        key.sort()
        order = self._at(key[::-1])
        return order if last_first else order ^ mask

    def _of(self, index: Int64) -> Segments:
        return self._segment if isinstance(self._segment, int) else self._segment[index]

    def _running(self, values: Int64) -> Int64:
        """Running sums within each segment, of values of all domains in an order that keeps segments together."""
        sums = values.cumsum()
        if self._single:
            return sums
        first = self._starts[:-1]
        before: Int64 = sums[first] - values[first]
        return sums - np.repeat(before, self._widths)

    def _sums(self, values: Int64) -> Int64:
        """Sums by segment, of values by domain."""
        if self._single:
            sums: Int64 = np.add.reduce(values, keepdims=True)
            return sums
        return np.add.reduceat(values, self._starts[:-1])

    def _sums_sorted(self, values: Int64 | Bool) -> Int64:
        """Sums by segment, of values in the order of room, which keeps segments together."""
        if self._single and values.dtype == np.bool_:
            return np.array([np.count_nonzero(values)])
        return self._sums(values.astype(np.int64))


def fewest(caps: Int64, starts: Int64, members: int) -> Int64:
    """How many domains of each segment it takes to hold so many members, if all of them can: int64[segments]."""
    return _Segments(caps, starts, np.full(len(starts) - 1, members)).fewest()


def most_even(caps: Int64, starts: Int64, parts: int, difference: int) -> Int64:
    """The most members over domains of each segment whose sizes differ by no more: over so many, 0 for any number."""
    if int(caps.max(initial=0)) > _FEW_SIZES:
        return _Segments(caps, starts, np.zeros(len(starts) - 1, np.int64)).most_even(parts, difference)
    most: Int64 = np.zeros(len(starts) - 1, np.int64)
    roomier = most
    for size in range(int(caps.max(initial=0)), 0, -1):
        able = np.add.reduceat((caps >= size).astype(np.int64), starts[:-1])
        if parts:
            most = np.where((most == 0) & (able >= parts), parts * size + difference * roomier, most)
        else:
            most = np.maximum(most, able * size + difference * roomier)
        roomier = able
    return most
