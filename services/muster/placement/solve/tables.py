"""Tables of prices: for many domains at once, the least price at which each can be given so many members of each part.

A table is int64[domains, axes]. The first axes are how many members of each part a domain gets. Further ones are open
questions of a gang that are settled at the next level above that has a rule of its: how many domains it uses, or the
size that all of them have, or one more. Steps remember what they started from, so that they can be read backwards.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.costs import IMPOSSIBLE
from muster.placement.solve.instance import Part

Cell = tuple[int, ...]
"""Place in a table along its axes."""


Spend = Callable[[int, int], None]
"""Told of cells that will be looked at, and of shares that each take some time to begin with. May raise."""


@dataclass(frozen=True)
class Axis:
    """`adds`: joining two domains adds up their places on the axis; otherwise they must be at the same."""

    length: int
    adds: bool = True
    gang: int = -1


class Step(Protocol):
    """A table made of another."""

    def back(self, unit: int, cell: Cell) -> list[tuple[int, Cell]]:
        """Units and cells of the table before that make up this one."""
        ...


@dataclass(frozen=True)
class Closed:
    """An axis was settled by taking the best of it."""

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
    """Neighbours were joined in pairs: `first[u]` and, -1 if it was left alone, `second[u]` became unit u."""

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
    """Join all units with the same `owner`, int64[units] in order, into one each."""
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
    """The best of all ways to divide what each cell says over the two, for every pair."""
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
    """Places on the axes that add which some unit can have: int64[places, axes that add]."""
    matching = tuple(index + 1 for index, axis in enumerate(axes) if not axis.adds)
    return np.argwhere((table < IMPOSSIBLE).any(axis=(0, *matching)))


def read_back(steps: Sequence[Step], cell: Cell, parts: int) -> Iterator[tuple[int, Cell]]:
    """Units of the first table and how many of each part they get, from a cell of the last; those that get any."""
    open_: list[tuple[int, Cell]] = [(0, cell)]
    for step in reversed(steps):
        open_ = [each for unit, at in open_ if any(at[:parts]) for each in step.back(unit, at)]
    yield from ((unit, at[:parts]) for unit, at in open_ if any(at[:parts]))


def best_cell(table: Int64, parts: Sequence[Part], least: Sequence[int], ties: int = 0) -> Cell | None:
    """At least `least[gang]` members and as many as can be, then the least price, then members of first parts.

    The last `ties` bits of prices are worth less than first parts.
    """
    cells, prices = _cells(table)
    of_gang = _of_gangs(cells, parts, len(least))
    possible = (prices < IMPOSSIBLE) & (of_gang >= np.array(least)[:, None]).all(axis=0)
    return _first(np.flatnonzero(possible), cells, [-cells.sum(axis=0), prices >> ties, *-cells, prices])


def most_toward(table: Int64, parts: Sequence[Part], minimums: Sequence[int]) -> Cell | None:
    """What counts toward minimums comes first, of first gangs before later ones; then first parts, then the price.

    None if that is nothing.
    """
    cells, prices = _cells(table)
    counted = np.minimum(_of_gangs(cells, parts, len(minimums)), np.array(minimums)[:, None])
    possible = (prices < IMPOSSIBLE) & cells.any(axis=0)
    return _first(np.flatnonzero(possible), cells, [-counted.sum(axis=0), *-counted, *-cells, prices])


def _cells(table: Int64) -> tuple[Int64, Int64]:
    """Members of each part and the price of all shares: int64[parts, shares], int64[shares]."""
    return np.indices(table.shape).reshape(table.ndim, -1), table.reshape(-1)


def _of_gangs(cells: Int64, parts: Sequence[Part], gangs: int) -> Int64:
    """Members of each gang: int64[gangs, shares]."""
    return np.array([cells[[part.gang == gang for part in parts]].sum(axis=0) for gang in range(gangs)])


def _first(found: Int64, cells: Int64, keys: Sequence[Int64]) -> Cell | None:
    if not len(found):
        return None
    best = found[np.lexsort([key[found] for key in reversed(keys)])[0]]
    return tuple(int(count) for count in cells[:, best])
