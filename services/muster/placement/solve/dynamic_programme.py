"""Dynamic programme over a tree: the optimal placement of small heterogeneous groups under constraints.

The state of a domain is its share: how many members of each part it gets. Nothing else matters to the domains above, so
each share has one least cost, and shares of a domain are composed of those of its children. All gangs on one tree are
solved together. Time grows with the number of shares, so parts must have few members.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.instance import Part, Solution, TreeInstance
from muster.placement.solve.level_rules import Rule, Shape
from muster.placement.solve.tables import (
    IMPOSSIBLE,
    MAX_PENALTY,
    Axis,
    Cell,
    Closed,
    CostEncoding,
    GangShares,
    Opened,
    Step,
    join,
    read_back,
)
from muster.placement.state.nodes import Bool

MAX_SHARES: Final = 4_096
"""Shares above which the programme is not tried."""
_CELLS_PER_STEP: Final = 3_000
_CELLS_PER_SHARE: Final = 6_000
"""Table cells computed in the time of one search step, and in that of the overhead of one share."""
_FEW_MEMBERS: Final = 9
_EXTRA_PARTS: Final = 2
"""Domains that a soft partition may use in addition to its number of parts, in gangs of more than a few members."""
_MAX_CELLS: Final = 20_000_000
"""Cells of the first table, 8 bytes each."""


def shares_of(parts: Sequence[Part]) -> int:
    """Number of different shares of a domain."""
    return prod(part.wanted + 1 for part in parts)


def steps_for(instance: TreeInstance, nodes: int) -> int:
    """Upper bound on the steps for an instance of `nodes` nodes, without the open axes of levels above the nodes."""
    cells = prod((part.wanted + 1) * (part.wanted + 2) // 2 for part in instance.parts)
    cells *= prod(_table_growth(one.rules[-1], instance.max_members(gang)) for gang, one in enumerate(instance.gangs))
    overhead = (nodes + _CELLS_PER_SHARE * nodes.bit_length()) * shares_of(instance.parts)
    return (nodes * cells + overhead) // _CELLS_PER_STEP


def _table_growth(rule: Rule, most: int) -> int:
    """Factor by which a rule of the node level enlarges tables."""
    if rule.shape is Shape.PARTITION:
        parts = rule.parts if rule.shape_is_hard else _max_parts(rule, most)
        return (parts + 1) * (parts + 2) // 2 * (max(1, most // rule.parts) if rule.shape_is_hard else 1)
    if not rule.shape_is_hard:
        return 1
    return 3 if rule.shape is Shape.PACK else most


def _max_parts(rule: Rule, most: int) -> int:
    """Largest number of parts of a soft partition; more are rarely needed and expensive to count."""
    return most if most <= _FEW_MEMBERS else min(most, rule.parts + _EXTRA_PARTS)


class DynamicProgramme:
    """Least costs of all shares, from the nodes up.

    `unfinished`: more members will follow, so hard rules need not hold yet, but must remain satisfiable. `any_parts`:
    soft partitions may have any number of parts, not just a few more than declared. `complete`: nothing was excluded,
    so that finding no solution proves infeasibility.
    """

    def __init__(
        self, instance: TreeInstance, budget: Budget, *, unfinished: bool = False, any_parts: bool = False
    ) -> None:
        gangs, parts = instance.gangs, instance.parts
        self._state = instance.state
        self._tree = instance.tree
        self._gangs = gangs
        self._parts = parts
        self._budget = budget
        self._unfinished = unfinished
        self._any_parts = any_parts
        self.complete = instance.complete
        self._at = np.flatnonzero(instance.fits.any(axis=0) | instance.placed.any(axis=0))
        self._placed = instance.placed[:, self._at]
        self._fits = instance.fits[:, self._at]
        self._size = instance.size[self._at]
        self._axes = [Axis(part.wanted + 1) for part in parts]
        self._shares = np.indices([axis.length for axis in self._axes]).reshape(len(parts), -1).T  # int64[cells, parts]
        self._most = [instance.max_members(gang) for gang in range(len(gangs))]
        shares = [GangShares(most, one.rules) for most, one in zip(self._most, gangs, strict=True)]
        self._encoding = CostEncoding(shares, unfinished=unfinished)
        self._table: Int64 = np.zeros(0, np.int64)
        self._steps: list[Step] = []

    @property
    def ties(self) -> int:
        """Number of low bits of a cost that hold undeclared terms."""
        return self._encoding.ties

    def solve(self) -> Int64:
        """Least costs of all shares of the whole tree, int64[share of each part].

        Raises OutOfBudget, before the time is spent.
        """
        self._table = self._node_table()
        nodes = len(self._tree.levels)
        levels = sorted({rule.level for one in self._gangs for rule in one.rules}, reverse=True)
        at, size = self._at, self._size
        placed = self._placed
        for level in levels:
            if level < nodes:
                owner = self._tree.levels[level].of[at]
                placed, size, at = self._join(owner, placed, size, at)
            self._close_axes(level)
            self._apply_rules(level, placed, size)
        owner = np.zeros(len(at), np.int64)
        self._join(owner, placed, size, at)
        self._close_axes(-1)
        return self._table[0] if len(self._table) else self._empty_table()

    def solution(self, cell: Cell) -> Solution:
        """The solution of a cell of the last table."""
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

    def _node_table(self) -> Int64:
        """Costs of shares on each node, int64[nodes, share of each part]."""
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
        constrained = [self._gangs[part.gang].is_constrained for part in self._parts]
        members_outside = self._shares[:, constrained].sum(axis=1)
        table[outside] += np.where(fits[outside], members_outside << self._encoding.outside, 0)
        if self._encoding.penalties is not None:
            table += self._penalties(rows) << self._encoding.penalties
            table = np.minimum(table, IMPOSSIBLE)
        return table.reshape(-1, *(axis.length for axis in self._axes))

    def _penalties(self, rows: Int64) -> Int64:
        """Penalties of each share on each node: int64[nodes, share of each part], smaller if there are none."""
        penalties_of_shares: Int64 = np.zeros((1, 1), np.int64)
        for index, part in enumerate(self._parts):
            of_class = self._state.of(part.class_id)
            penalties = of_class.penalties
            if len(penalties) > 1:
                rank: Int64 = np.searchsorted(penalties, of_class.penalty[rows])
                if len(penalties) > MAX_PENALTY + 1:
                    rank = rank * MAX_PENALTY // (len(penalties) - 1)
                ours: Int64 = np.minimum(rank, MAX_PENALTY)[:, None] * self._shares[:, index]
                penalties_of_shares = penalties_of_shares + ours
        return penalties_of_shares

    def _join(self, owner: Int64, placed: Int64, size: Int64, at: Int64) -> tuple[Int64, Int64, Int64]:
        """Merge units; members placed in them and their capacity are summed."""
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1])) if len(owner) else owner
        if len(starts) == len(owner):
            return placed, size, at
        self._table, steps = join(self._table, owner, tuple(self._axes), self._spend)
        self._steps += steps
        return np.add.reduceat(placed, starts, axis=1), np.add.reduceat(size, starts), at[starts]

    def _close_axes(self, level: int) -> None:
        """Close the open axes of gangs with a rule at the level; at -1 those of all gangs."""
        for axis in range(len(self._axes) - 1, len(self._parts) - 1, -1):
            one = self._axes[axis]
            rules = self._gangs[one.gang].rules
            if level >= 0 and not any(rule.level == level for rule in rules):
                continue
            if one.adds:
                below = next(rule for rule in rules if rule.level > level)
                costs = self._encoding.of_parts(one.gang, below, one.length - 1)
                shape = [1] * self._table.ndim
                shape[axis + 1] = one.length
                self._table = np.minimum(self._table + costs.reshape(shape), IMPOSSIBLE)
            self._steps.append(Closed(self._table, axis))
            self._table = self._table.min(axis=axis + 1)
            del self._axes[axis]

    def _apply_rules(self, level: int, placed: Int64, size: Int64) -> None:
        """Add the costs of the rules of a level and open their axes."""
        for gang, one in enumerate(self._gangs):
            rule = next((rule for rule in one.rules if rule.level == level), None)
            if rule is None:
                continue
            sizes = self._sizes(gang, placed)
            costs = self._encoding.of_sizes(gang, rule)[sizes]
            costs += np.where(sizes > 0, self._per_unit(self._encoding.of_fit(gang, rule, size)), 0)
            self._table = np.minimum(self._table + self._on_all_axes(costs), IMPOSSIBLE)
            self._open_axes(gang, rule, sizes)

    def _open_axes(self, gang: int, rule: Rule, sizes: Int64) -> None:
        most = self._most[gang]
        if rule.shape is Shape.PARTITION or rule.shape_is_hard:
            if rule.shape is Shape.PACK:
                self._add_axis(Axis(2, True, gang), sizes > 0)
            elif rule.shape is Shape.PARTITION:
                parts = rule.parts
                if not rule.shape_is_hard:
                    parts = most if self._any_parts else _max_parts(rule, most)
                    self.complete = self.complete and parts == most
                parts = min(parts, max(1, len(self._table)))
                self._add_axis(Axis(parts + 1, True, gang), sizes > 0)
        if rule.shape is not Shape.PACK and rule.shape_is_hard and not self._unfinished:
            if rule.shape is Shape.PARTITION:
                most = max(1, most // rule.parts)
            even = np.stack([(sizes == 0) | (sizes == low) | (sizes == low + 1) for low in range(1, most + 1)], axis=-1)
            self._add_matching_axis(Axis(most, False, gang), even)

    def _add_axis(self, axis: Axis, used: Bool) -> None:
        """Number of domains used: none or one at this point."""
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
        """Members of each unit with each share: int64[units, share of each part]."""
        ours = np.array([part.gang == gang for part in self._parts])
        new = self._shares[:, ours].sum(axis=1).reshape([axis.length for axis in self._axes[: len(self._parts)]])
        sizes: Int64 = self._per_unit(placed[gang]) + new
        return sizes

    def _per_unit(self, of_units: Int64) -> Int64:
        return of_units.reshape(-1, *(1,) * len(self._parts))

    def _on_all_axes(self, of_shares: Int64) -> Int64:
        return of_shares.reshape(*of_shares.shape, *(1,) * (self._table.ndim - of_shares.ndim))

    def _empty_table(self) -> Int64:
        """The table without any usable node: no member can be placed."""
        table = np.full([axis.length for axis in self._axes], IMPOSSIBLE)
        table[(0,) * table.ndim] = 0
        return table

    def _spend(self, cells: int, shares: int = 0) -> None:
        steps = 1 + (cells + shares * _CELLS_PER_SHARE) // _CELLS_PER_STEP
        self._budget.spend_if_left(steps)
