"""Costs of divisions, and the cheapest division over several relaxations of the rules."""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.bounds import FIELDS, LEAST, LEVEL, STEP, capacities
from muster.placement.kernels.compilation import CUBE, INT, INTS, TABLE, inner, kernel
from muster.placement.kernels.search import search

_MAX_OMITTED: Final = 64
"""Members left out at most when no combination of sizes allowed by a range or factor adds up to all of them."""
_TERMS: Final = 4


@kernel(INTS, CUBE, INTS, TABLE, TABLE, INT, INT)
def cheapest(
    caps: Int64, relaxations: Int64, starts: Int64, tiers: Int64, of: Int64, wanted: int, minimum: int
) -> tuple[Int64, Int64, int, int, bool]:
    """The cheapest division of as many of `wanted` members as possible, at least `minimum`, given `caps` of the nodes.

    `relaxations` is int64[relaxations, tiers, FIELDS], from the declared rules to the loosest; `of` as in `measure`.
    Returns nodes, ascending, and members on each; their number, 0 if there is no division; an upper bound on that
    number; and whether the division under the declared rules is known to be optimal.
    """
    most_relaxed = len(relaxations) - 1
    loosest_bounds = capacities(caps, relaxations[most_relaxed], starts, tiers, wanted)
    most = min(wanted, loosest_bounds[0])
    nodes, counts, is_optimal = np.empty(0, np.int64), np.empty(0, np.int64), False
    cost = np.empty((len(relaxations[0]), _TERMS), np.int64)
    for members in range(most, max(minimum, most - _MAX_OMITTED) - 1, -1):
        for relaxation in range(len(relaxations)):
            bounds = (
                loosest_bounds
                if relaxation == most_relaxed
                else capacities(caps, relaxations[relaxation], starts, tiers, wanted)
            )
            if bounds[0] < members:
                continue
            other, sizes, shapes, optimal = search(relaxations[relaxation], starts, tiers, bounds, members)
            if relaxation == 0:
                is_optimal = optimal
            if not len(other):
                continue
            if most_relaxed:
                this_cost = _cost(relaxations[0], relaxations[relaxation], shapes, of, other, sizes)
                if len(nodes) and not _is_less(this_cost, cost):
                    continue
                cost = this_cost
            nodes, counts = other, sizes
        if len(nodes):
            return nodes, counts, members, most, is_optimal
    return nodes, counts, 0, most, False


@inner
def _cost(declared: Int64, relaxation: Int64, shapes: Int64, of: Int64, nodes: Int64, counts: Int64) -> Int64:
    """As `cost_of` in solve.level_rules, by the declared rules, in four numbers per rule, int64[rules, 4].

    `shapes` is the cost that the search returned. Only ranges and factors that were relaxed can be missed.
    """
    cost, rule = np.zeros((len(declared), _TERMS), np.int64), np.empty((1, FIELDS - LEVEL), np.int64)
    for at in range(len(declared)):
        cost[at, 2], cost[at, 3] = shapes[at, 0], shapes[at, 1]
        given_up = False
        for field in range(LEAST, STEP + 1):
            given_up |= declared[at, field] != relaxation[at, field]
        if given_up:
            rule[0] = declared[at, LEVEL:]
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
"""Instead of a level: the nodes."""

MEASURES: Final = 8


@kernel(TABLE, TABLE, INTS, INTS)
def measure(declared: Int64, of: Int64, nodes: Int64, counts: Int64) -> Int64:
    """Measures `counts` members on `nodes` by each rule: `declared` is int64[rules, 5] of level, least, most, step,
    parts.

    `of` is int64[levels, nodes of the tree], the domain of each node. Returns int64[rules, 8]: members below and above
    the range, domains that miss the factor, domains used, surplus or missing parts, sum of squared sizes, largest
    difference of sizes within one domain above, and the largest number of parts within one.
    """
    measured = np.zeros((len(declared), MEASURES), np.int64)
    upper = OF_NODES
    for rule in range(len(declared)):
        level, least, most = declared[rule, 0], declared[rule, 1], declared[rule, 2]
        step, parts = declared[rule, 3], declared[rule, 4]
        few, many, odd, used, missed_parts, squares, difference, most_parts = 0, 0, 0, 0, 0, 0, 0, 0
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
                    missed_parts += abs(used - begun - parts)
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
            missed_parts += abs(used - begun - parts)
        measured[rule, 0], measured[rule, 1], measured[rule, 2], measured[rule, 3] = few, many, odd, used
        measured[rule, 4], measured[rule, 5] = missed_parts, squares
        measured[rule, 6], measured[rule, 7] = difference, most_parts
        upper = level
    return measured
