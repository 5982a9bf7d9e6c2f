"""Searches for the cheapest division of equal members, level by level from the top of a tree.

All members go to one domain, the most promising first, and then to the next level within it. If no domain is to take
all, or none can, they are divided over several domains, and within each of those over several again.

The cost of a division is two numbers per tier, where upper tiers outweigh all below: the domains used where a tier is
packed, else surplus or missing parts and the sum of squared sizes. Ranges and factors cost nothing, since all of them
hold. Bounds on costs are single numbers, shifted to at most 62 bits.
"""

from typing import Final, NamedTuple

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.bounds import (
    COUNTS,
    HARD,
    LEAST,
    PARTS,
    SHAPE,
    STEP,
    even_bounds,
    most_promising,
    packed_bounds,
    shifted,
    tightest,
)
from muster.placement.kernels.compilation import INT, INTS, TABLE, inner, kernel
from muster.placement.kernels.divide import IMPOSSIBLE, PACK, PARTITION, divide, fewest

_MAX_TRIED: Final = 64
_TRIED_BY_NODES: Final = 2_000
"""Domains tried besides the tightest of each level, the most promising first; fewer in trees with many nodes. In trees
of thousands of nodes, only the domain is tried that is most promising on the next level.
"""
_MAX_COUNTED: Final = 20_000
"""Domains up to which the number of domains needed is counted, which requires sorting."""
_BOUND_BITS: Final = 62


_FIRST: Final = 0
_LAST: Final = 1
_TRIED: Final = 2
_FITTING: Final = 3
_FOUND: Final = 4
_NEXT: Final = 5
_DIVISION: Final = 6
_WIDTH: Final = 7
_BELOW: Final = 8
_BOUNDED: Final = 9
_LARGEST: Final = 10
_FIELDS: Final = 11
"""State of each tier. Of the current search: the domains from FIRST to before LAST, of which FITTING hold all members
and TRIED is entered first; FOUND: a division was found in TRIED or another one; NEXT: others entered, -1 before any;
DIVISION: the index of the division. WIDTH: bits of the tier's cost, and BELOW: of all tiers below. BOUNDED: the
bounds of its domains are known. LARGEST: the capacity of its largest domain, -1 until computed.
"""


class _Search(NamedTuple):
    """The data of one search.

    `divisions` are int64[tiers + 1, 2, most nodes of one + 1]: nodes and members on each; `costs` their costs,
    int64[tiers + 1, tiers, 2], and `used` their numbers of nodes. `bounds` are of what is below each domain, without
    the `dropped` lowest bits of costs; `state` is described above, int64[tiers + 1, fields].
    """

    rules: Int64
    starts: Int64
    tiers: Int64
    caps: Int64
    members: int
    bits: int
    dropped: int
    divisions: Int64
    used: Int64
    costs: Int64
    bounds: Int64
    state: Int64


@kernel(TABLE, INTS, TABLE, INTS, INT)
def search(rules: Int64, starts: Int64, tiers: Int64, caps: Int64, members: int) -> tuple[Int64, Int64, Int64, bool]:
    """Nodes, ascending, and members on each, none if no division was found; its cost, int64[tiers, 2]; and whether it
    is known to be optimal.

    `rules` has one row per tier; `starts`, `tiers` and `caps` as in `capacities`.
    """
    number, nodes = len(rules), len(caps) - tiers[-1, 0]
    bits = 0
    while members >> bits:
        bits += 1
    state = np.zeros((number + 1, _FIELDS), np.int64)
    for tier in range(number, -1, -1):
        state[tier, _DIVISION], state[tier, _LARGEST] = tier, -1
        if tier < number and rules[tier, COUNTS]:
            shape = rules[tier, SHAPE]
            state[tier, _WIDTH] = bits + 1 if shape == PACK else 3 * bits + 2 if shape == PARTITION else 2 * bits + 1
        if tier:
            state[tier - 1, _BELOW] = state[tier, _WIDTH] + state[tier, _BELOW]
    search = _Search(
        rules,
        starts,
        tiers,
        caps,
        members,
        bits,
        max(0, state[0, _WIDTH] + state[0, _BELOW] - _BOUND_BITS),
        np.empty((number + 1, 2, max(1, min(members, nodes)) + 1), np.int64),
        np.zeros(number + 1, np.int64),
        np.zeros((number + 1, number, 2), np.int64),
        np.empty(tiers[-1, 0], np.int64),
        state,
    )
    if not _descend(search, max(1, min(_MAX_TRIED, _TRIED_BY_NODES // max(1, nodes)))):
        return np.empty(0, np.int64), np.empty(0, np.int64), search.costs[0], False
    at = state[0, _DIVISION]
    division, used = search.divisions[at], search.used[at]
    for each in range(used):
        division[0, each] -= tiers[-1, 0]
    return division[0][:used], division[1][:used], search.costs[at], _is_least(search, at, 0, starts[1] - starts[0])


@inner
def _descend(search: _Search, tries: int) -> bool:
    """All members, from the first tier down; `tries` domains are entered besides the first of each tier."""
    state, starts, last = search.state, search.starts, len(search.rules) - 1
    others, exactly = np.empty((last + 1, tries + 1), np.int64), tries > 1
    tier, deeper, found = 0, True, False
    state[0, _FIRST], state[0, _LAST] = starts[0], starts[1]
    while True:
        if deeper:
            if not _choose(search, tier, exactly):
                found, deeper = _divide_over_several(search, tier), False
            elif tier == last:
                _take_one(search, tier)
                found, deeper = True, False
            domain = state[tier, _TRIED]
        else:
            # The tier below was searched.
            domain = -1
            if found and (not state[tier, _FOUND] or _costs_less(search, tier)):
                state[tier, _FOUND] = 1
                state[tier, _DIVISION], state[tier + 1, _DIVISION] = state[tier + 1, _DIVISION], state[tier, _DIVISION]
            if state[tier, _NEXT] < 0 and _others_may_be_better(search, tier, exactly):
                _list_others(search, tier, tries, others)
                state[tier, _NEXT] = 0
            if state[tier, _NEXT] >= 0:
                domain, tries = _next_other(search, tier, tries, others)
            deeper = domain >= 0
            if not deeper:
                found = bool(state[tier, _FOUND])
                if found:
                    _count_one(search, tier)
                elif not search.rules[tier, HARD]:
                    found = _divide_over_several(search, tier)
        if deeper:
            tier += 1
            state[tier, _FIRST], state[tier, _LAST] = starts[domain], starts[domain + 1]
        elif tier:
            tier -= 1
        else:
            return found


@inner
def _choose(search: _Search, tier: int, exactly: bool) -> bool:
    """Select the domain to enter first, if all members may be in one and any domain holds them."""
    state, rule, members = search.state, search.rules[tier], search.members
    if rule[SHAPE] != PACK or members < rule[LEAST] or members % rule[STEP]:
        return False
    first, last = state[tier, _FIRST], state[tier, _LAST]
    at, fitting = tightest(search.caps, first, last, members)
    if fitting > 1 and not exactly and tier + 1 < len(search.rules):
        at = _by_next_tier(search, tier, first, last)
    state[tier, _TRIED], state[tier, _FITTING], state[tier, _FOUND], state[tier, _NEXT] = at, fitting, 0, -1
    return bool(fitting > 0)


@inner
def _take_one(search: _Search, tier: int) -> None:
    """A node that holds all members."""
    division = search.state[tier, _DIVISION]
    search.divisions[division, 0, 0], search.divisions[division, 1, 0] = search.state[tier, _TRIED], search.members
    search.used[division] = 1
    _count_one(search, tier)


@inner
def _count_one(search: _Search, tier: int) -> None:
    """One domain of this tier is used."""
    division = search.state[tier, _DIVISION]
    search.costs[division, tier, 0], search.costs[division, tier, 1] = search.rules[tier, COUNTS], 0


@inner
def _others_may_be_better(search: _Search, tier: int, exactly: bool) -> bool:
    """Other domains hold all members and may be better than the division found."""
    if search.state[tier, _FITTING] < 2:
        return False
    return not search.state[tier, _FOUND] or (exactly and not _is_least_below(search, tier))


@inner
def _list_others(search: _Search, tier: int, tries: int, others: Int64) -> None:
    """Domains that may be better than the one tried, into `others` of this tier; -1 after the last."""
    _compute_bounds(search, tier)
    first, last = search.state[tier, _FIRST], search.state[tier, _LAST]
    found = most_promising(search.bounds[first:last], search.caps, first, last, search.members, tries + 1)
    others[tier] = -1
    for at in range(len(found)):
        others[tier, at] = found[at]


@inner
def _next_other(search: _Search, tier: int, tries: int, others: Int64) -> tuple[int, int]:
    """The next domain that may be better, -1 if there is none; and the number of tries left then."""
    state = search.state
    while tries and state[tier, _NEXT] < others.shape[1]:
        other = others[tier, state[tier, _NEXT]]
        if other < 0 or (state[tier, _FOUND] and search.bounds[other] >= _dropped_cost(search, tier)):
            break
        state[tier, _NEXT] += 1
        if other != state[tier, _TRIED]:
            return other, tries - 1
    return -1, tries


@inner
def _by_next_tier(search: _Search, tier: int, first: int, last: int) -> int:
    """Of the domains that hold all members, the one with the least lower bound on the next tier alone."""
    if search.rules[tier + 1, SHAPE] == PACK:
        terms = _fewest(search, first, last)
    else:
        terms = np.empty(last - first, np.int64)
        _bound(search, tier, first, last, terms)
    return int(most_promising(terms, search.caps, first, last, search.members, 1)[0])


@inner
def _fewest(search: _Search, first: int, last: int) -> Int64:
    """Number of domains of the next tier needed within each of domains `first` to before `last`."""
    starts = search.starts
    return fewest(search.caps, starts, first, last, search.members, starts[last] - starts[first] <= _MAX_COUNTED)


@inner
def _divide_over_several(search: _Search, tier: int) -> bool:
    """Divide over several domains, and within each over several below; no alternatives are tried."""
    here, members = search.state[tier, _DIVISION], search.members
    above, sizes = np.zeros(1, np.int64), np.full(1, members)
    starts = np.array([search.state[tier, _FIRST], search.state[tier, _LAST]])
    for below in range(tier, len(search.rules)):
        rule = search.rules[below]
        domains, counts = search.divisions[here, 0], search.divisions[here, 1]
        if below + 1 < len(search.rules):
            longest = min(members, search.tiers[below + 1, 0] - search.tiers[below, 0]) + 1
            domains, counts = np.empty(longest, np.int64), np.empty(longest, np.int64)
        used, squares, missed_parts = divide(
            rule[SHAPE],
            rule[HARD] != 0,
            rule[PARTS],
            rule[LEAST],
            rule[STEP],
            search.caps,
            starts,
            above,
            sizes,
            domains,
            counts,
        )
        if squares == IMPOSSIBLE:
            return False
        cost = search.costs[here, below]
        cost[0], cost[1] = 0, 0
        if rule[COUNTS] and rule[SHAPE] == PACK:
            cost[0] = used
        elif rule[COUNTS]:
            cost[0], cost[1] = missed_parts if rule[SHAPE] == PARTITION else 0, squares
        above, sizes, starts = domains[:used], counts[:used], search.starts
        search.used[here] = used
    return True


@inner
def _costs_less(search: _Search, tier: int) -> bool:
    """The division found one tier below costs less there than that of this tier."""
    one, other = search.state[tier + 1, _DIVISION], search.state[tier, _DIVISION]
    for below in range(tier + 1, len(search.rules)):
        for term in range(2):
            if search.costs[one, below, term] != search.costs[other, below, term]:
                return bool(search.costs[one, below, term] < search.costs[other, below, term])
    return False


@inner
def _dropped_cost(search: _Search, tier: int) -> int:
    """The cost of a tier's division below the tier, in the form of a bound."""
    cost, division = 0, search.state[tier, _DIVISION]
    for below in range(tier + 1, len(search.rules)):
        domains, squares = search.costs[division, below, 0], search.costs[division, below, 1]
        if search.rules[below, SHAPE] != PACK:
            domains <<= 2 * search.bits + 1
        cost += shifted(domains + squares, search.state[below, _BELOW] - search.dropped)
    return cost


@inner
def _is_least_below(search: _Search, tier: int) -> bool:
    return _is_least(search, search.state[tier, _DIVISION], tier + 1, search.tiers[tier, 1])


@inner
def _is_least(search: _Search, division: int, tier: int, domains: int) -> bool:
    """No division costs less on a tier and below, within one domain above that has `domains` domains."""
    members, used, known = search.members, 1, True
    for below in range(tier, len(search.rules)):
        rule = search.rules[below]
        least, squares = 0, 0
        if known and rule[SHAPE] == PACK:
            used = max(used, -(-members // max(1, _largest_capacity(search, below))))
            least = used
            domains = used * search.tiers[below, 1]
        elif known:
            known = False
            parts = min(members // rule[LEAST], domains)
            if rule[SHAPE] == PARTITION:
                parts = min(parts, rule[PARTS])
                least = rule[PARTS] - parts
            parts = max(parts, 1)
            each, more = members // parts, members % parts
            squares = parts * each * each + more * (2 * each + 1)
        if not rule[COUNTS]:
            least, squares = 0, 0
        if search.costs[division, below, 0] != least:
            return bool(search.costs[division, below, 0] < least)
        if search.costs[division, below, 1] != squares:
            return bool(search.costs[division, below, 1] < squares)
    return True


@inner
def _largest_capacity(search: _Search, tier: int) -> int:
    """The capacity of the largest domain of a tier."""
    if search.state[tier, _LARGEST] < 0:
        most = 0
        last = search.tiers[tier + 1, 0] if tier + 1 < len(search.rules) else len(search.caps)
        for at in range(search.tiers[tier, 0], last):
            most = max(most, search.caps[at])
        search.state[tier, _LARGEST] = most
    return int(search.state[tier, _LARGEST])


@inner
def _compute_bounds(search: _Search, tier: int) -> None:
    """Lower bounds on the cost of all members below each domain of a tier, shifted."""
    deepest, last = tier, len(search.rules) - 1
    while deepest + 1 < last and search.rules[deepest + 1, SHAPE] == PACK and not search.state[deepest, _BOUNDED]:
        deepest += 1
    for each in range(deepest, tier - 1, -1):
        if not search.state[each, _BOUNDED]:
            first, last = search.tiers[each, 0], search.tiers[each + 1, 0]
            _bound(search, each, first, last, search.bounds[first:last])
            search.state[each, _BOUNDED] = 1


@inner
def _bound(search: _Search, tier: int, first: int, last: int, bounds: Int64) -> None:
    """Of domains `first` to before `last`: into `bounds`, int64[last - first]."""
    below, members = tier + 1, search.members
    rule, width, shift = search.rules[below], search.state[below, _WIDTH], search.state[below, _BELOW]
    if not width or shift + width <= search.dropped:
        bounds[:] = 0
        return
    by = shift - search.dropped
    if rule[SHAPE] == PACK:
        further = search.bounds[:0] if below + 1 == len(search.rules) else search.bounds
        several = _fewest(search, first, last)
        one = shifted(1, by)
        packed_bounds(search.caps, search.starts, first, last, members, further, one, several, by, bounds)
    else:
        parts = rule[PARTS] if rule[SHAPE] == PARTITION else 0
        even_bounds(
            search.caps, search.starts, first, last, members, rule[LEAST], parts, 2 * search.bits + 1, by, bounds
        )
