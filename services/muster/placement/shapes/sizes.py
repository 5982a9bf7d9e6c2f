"""What a division over a tree is worth: by how much it misses each constraint, from the top of the tree down."""

from collections.abc import Iterator, Sequence

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.room.trees import Tree
from muster.placement.shapes.rules import Rule, Shape

Cost = tuple[int, ...]
"""Smaller is better. Per level from the top: members by which domains miss the range, domains that miss the factor,
and by the shape the domains used, the squares of their sizes, or how many parts are too few or many and the squares.
"""


def holds(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """Everything that is hard is kept by `counts` members on `nodes`, indexes into the tree's rows, rising."""
    return all(_holds(rule, sizes, above) for rule, sizes, above in _levels(rules, tree, nodes, counts))


def may_hold(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """What is hard and broken by `counts` members on `nodes` may be kept once more members have come."""
    for rule, sizes, above in _levels(rules, tree, nodes, counts):
        if rule.range_is_hard and (sizes > rule.most).any():
            return False
        if rule.shape_is_hard and rule.shape is not Shape.SPREAD:
            parts = np.unique(above, return_counts=True)[1]
            if (parts > (1 if rule.shape is Shape.PACK else rule.parts)).any():
                return False
    return True


def cost_of(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> Cost:
    """The cost of `counts` members on `nodes`, indexes into the tree's rows, rising."""
    cost: list[int] = []
    for rule, sizes, above in _levels(rules, tree, nodes, counts):
        cost += _level_cost(rule, sizes, above)
    return tuple(cost)


def _levels(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> Iterator[tuple[Rule, Int64, Int64]]:
    """For each rule that counts, the sizes of the domains used and the domain above each."""
    above = np.zeros(len(nodes), np.int64)
    for rule in rules:
        if rule.counts:
            of = tree.levels[rule.level].of[nodes] if rule.level < len(tree.levels) else nodes
            first = np.flatnonzero(np.diff(of, prepend=-1))
            sizes = np.add.reduceat(counts, first) if len(first) else counts
            yield rule, sizes, above[first]
            above = of


def _holds(rule: Rule, sizes: Int64, above: Int64) -> bool:
    if rule.range_is_hard and ((sizes < rule.least) | (sizes > rule.most)).any():
        return False
    if rule.step_is_hard and (sizes % rule.step != 0).any():
        return False
    if not rule.shape_is_hard or not len(sizes):
        return True
    _, first, parts = np.unique(above, return_index=True, return_counts=True)
    if rule.shape is Shape.PACK:
        return bool((parts == 1).all())
    difference = np.maximum.reduceat(sizes, first) - np.minimum.reduceat(sizes, first)
    return bool((difference <= 1).all() and (rule.shape is Shape.SPREAD or (parts == rule.parts).all()))


def _level_cost(rule: Rule, sizes: Int64, above: Int64) -> list[int]:
    """`above`: the domain above each of the domains used."""
    missed = np.maximum(rule.least - sizes, 0) + np.maximum(sizes - rule.most, 0)
    cost = [int(missed.sum()), int((sizes % rule.step != 0).sum())]
    if rule.shape is Shape.PACK:
        return [*cost, len(sizes)]
    if rule.shape is Shape.PARTITION:
        _, parts = np.unique(above, return_counts=True)
        cost.append(int(np.abs(parts - rule.parts).sum()))
    return [*cost, int((sizes * sizes).sum())]
