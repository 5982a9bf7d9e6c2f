"""What a division over a tree is worth: by how much it misses each constraint, from the top of the tree down."""

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


def solution_cost(instance: TreeInstance, solution: Solution) -> Cost:
    """Smaller is better: members left out, members outside of the tree, then what each gang's constraints miss."""
    added = _added(instance, solution)
    cost = [sum(part.wanted for part in instance.parts) - solution.total, _outside(instance, added)]
    for one, sizes in zip(instance.asked, added + instance.placed, strict=True):
        used = np.flatnonzero(sizes)
        cost += cost_of(one.rules, instance.tree, used, sizes[used])
    return tuple(cost)


def is_best(instance: TreeInstance, solution: Solution) -> bool:
    """No place can be better, by bounds that are often reached; if not, there may be a better one or not."""
    added = _added(instance, solution)
    if solution.total < sum(part.wanted for part in instance.parts) or _outside(instance, added):
        return False
    return all(reaches_bounds(instance, gang, sizes) for gang, sizes in enumerate(added + instance.placed))


def reaches_bounds(instance: TreeInstance, gang: int, sizes: Int64) -> bool:
    """From the top down, as long as each level's bound is reached: how many domains are used above is known then."""
    usable = np.flatnonzero(instance.fits.any(axis=0) | (instance.placed[gang] > 0))
    used = np.flatnonzero(sizes)
    if not len(used):
        return True
    above = np.zeros(len(sizes), np.int64)
    for rule, of in _levels(instance, instance.asked[gang]):
        distinct = usable[np.flatnonzero(np.diff(of[usable], prepend=-1))]
        most_within = int(np.bincount(above[distinct]).max(initial=0))
        first = np.flatnonzero(np.diff(of[used], prepend=-1))
        within = np.unique(above[used[first]], return_counts=True)[1]
        if not _reaches_bound(rule, np.add.reduceat(sizes[used], first), within, most_within):
            return False
        above = of
    return True


def _reaches_bound(rule: Rule, sizes: Int64, within: Int64, most_within: int) -> bool:
    """`within`: domains used within each one used above; `most_within`: how many could be used there at most."""
    if ((sizes < rule.least) | (sizes > rule.most) | (sizes % rule.step != 0)).any():
        return False
    if rule.shape is Shape.PACK:
        return bool(np.all(within == 1))
    even, members = int(sizes.max()) - int(sizes.min()) <= 1, int(sizes.sum())
    if rule.shape is Shape.SPREAD:
        return even and len(sizes) == min(members, len(within) * most_within)
    return even and (len(sizes) == min(members, rule.parts) if len(within) == 1 else bool((within == rule.parts).all()))


def _levels(instance: TreeInstance, one: ConstrainedGang) -> Iterator[tuple[Rule, Int64]]:
    """Rules that count, and the domain of each place."""
    levels = instance.tree.levels
    for rule in one.rules:
        if rule.counts:
            yield rule, levels[rule.level].of if rule.level < len(levels) else np.arange(len(instance.tree.rows))


def _outside(instance: TreeInstance, added: Int64) -> int:
    """New members outside of the tree, of gangs that ask something of it."""
    asking = [one.asks for one in instance.asked]
    return int(added[asking, instance.tree.inside :].sum())


def _added(instance: TreeInstance, solution: Solution) -> Int64:
    """Members of each gang that the attempt has on each place: int64[gangs, places]."""
    added = np.zeros_like(instance.placed)
    for index, (rows, counts) in solution.seats:
        np.add.at(added[instance.parts[index].gang], instance.tree.place[rows], counts)
    return added


IMPOSSIBLE: Final = 2**61
"""The price of what cannot be, or must not; two of them can still be added."""
_BITS: Final = 60
_FITS_BITS: Final = 6
"""Domains are told apart by how much room they have, in so many bits."""


class Term(IntEnum):
    """What is counted, in the order of its worth on one level."""

    RANGE = 0
    FACTOR = 1
    PARTS = 2
    SHAPE = 3
    WISHES = 4
    FIT = 5


_Key = tuple[int, int, Term]
"""Gang, level and term."""
_WISHES: Final = (-1, -1, Term.WISHES)
MAX_PENALTY: Final = 15
"""Of a member for its node, from 0."""


@dataclass(frozen=True)
class Shares:
    """One gang: how many members it may have in all, those placed included, and its rules from the top down."""

    most: int
    rules: Sequence[Rule]


class CostEncoding:
    """Where each term of each rule has its bits. What is worth least is left out if there are too many.

    `unfinished`: more members will come, so that of what is hard only that is refused which they could not mend.
    """

    def __init__(self, gangs: Sequence[Shares], *, unfinished: bool = False) -> None:
        self._gangs = gangs
        self._unfinished = unfinished
        self._shift: dict[_Key, int] = {}
        members = sum(gang.most for gang in gangs)
        left = _BITS - members.bit_length()
        self.outside = left
        """Bits to shift the number of members outside of trees."""
        self.wishes: int | None = None
        """Bits to shift how much members dislike their nodes; None if there is no place for that."""
        for key, bound in self._terms():
            bits = bound.bit_length()
            if bits > left:
                continue
            left -= bits
            self._shift[key] = left
        self.wishes = self._shift.get(_WISHES)
        self.ties = left if self.wishes is None else self.wishes + (members * MAX_PENALTY).bit_length()
        """Bits of what nobody asked for."""

    def of_sizes(self, gang: int, rule: Rule) -> Int64:
        """The price of a domain by how many members it has: int64[most + 1]."""
        sizes = np.arange(self._gangs[gang].most + 1)
        missed = np.maximum(rule.least - sizes, 0) + np.maximum(sizes - rule.most, 0)
        uneven = (sizes % rule.step != 0).astype(np.int64)
        prices: Int64 = self._priced(gang, rule, Term.RANGE, missed) + self._priced(gang, rule, Term.FACTOR, uneven)
        shape = np.ones_like(sizes) if rule.shape is Shape.PACK else sizes * sizes
        prices += self._priced(gang, rule, Term.SHAPE, shape)
        if rule.range_is_hard:
            prices[sizes > rule.most if self._unfinished else missed > 0] = IMPOSSIBLE
        if rule.step_is_hard and not self._unfinished:
            prices[uneven > 0] = IMPOSSIBLE
        prices[0] = 0
        return prices

    def of_parts(self, gang: int, rule: Rule, most: int) -> Int64:
        """The price of how many domains one above has its members in: int64[most + 1]."""
        parts = np.arange(most + 1)
        if rule.shape is not Shape.PARTITION:
            return np.zeros(most + 1, np.int64)
        prices = self._priced(gang, rule, Term.PARTS, np.abs(parts - rule.parts))
        if rule.shape_is_hard:
            prices[parts > rule.parts if self._unfinished else parts != rule.parts] = IMPOSSIBLE
        prices[0] = 0
        return prices

    def of_fit(self, gang: int, rule: Rule, state: Int64) -> Int64:
        """The price of using each domain, the one with the least room first: `room` is int64[domains]."""
        if rule.shape is Shape.SPREAD or not len(state):
            return np.zeros(len(state), np.int64)
        _, ranks = np.unique(state, return_inverse=True)
        return self._priced(gang, rule, Term.FIT, (ranks.astype(np.int64) << _FITS_BITS) // (int(ranks.max()) + 1))

    def _priced(self, gang: int, rule: Rule, term: Term, counts: Int64) -> Int64:
        shift = self._shift.get((gang, rule.level, term))
        return np.zeros_like(counts) if shift is None else counts << shift

    def _terms(self) -> list[tuple[_Key, int]]:
        """Keys and the largest sums there can be, by worth: what was asked for, wishes, best fit, the rest."""
        asked: list[tuple[_Key, int]] = []
        fit: list[tuple[_Key, int]] = []
        unasked: list[tuple[_Key, int]] = []
        for index, gang in enumerate(self._gangs):
            most = gang.most
            for rule in gang.rules:
                if rule.has_range and not rule.range_is_hard:
                    short = min(rule.least, UNBOUNDED) - 1
                    asked.append(((index, rule.level, Term.RANGE), most * max(short, 1)))
                if rule.has_step and not rule.step_is_hard:
                    asked.append(((index, rule.level, Term.FACTOR), most))
                if rule.shape is Shape.PARTITION and not rule.shape_is_hard:
                    asked.append(((index, rule.level, Term.PARTS), most * max(rule.parts, 1)))
                shape = most if rule.shape is Shape.PACK else most * most
                (asked if rule.counts else unasked).append(((index, rule.level, Term.SHAPE), shape))
                if rule.shape is not Shape.SPREAD:
                    (fit if rule.counts else unasked).append(((index, rule.level, Term.FIT), most << _FITS_BITS))
        members = sum(gang.most for gang in self._gangs)
        return [*asked, (_WISHES, members * MAX_PENALTY), *fit, *unasked]
