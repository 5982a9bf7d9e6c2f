"""What a division over a tree is worth: by how much it misses each constraint, from the top of the tree down."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.measuring import OF_NODES, measure
from muster.placement.room.trees import Tree
from muster.placement.shapes.rules import Rule, Shape

Cost = tuple[int, ...]
"""Smaller is better. Per level from the top: members by which domains miss the range, domains that miss the factor,
and by the shape the domains used, the squares of their sizes, or how many parts are too few or many and the squares.
"""


def holds(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """Everything that is hard is kept by `counts` members on `nodes`, indexes into the tree's rows, rising."""
    return all(_holds(rule, *measured) for rule, measured in _measured(rules, tree, nodes, counts))


def may_hold(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """What is hard and broken by `counts` members on `nodes` may be kept once more members have come."""
    return not any(_is_lost(rule, *measured) for rule, measured in _measured(rules, tree, nodes, counts))


def cost_of(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> Cost:
    """The cost of `counts` members on `nodes`, indexes into the tree's rows, rising."""
    cost: list[int] = []
    for rule, (few, many, odd, used, off, squares, _, _) in _measured(rules, tree, nodes, counts):
        cost += few + many, odd
        if rule.shape is Shape.PACK:
            cost.append(used)
        elif rule.shape is Shape.PARTITION:
            cost += off, squares
        else:
            cost.append(squares)
    return tuple(cost)


def _measured(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> Iterator[tuple[Rule, list[int]]]:
    """What `measure` says of each rule that counts."""
    counting, asked = _asked(tuple(rules), len(tree.levels))
    found = measure(asked, tree.of, np.ascontiguousarray(nodes), np.ascontiguousarray(counts))
    return zip(counting, found.tolist(), strict=True)


@lru_cache(maxsize=4096)
def _asked(rules: tuple[Rule, ...], levels: int) -> tuple[tuple[Rule, ...], Int64]:
    """The rules that count, as they are and as `measure` takes them."""
    counting = tuple(rule for rule in rules if rule.counts)
    asked = np.zeros((len(counting), 5), np.int64)
    for at, rule in enumerate(counting):
        level = rule.level if rule.level < levels else OF_NODES
        asked[at] = level, rule.least, rule.most, rule.step, rule.parts
    return counting, asked


def _holds(
    rule: Rule, few: int, many: int, odd: int, used: int, off: int, squares: int, difference: int, most_parts: int
) -> bool:
    if (rule.range_is_hard and few + many) or (rule.step_is_hard and odd):
        return False
    if not rule.shape_is_hard:
        return True
    if rule.shape is Shape.PACK:
        return most_parts <= 1
    return difference <= 1 and (rule.shape is Shape.SPREAD or not off)


def _is_lost(
    rule: Rule, few: int, many: int, odd: int, used: int, off: int, squares: int, difference: int, most_parts: int
) -> bool:
    if rule.range_is_hard and many:
        return True
    limited = rule.shape_is_hard and rule.shape is not Shape.SPREAD
    return limited and most_parts > (1 if rule.shape is Shape.PACK else rule.parts)
