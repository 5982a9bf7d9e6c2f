"""Tables of the dynamic programme: for many domains at once, the least cost of each share of members, as an integer.

A table is int64[domains, axes]. The first axes are the members of each part that a domain gets. Further axes belong to
a gang and stay open up to the next level with a rule of that gang: the number of domains it uses, or the size that all
its domains have (or one more). Steps keep the table they started from, to trace a cell back to the nodes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.instance import Part
from muster.placement.solve.level_rules import UNBOUNDED, Rule, Shape

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


Cell = tuple[int, ...]
"""Index into a table along its axes."""


Spend = Callable[[int, int], None]
"""Called with the cells to compute and the shares with a fixed overhead each. May raise."""


@dataclass(frozen=True)
class Axis:
    """`adds`: joining two domains adds their indexes on the axis; otherwise the indexes must be equal."""

    length: int
    adds: bool = True
    gang: int = -1


class Step(Protocol):
    """A transition from one table to the next."""

    def back(self, unit: int, cell: Cell) -> list[tuple[int, Cell]]:
        """Units and cells of the previous table that make up this cell."""
        ...


@dataclass(frozen=True)
class Closed:
    """An axis was closed by taking the minimum."""

    before: Int64
    axis: int

    def back(self, unit: int, cell: Cell) -> list[tuple[int, Cell]]:
        line = self.before[unit][cell[: self.axis]][(slice(None), *cell[self.axis :])]
        return [(unit, (*cell[: self.axis], int(line.argmin()), *cell[self.axis :]))]


@dataclass(frozen=True)
class Opened:
    """An axis was added at the end."""

    def back(self, unit: int, cell: Cell) -> list[tuple[int, Cell]]:
        return [(unit, cell[:-1])]


@dataclass(frozen=True)
class Joined:
    """Neighbours were joined in pairs: `first[u]` and `second[u]` became unit u; `second[u]` is -1 for a single one."""

    before: Int64
    first: Int64
    second: Int64
    axes: Sequence[Axis]

    def back(self, unit: int, cell: Cell) -> list[tuple[int, Cell]]:
        first, second = int(self.first[unit]), int(self.second[unit])
        if second < 0:
            return [(first, cell)]
        up_to = tuple(slice(at + 1) if axis.adds else at for at, axis in zip(cell, self.axes, strict=True))
        ours = self.before[first][up_to]
        theirs = self.before[second][up_to]
        flipped = ours[(slice(None, None, -1),) * ours.ndim]
        share = iter(np.unravel_index(int((flipped + theirs).argmin()), theirs.shape))
        of_second = tuple(int(next(share)) if axis.adds else at for at, axis in zip(cell, self.axes, strict=True))
        of_first = tuple(
            at - other if axis.adds else at for at, other, axis in zip(cell, of_second, self.axes, strict=True)
        )
        return [(first, of_first), (second, of_second)]


def join(table: Int64, owner: Int64, axes: Sequence[Axis], spend: Spend) -> tuple[Int64, list[Step]]:
    """Join all units with the same `owner`, int64[units] in order."""
    steps: list[Step] = []
    while len(owner) and bool((owner[1:] == owner[:-1]).any()):
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        position = np.arange(len(owner)) - np.repeat(starts, np.diff(np.append(starts, len(owner))))
        first = np.flatnonzero(position % 2 == 0)
        follows = np.append(first[1:], len(owner)) - first == 2
        second = np.where(follows, first + 1, -1)
        joined = table[first]
        joined[follows] = added(table[first[follows]], table[second[follows]], axes, spend)
        steps.append(Joined(table, first, second, axes))
        table, owner = joined, owner[first]
    return table, steps


def added(first: Int64, second: Int64, axes: Sequence[Axis], spend: Spend) -> Int64:
    """The minimum over all ways to divide each cell between the two, for every pair."""
    of_first, shares = _possible(first, axes), _possible(second, axes)
    if len(of_first) < len(shares):
        first, second, shares = second, first, of_first
    adding = np.array([index for index, axis in enumerate(axes) if axis.adds])
    lengths = np.array(first.shape[1:])
    matching = first.size // max(1, int(lengths[adding].prod()))
    spend(int((lengths[adding] - shares).prod(axis=1).sum()) * matching, len(shares))
    best: Int64 = np.full(first.shape, IMPOSSIBLE)
    here, source, target = ([slice(None)] * first.ndim for _ in range(3))
    for share in shares.tolist():
        for index, at in zip(adding.tolist(), share, strict=True):
            here[index + 1] = slice(at, at + 1)
            source[index + 1] = slice(axes[index].length - at)
            target[index + 1] = slice(at, None)
        reached = best[tuple(target)]
        np.minimum(reached, first[tuple(source)] + second[tuple(here)], out=reached)
    return best


def _possible(table: Int64, axes: Sequence[Axis]) -> Int64:
    """Indexes on the adding axes that are possible for some unit: int64[indexes, adding axes]."""
    matching = tuple(index + 1 for index, axis in enumerate(axes) if not axis.adds)
    return np.argwhere((table < IMPOSSIBLE).any(axis=(0, *matching)))


def read_back(steps: Sequence[Step], cell: Cell, parts: int) -> Iterator[tuple[int, Cell]]:
    """Traces a cell of the last table back to units of the first table and their shares, without empty ones."""
    open_: list[tuple[int, Cell]] = [(0, cell)]
    for step in reversed(steps):
        open_ = [each for unit, at in open_ if any(at[:parts]) for each in step.back(unit, at)]
    yield from ((unit, at[:parts]) for unit, at in open_ if any(at[:parts]))


def best_cell(table: Int64, parts: Sequence[Part], least: Sequence[int], ties: int = 0) -> Cell | None:
    """The cell with at least `least[gang]` members: most members, then least cost, then most members of earlier parts.

    The lowest `ties` bits of costs weigh less than earlier parts.
    """
    cells, costs = _cells(table)
    of_gang = _of_gangs(cells, parts, len(least))
    possible = (costs < IMPOSSIBLE) & (of_gang >= np.array(least)[:, None]).all(axis=0)
    return _first(np.flatnonzero(possible), cells, [-cells.sum(axis=0), costs >> ties, *-cells, costs])


def most_toward(table: Int64, parts: Sequence[Part], minimums: Sequence[int]) -> Cell | None:
    """The cell with most members toward minimums, earlier gangs first; then most of earlier parts, then least cost.

    None if no member can be placed.
    """
    cells, costs = _cells(table)
    counted = np.minimum(_of_gangs(cells, parts, len(minimums)), np.array(minimums)[:, None])
    possible = (costs < IMPOSSIBLE) & cells.any(axis=0)
    return _first(np.flatnonzero(possible), cells, [-counted.sum(axis=0), *-counted, *-cells, costs])


def _cells(table: Int64) -> tuple[Int64, Int64]:
    """Members of each part and cost of all shares: int64[parts, shares], int64[shares]."""
    return np.indices(table.shape).reshape(table.ndim, -1), table.reshape(-1)


def _of_gangs(cells: Int64, parts: Sequence[Part], gangs: int) -> Int64:
    """Members of each gang: int64[gangs, shares]."""
    return np.array([cells[[part.gang == gang for part in parts]].sum(axis=0) for gang in range(gangs)])


def _first(found: Int64, cells: Int64, keys: Sequence[Int64]) -> Cell | None:
    if not len(found):
        return None
    best = found[np.lexsort([key[found] for key in reversed(keys)])[0]]
    return tuple(int(count) for count in cells[:, best])
