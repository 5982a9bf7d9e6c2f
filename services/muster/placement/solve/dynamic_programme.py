"""The best place for a mixed group under constraints, exactly: prices of all shares, joined up the tree.

What a domain gets is told by how many members of each part it gets; that is all that matters to the domains above, so
that each such share of a domain has one least price, and shares of domains make up those of the one above. Groups whose
gangs go by one tree are settled whole. It takes time with the number of shares, so it is for parts of few members.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.costs import IMPOSSIBLE, MAX_PENALTY, CostEncoding, Shares
from muster.placement.solve.instance import Part, Solution, TreeInstance
from muster.placement.solve.level_rules import Rule, Shape
from muster.placement.solve.tables import Axis, Cell, Closed, Opened, Step, join, read_back
from muster.placement.state.nodes import Bool

MAX_SHARES: Final = 4_096
"""Beyond these there is no hope to look at all."""
_CELLS_PER_STEP: Final = 3_000
_CELLS_PER_SHARE: Final = 6_000
"""Cells that are looked at in the time of one step of a search, and in that of beginning with one share."""
_FEW: Final = 9
_MORE_PARTS: Final = 2
"""Domains that a soft partition may have beyond those asked for, in gangs of more than a few."""
_MAX_CELLS: Final = 20_000_000
"""Of the first table, 8 bytes each."""


def shares_of(parts: Sequence[Part]) -> int:
    """In how many ways members can be shared out to one domain."""
    return prod(part.wanted + 1 for part in parts)


def steps_for(instance: TreeInstance, places: int) -> int:
    """Steps that a ladder of so many places takes at most, but for what rules above the nodes leave open."""
    cells = prod((part.wanted + 1) * (part.wanted + 2) // 2 for part in instance.parts)
    cells *= prod(_left_open(one.rules[-1], instance.most(gang)) for gang, one in enumerate(instance.asked))
    overhead = (places + _CELLS_PER_SHARE * places.bit_length()) * shares_of(instance.parts)
    return (places * cells + overhead) // _CELLS_PER_STEP


def _left_open(rule: Rule, most: int) -> int:
    """By how much a rule of the nodes makes tables larger."""
    if rule.shape is Shape.PARTITION:
        parts = rule.parts if rule.shape_is_hard else _most_parts(rule, most)
        return (parts + 1) * (parts + 2) // 2 * (max(1, most // rule.parts) if rule.shape_is_hard else 1)
    if not rule.shape_is_hard:
        return 1
    return 3 if rule.shape is Shape.PACK else most


def _most_parts(rule: Rule, most: int) -> int:
    """Of a soft partition: more parts are hardly ever needed, and to count them all would take long."""
    return most if most <= _FEW else min(most, rule.parts + _MORE_PARTS)


class DynamicProgramme:
    """Prices from the nodes up. `unfinished`: members will follow, so that hard constraints need not be met yet, but
    still be such that they can be. `any_parts`: soft partitions may have any number of parts, not just a few more than
    asked for. `whole`: no place has been left out, so that what is not found cannot be.
    """

    def __init__(
        self, instance: TreeInstance, budget: Budget, *, unfinished: bool = False, any_parts: bool = False
    ) -> None:
        asked, parts = instance.asked, instance.parts
        self._state = instance.state
        self._tree = instance.tree
        self._asked = asked
        self._parts = parts
        self._budget = budget
        self._unfinished = unfinished
        self._any_parts = any_parts
        self.whole = instance.whole
        self._at = np.flatnonzero(instance.fits.any(axis=0) | instance.placed.any(axis=0))
        self._placed = instance.placed[:, self._at]
        self._fits = instance.fits[:, self._at]
        self._size = instance.size[self._at]
        self._axes = [Axis(part.wanted + 1) for part in parts]
        self._shares = np.indices([axis.length for axis in self._axes]).reshape(len(parts), -1).T  # int64[cells, parts]
        self._most = [instance.most(gang) for gang in range(len(asked))]
        shares = [Shares(most, one.rules) for most, one in zip(self._most, asked, strict=True)]
        self._prices = CostEncoding(shares, unfinished=unfinished)
        self._table: Int64 = np.zeros(0, np.int64)
        self._steps: list[Step] = []

    @property
    def ties(self) -> int:
        """How many of the last bits of prices are of what nobody asked for."""
        return self._prices.ties

    def climb(self) -> Int64:
        """Prices of all shares of the whole tree, int64[shares by part].

        Raises OutOfBudget, before time is spent in vain.
        """
        self._table = self._of_nodes()
        nodes = len(self._tree.levels)
        levels = sorted({rule.level for one in self._asked for rule in one.rules}, reverse=True)
        at, room_for = self._at, self._size
        placed = self._placed
        for level in levels:
            if level < nodes:
                owner = self._tree.levels[level].of[at]
                placed, room_for, at = self._join(owner, placed, room_for, at)
            self._settle(level)
            self._ask(level, placed, room_for)
        owner = np.zeros(len(at), np.int64)
        self._join(owner, placed, room_for, at)
        self._settle(-1)
        return self._table[0] if len(self._table) else self._nothing()

    def solution(self, cell: Cell) -> Solution:
        """Seats for the shares of a cell of the last table."""
        solution = Solution([0] * len(self._parts))
        seats: list[list[tuple[int, int]]] = [[] for _ in self._parts]
        for unit, share in read_back(self._steps, cell, len(self._parts)):
            row = int(self._tree.rows[self._at[unit]])
            for index, count in enumerate(share):
                if count:
                    seats[index].append((row, count))
                    solution.placed[index] += count
        for index, taken in enumerate(seats):
            if taken:
                rows, counts = zip(*taken, strict=True)
                solution.seats.append((index, (np.array(rows, np.int64), np.array(counts, np.int64))))
        return solution

    def _of_nodes(self) -> Int64:
        """What each node can hold, int64[nodes, shares by part]."""
        if len(self._at) * len(self._shares) > _MAX_CELLS:
            raise OutOfBudget
        self._spend(len(self._at) * len(self._shares))
        state = self._state
        vectors = np.array([state.of(part.class_id).vector(len(state.free)) for part in self._parts])
        fits: Bool = np.ones((len(self._at), len(self._shares)), np.bool_)
        for index, most in enumerate(self._fits):
            fits &= self._shares[:, index] <= most[:, None]
        rows = self._tree.rows[self._at]
        for column in np.flatnonzero(vectors.any(axis=0)).tolist():
            needed = self._shares @ vectors[:, column]
            fits &= needed <= np.maximum(state.free[column, rows], 0)[:, None]
        table = np.where(fits, 0, IMPOSSIBLE)
        outside = self._at >= self._tree.inside
        asking = [self._asked[part.gang].asks for part in self._parts]
        astray = self._shares[:, asking].sum(axis=1)
        table[outside] += np.where(fits[outside], astray << self._prices.outside, 0)
        if self._prices.wishes is not None:
            table += self._dislikes(rows) << self._prices.wishes
            table = np.minimum(table, IMPOSSIBLE)
        return table.reshape(-1, *(axis.length for axis in self._axes))

    def _dislikes(self, rows: Int64) -> Int64:
        """By how much members of each share dislike each node: int64[nodes, shares by part], or less if nobody does."""
        dislikes: Int64 = np.zeros((1, 1), np.int64)
        for index, part in enumerate(self._parts):
            of_class = self._state.of(part.class_id)
            levels = of_class.penalties
            if len(levels) > 1:
                rank: Int64 = np.searchsorted(levels, of_class.penalty[rows])
                if len(levels) > MAX_PENALTY + 1:
                    rank = rank * MAX_PENALTY // (len(levels) - 1)
                ours: Int64 = np.minimum(rank, MAX_PENALTY)[:, None] * self._shares[:, index]
                dislikes = dislikes + ours
        return dislikes

    def _join(self, owner: Int64, placed: Int64, room_for: Int64, at: Int64) -> tuple[Int64, Int64, Int64]:
        """Join units; what is placed in and what fits into each is added up."""
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])) if len(owner) else owner
        if len(starts) == len(owner):
            return placed, room_for, at
        self._table, steps = join(self._table, owner, tuple(self._axes), self._spend)
        self._steps += steps
        return np.add.reduceat(placed, starts, axis=1), np.add.reduceat(room_for, starts), at[starts]

    def _settle(self, level: int) -> None:
        """Settle what was left open for the gangs that have a rule at the level; at -1 for all."""
        for axis in range(len(self._axes) - 1, len(self._parts) - 1, -1):
            one = self._axes[axis]
            rules = self._asked[one.gang].rules
            if level >= 0 and not any(rule.level == level for rule in rules):
                continue
            if one.adds:
                below = next(rule for rule in rules if rule.level > level)
                prices = self._prices.of_parts(one.gang, below, one.length - 1)
                shape = [1] * self._table.ndim
                shape[axis + 1] = one.length
                self._table = np.minimum(self._table + prices.reshape(shape), IMPOSSIBLE)
            self._steps.append(Closed(self._table, axis))
            self._table = self._table.min(axis=axis + 1)
            del self._axes[axis]

    def _ask(self, level: int, placed: Int64, room_for: Int64) -> None:
        """Add the prices of the rules of a level, and open what they leave open."""
        for gang, one in enumerate(self._asked):
            rule = next((rule for rule in one.rules if rule.level == level), None)
            if rule is None:
                continue
            sizes = self._sizes(gang, placed)
            prices = self._prices.of_sizes(gang, rule)[sizes]
            prices += np.where(sizes > 0, self._spread_over(self._prices.of_fit(gang, rule, room_for)), 0)
            self._table = np.minimum(self._table + self._for_all_axes(prices), IMPOSSIBLE)
            self._open(gang, rule, sizes)

    def _open(self, gang: int, rule: Rule, sizes: Int64) -> None:
        most = self._most[gang]
        if rule.shape is Shape.PARTITION or rule.shape_is_hard:
            if rule.shape is Shape.PACK:
                self._add_axis(Axis(2, True, gang), sizes > 0)
            elif rule.shape is Shape.PARTITION:
                parts = rule.parts
                if not rule.shape_is_hard:
                    parts = most if self._any_parts else _most_parts(rule, most)
                    self.whole = self.whole and parts == most
                parts = min(parts, max(1, len(self._table)))
                self._add_axis(Axis(parts + 1, True, gang), sizes > 0)
        if rule.shape is not Shape.PACK and rule.shape_is_hard and not self._unfinished:
            if rule.shape is Shape.PARTITION:
                most = max(1, most // rule.parts)
            even = np.stack([(sizes == 0) | (sizes == low) | (sizes == low + 1) for low in range(1, most + 1)], axis=-1)
            self._add_matching_axis(Axis(most, False, gang), even)

    def _add_axis(self, axis: Axis, used: Bool) -> None:
        """How many domains are used: none or one so far."""
        used = used.reshape(*used.shape, *(1,) * (self._table.ndim - used.ndim))
        table: Int64 = np.full((*self._table.shape, axis.length), IMPOSSIBLE)
        table[..., 0] = np.where(used, IMPOSSIBLE, self._table)
        table[..., 1] = np.where(used, self._table, IMPOSSIBLE)
        self._grow(axis, table)

    def _add_matching_axis(self, axis: Axis, allowed: Bool) -> None:
        between = (1,) * (self._table.ndim - allowed.ndim + 1)
        allowed = allowed.reshape(*allowed.shape[:-1], *between, allowed.shape[-1])
        self._grow(axis, np.where(allowed, self._table[..., None], IMPOSSIBLE))

    def _grow(self, axis: Axis, table: Int64) -> None:
        self._spend(table.size)
        self._table = table
        self._axes.append(axis)
        self._steps.append(Opened())

    def _sizes(self, gang: int, placed: Int64) -> Int64:
        """Members that each unit has with each share: int64[units, shares by part]."""
        ours = np.array([part.gang == gang for part in self._parts])
        new = self._shares[:, ours].sum(axis=1).reshape([axis.length for axis in self._axes[: len(self._parts)]])
        sizes: Int64 = self._spread_over(placed[gang]) + new
        return sizes

    def _spread_over(self, of_units: Int64) -> Int64:
        return of_units.reshape(-1, *(1,) * len(self._parts))

    def _for_all_axes(self, of_shares: Int64) -> Int64:
        return of_shares.reshape(*of_shares.shape, *(1,) * (self._table.ndim - of_shares.ndim))

    def _nothing(self) -> Int64:
        """No node is of any use: nobody can be placed."""
        table = np.full([axis.length for axis in self._axes], IMPOSSIBLE)
        table[(0,) * table.ndim] = 0
        return table

    def _spend(self, cells: int, shares: int = 0) -> None:
        steps = 1 + (cells + shares * _CELLS_PER_SHARE) // _CELLS_PER_STEP
        if steps > self._budget.left:
            raise OutOfBudget
        self._budget.left -= steps
