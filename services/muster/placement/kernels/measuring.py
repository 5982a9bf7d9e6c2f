"""How far a division over a tree is from what was asked: sums over the domains that it uses."""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.compiled import INTS, TABLE, kernel

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
