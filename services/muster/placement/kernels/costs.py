"""Chooses among the places that several ways lead to: rules as they are asked, and with less of what is soft."""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.bounds import FIELDS, LEAST, LEVEL, STEP, capacities
from muster.placement.kernels.compilation import CUBE, INT, INTS, TABLE, inner, kernel
from muster.placement.kernels.search import search

_FEWER_TRIED: Final = 64
"""Members that are left out at most where sizes that a range or factor allows do not add up to all of them."""
_TERMS: Final = 4


@kernel(INTS, CUBE, INTS, TABLE, TABLE, INT, INT)
def cheapest(
    caps: Int64, ways: Int64, starts: Int64, tiers: Int64, of: Int64, wanted: int, minimum: int
) -> tuple[Int64, Int64, int, int, bool]:
    """The best place of as many of `wanted` members as there is one for, at least `minimum`, by `caps` of the nodes.

    `ways` is int64[ways, tiers, FIELDS]: rules from as they are asked to the loosest; `of` as `measure` has it. Returns
    nodes, rising, and members on each; how many that are, 0 if there is no place; a bound on how many there could be;
    and whether none is known to be better than what the first way leads to.
    """
    loosest = len(ways) - 1
    room = capacities(caps, ways[loosest], starts, tiers, wanted)
    most = min(wanted, room[0])
    nodes, counts, is_optimal = np.empty(0, np.int64), np.empty(0, np.int64), False
    cost = np.empty((len(ways[0]), _TERMS), np.int64)
    for members in range(most, max(minimum, most - _FEWER_TRIED) - 1, -1):
        for way in range(len(ways)):
            able = room if way == loosest else capacities(caps, ways[way], starts, tiers, wanted)
            if able[0] < members:
                continue
            other, sizes, shapes, none_better = search(ways[way], starts, tiers, able, members)
            if way == 0:
                is_optimal = none_better
            if not len(other):
                continue
            if loosest:
                its_cost = _cost(ways[0], ways[way], shapes, of, other, sizes)
                if len(nodes) and not _is_less(its_cost, cost):
                    continue
                cost = its_cost
            nodes, counts = other, sizes
        if len(nodes):
            return nodes, counts, members, most, is_optimal
    return nodes, counts, 0, most, False


@inner
def _cost(asked: Int64, way: Int64, shapes: Int64, of: Int64, nodes: Int64, counts: Int64) -> Int64:
    """As `cost_of` in shapes.sizes, by the rules that were asked for, in four numbers for each, int64[rules, 4].

    `shapes` is what the search says. Only the ranges and factors that the way gave up can be missed.
    """
    cost, rule = np.zeros((len(asked), _TERMS), np.int64), np.empty((1, FIELDS - LEVEL), np.int64)
    for at in range(len(asked)):
        cost[at, 2], cost[at, 3] = shapes[at, 0], shapes[at, 1]
        given_up = False
        for field in range(LEAST, STEP + 1):
            given_up |= asked[at, field] != way[at, field]
        if given_up:
            rule[0] = asked[at, LEVEL:]
            measured = measure(rule, of, nodes, counts)
            cost[at, 0], cost[at, 1] = measured[0, 0] + measured[0, 1], measured[0, 2]
    return cost


@inner
def _is_less(one: Int64, other: Int64) -> bool:
    for rule in range(len(one)):
        for term in range(_TERMS):
            if one[rule, term] != other[rule, term]:
                return bool(one[rule, term] < other[rule, term])
    return False


OF_NODES: Final = -1
"""In place of a level: the nodes."""

MEASURES: Final = 8


@kernel(TABLE, TABLE, INTS, INTS)
def measure(asked: Int64, of: Int64, nodes: Int64, counts: Int64) -> Int64:
    """`counts` members on `nodes` against each rule: `asked` is int64[rules, 5] of level, least, most, step and parts.

    `of` is int64[levels, nodes of the tree], the domain that each is in. Returns int64[rules, 8]: members too few and
    too many by the range, domains that miss the factor, domains used, parts too few or many, squares, by how much sizes
    within one domain above differ, and parts of the one that has most.
    """
    measured = np.zeros((len(asked), MEASURES), np.int64)
    upper = OF_NODES
    for rule in range(len(asked)):
        level, least, most = asked[rule, 0], asked[rule, 1], asked[rule, 2]
        step, parts = asked[rule, 3], asked[rule, 4]
        few, many, odd, used, off, squares, difference, most_parts = 0, 0, 0, 0, 0, 0, 0, 0
        above, begun, smallest, largest = -1, 0, 0, 0
        at = 0
        while at < len(nodes):
            node = nodes[at]
            size, domain = 0, of[level, node] if level >= 0 else node
            while at < len(nodes) and (of[level, nodes[at]] if level >= 0 else nodes[at]) == domain:
                size += counts[at]
                at += 1
            now = of[upper, node] if upper >= 0 else 0
            if now != above:
                if used:
                    off += abs(used - begun - parts)
                above, begun, smallest, largest = now, used, size, size
            few += max(least - size, 0)
            many += max(size - most, 0)
            odd += size % step != 0
            squares += size * size
            used += 1
            smallest, largest = min(smallest, size), max(largest, size)
            difference = max(difference, largest - smallest)
            most_parts = max(most_parts, used - begun)
        if used:
            off += abs(used - begun - parts)
        measured[rule, 0], measured[rule, 1], measured[rule, 2], measured[rule, 3] = few, many, odd, used
        measured[rule, 4], measured[rule, 5] = off, squares
        measured[rule, 6], measured[rule, 7] = difference, most_parts
        upper = level
    return measured
