"""Costs of placements under soft rules, top level first, and their encoding in integers for the dynamic programme."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.costs import OF_NODES, measure
from muster.placement.solve.instance import ConstrainedGang, Solution, TreeInstance
from muster.placement.solve.level_rules import UNBOUNDED, Rule, Shape
from muster.placement.state.trees import Tree

Cost = tuple[int, ...]
"""Smaller is better. Per level, top first: members above or below the range, domains that miss the factor, and the
shape: domains used, sum of squared sizes, or surplus or missing parts and the sum of squared sizes.
"""


def holds(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """`counts` members on `nodes` satisfy all hard rules; `nodes` are ascending indexes into the tree's rows."""
    return all(_holds(rule, *measured) for rule, measured in _measured(rules, tree, nodes, counts))


def may_hold(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """Hard rules that `counts` members on `nodes` violate can still be satisfied by placing more members."""
    return not any(_is_unsatisfiable(rule, *measured) for rule, measured in _measured(rules, tree, nodes, counts))


def cost_of(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> Cost:
    """The cost of `counts` members on `nodes`, ascending indexes into the tree's rows."""
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
    """The result of `measure` for each declared rule."""
    counting, declared = _asked(tuple(rules), len(tree.levels))
    found = measure(declared, tree.of, np.ascontiguousarray(nodes), np.ascontiguousarray(counts))
    return zip(counting, found.tolist(), strict=True)


@lru_cache(maxsize=4096)
def _asked(rules: tuple[Rule, ...], levels: int) -> tuple[tuple[Rule, ...], Int64]:
    """The declared rules, as they are and in the format of `measure`."""
    counting = tuple(rule for rule in rules if rule.counts)
    declared = np.zeros((len(counting), 5), np.int64)
    for at, rule in enumerate(counting):
        level = rule.level if rule.level < levels else OF_NODES
        declared[at] = level, rule.least, rule.most, rule.step, rule.parts
    return counting, declared


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


def _is_unsatisfiable(
    rule: Rule, few: int, many: int, odd: int, used: int, off: int, squares: int, difference: int, most_parts: int
) -> bool:
    if rule.range_is_hard and many:
        return True
    limited = rule.shape_is_hard and rule.shape is not Shape.SPREAD
    return limited and most_parts > (1 if rule.shape is Shape.PACK else rule.parts)


def solution_cost(instance: TreeInstance, solution: Solution) -> Cost:
    """Smaller is better: members left out, members outside of the tree, then the cost of each gang's rules."""
    added = _added(instance, solution)
    cost = [sum(part.wanted for part in instance.parts) - solution.total, _outside(instance, added)]
    for one, sizes in zip(instance.gangs, added + instance.placed, strict=True):
        used = np.flatnonzero(sizes)
        cost += cost_of(one.rules, instance.tree, used, sizes[used])
    return tuple(cost)


def is_optimal(instance: TreeInstance, solution: Solution) -> bool:
    """Lower bounds prove that no solution is better; False is inconclusive."""
    added = _added(instance, solution)
    if solution.total < sum(part.wanted for part in instance.parts) or _outside(instance, added):
        return False
    return all(reaches_bounds(instance, gang, sizes) for gang, sizes in enumerate(added + instance.placed))


def reaches_bounds(instance: TreeInstance, gang: int, sizes: Int64) -> bool:
    """Every level reaches its lower bound. Top level first: the bound of a level depends on the domains used above."""
    usable = np.flatnonzero(instance.fits.any(axis=0) | (instance.placed[gang] > 0))
    used = np.flatnonzero(sizes)
    if not len(used):
        return True
    above = np.zeros(len(sizes), np.int64)
    for rule, of in _levels(instance, instance.gangs[gang]):
        distinct = usable[np.flatnonzero(np.diff(of[usable], prepend=-1))]
        most_within = int(np.bincount(above[distinct]).max(initial=0))
        first = np.flatnonzero(np.diff(of[used], prepend=-1))
        within = np.unique(above[used[first]], return_counts=True)[1]
        if not _reaches_bound(rule, np.add.reduceat(sizes[used], first), within, most_within):
            return False
        above = of
    return True


def _reaches_bound(rule: Rule, sizes: Int64, within: Int64, most_within: int) -> bool:
    """`within`: domains used within each used domain above; `most_within`: the largest number usable there."""
    if ((sizes < rule.least) | (sizes > rule.most) | (sizes % rule.step != 0)).any():
        return False
    if rule.shape is Shape.PACK:
        return bool(np.all(within == 1))
    even, members = int(sizes.max()) - int(sizes.min()) <= 1, int(sizes.sum())
    if rule.shape is Shape.SPREAD:
        return even and len(sizes) == min(members, len(within) * most_within)
    return even and (len(sizes) == min(members, rule.parts) if len(within) == 1 else bool((within == rule.parts).all()))


def _levels(instance: TreeInstance, one: ConstrainedGang) -> Iterator[tuple[Rule, Int64]]:
    """Declared rules with the domain of each tree node."""
    levels = instance.tree.levels
    for rule in one.rules:
        if rule.counts:
            yield rule, levels[rule.level].of if rule.level < len(levels) else np.arange(len(instance.tree.rows))


def _outside(instance: TreeInstance, added: Int64) -> int:
    """New members of constrained gangs outside of the tree."""
    constrained = [one.is_constrained for one in instance.gangs]
    return int(added[constrained, instance.tree.inside :].sum())


def _added(instance: TreeInstance, solution: Solution) -> Int64:
    """Members of each gang that the solution places on each tree node: int64[gangs, nodes]."""
    added = np.zeros_like(instance.placed)
    for index, (rows, counts) in solution.seats:
        np.add.at(added[instance.parts[index].gang], instance.tree.position[rows], counts)
    return added


IMPOSSIBLE: Final = 2**61
"""The cost of infeasible table cells; the sum of two still fits."""
_BITS: Final = 60
_FIT_BITS: Final = 6
"""Bits of the term for free capacity of domains."""


class Term(IntEnum):
    """Terms of the cost, in the order of their weight on one level."""

    RANGE = 0
    FACTOR = 1
    PARTS = 2
    SHAPE = 3
    PENALTIES = 4
    FIT = 5


_Key = tuple[int, int, Term]
"""Gang, level and term."""
_PENALTIES: Final = (-1, -1, Term.PENALTIES)
MAX_PENALTY: Final = 15
"""Largest penalty of a member for its node, from 0."""


@dataclass(frozen=True)
class GangShares:
    """One gang: its largest number of members, including those placed earlier, and its rules, top level first."""

    most: int
    rules: Sequence[Rule]


class CostEncoding:
    """Packs the terms of a cost into one integer, the weightiest in the highest bits; if bits run out, the least are
    dropped.

    `unfinished`: more members will follow, so hard rules only exclude what those could not repair.
    """

    def __init__(self, gangs: Sequence[GangShares], *, unfinished: bool = False) -> None:
        self._gangs = gangs
        self._unfinished = unfinished
        self._shift: dict[_Key, int] = {}
        members = sum(gang.most for gang in gangs)
        left = _BITS - members.bit_length()
        self.outside = left
        """Shift of the number of members outside of trees."""
        self.penalties: int | None = None
        """Shift of the node penalties of members; None if they were dropped."""
        for key, bound in self._terms():
            bits = bound.bit_length()
            if bits > left:
                continue
            left -= bits
            self._shift[key] = left
        self.penalties = self._shift.get(_PENALTIES)
        self.ties = left if self.penalties is None else self.penalties + (members * MAX_PENALTY).bit_length()
        """Number of low bits that hold undeclared terms."""

    def of_sizes(self, gang: int, rule: Rule) -> Int64:
        """The cost of a domain by its number of members: int64[most + 1]."""
        sizes = np.arange(self._gangs[gang].most + 1)
        missed = np.maximum(rule.least - sizes, 0) + np.maximum(sizes - rule.most, 0)
        uneven = (sizes % rule.step != 0).astype(np.int64)
        costs: Int64 = self._shifted(gang, rule, Term.RANGE, missed) + self._shifted(gang, rule, Term.FACTOR, uneven)
        shape = np.ones_like(sizes) if rule.shape is Shape.PACK else sizes * sizes
        costs += self._shifted(gang, rule, Term.SHAPE, shape)
        if rule.range_is_hard:
            costs[sizes > rule.most if self._unfinished else missed > 0] = IMPOSSIBLE
        if rule.step_is_hard and not self._unfinished:
            costs[uneven > 0] = IMPOSSIBLE
        costs[0] = 0
        return costs

    def of_parts(self, gang: int, rule: Rule, most: int) -> Int64:
        """The cost of the number of domains used within one domain above: int64[most + 1]."""
        parts = np.arange(most + 1)
        if rule.shape is not Shape.PARTITION:
            return np.zeros(most + 1, np.int64)
        costs = self._shifted(gang, rule, Term.PARTS, np.abs(parts - rule.parts))
        if rule.shape_is_hard:
            costs[parts > rule.parts if self._unfinished else parts != rule.parts] = IMPOSSIBLE
        costs[0] = 0
        return costs

    def of_fit(self, gang: int, rule: Rule, size: Int64) -> Int64:
        """The cost of using each domain, increasing with its capacity, `size`: int64[domains]."""
        if rule.shape is Shape.SPREAD or not len(size):
            return np.zeros(len(size), np.int64)
        _, ranks = np.unique(size, return_inverse=True)
        return self._shifted(gang, rule, Term.FIT, (ranks.astype(np.int64) << _FIT_BITS) // (int(ranks.max()) + 1))

    def _shifted(self, gang: int, rule: Rule, term: Term, counts: Int64) -> Int64:
        shift = self._shift.get((gang, rule.level, term))
        return np.zeros_like(counts) if shift is None else counts << shift

    def _terms(self) -> list[tuple[_Key, int]]:
        """Keys and upper bounds of terms by weight: declared rules, node penalties, best fit, undeclared rules."""
        declared: list[tuple[_Key, int]] = []
        fit: list[tuple[_Key, int]] = []
        undeclared: list[tuple[_Key, int]] = []
        for index, gang in enumerate(self._gangs):
            most = gang.most
            for rule in gang.rules:
                if rule.has_range and not rule.range_is_hard:
                    short = min(rule.least, UNBOUNDED) - 1
                    declared.append(((index, rule.level, Term.RANGE), most * max(short, 1)))
                if rule.has_step and not rule.step_is_hard:
                    declared.append(((index, rule.level, Term.FACTOR), most))
                if rule.shape is Shape.PARTITION and not rule.shape_is_hard:
                    declared.append(((index, rule.level, Term.PARTS), most * max(rule.parts, 1)))
                shape = most if rule.shape is Shape.PACK else most * most
                (declared if rule.counts else undeclared).append(((index, rule.level, Term.SHAPE), shape))
                if rule.shape is not Shape.SPREAD:
                    (fit if rule.counts else undeclared).append(((index, rule.level, Term.FIT), most << _FIT_BITS))
        members = sum(gang.most for gang in self._gangs)
        return [*declared, (_PENALTIES, members * MAX_PENALTY), *fit, *undeclared]
