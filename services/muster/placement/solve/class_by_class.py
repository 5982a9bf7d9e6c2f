"""Heuristic for large heterogeneous groups under constraints: divides the members of one class after another.

Each class is divided as a homogeneous gang, with the members of earlier classes as placed.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.bounds import is_optimal, reaches_bounds, solution_cost
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.division import TreeSlice
from muster.placement.solve.instance import Solution, TreeInstance, reserve_again
from muster.placement.solve.level_rules import Cost, Rule, Shape, cost_of, holds, may_hold
from muster.placement.solve.packing import Seats
from muster.placement.state.nodes import Bool

_DOMAINS_TRIED: Final = 8
_DOMAINS_IF_FEW: Final = 2
"""Domains tried among those in which each class fits alone; the second when only the number of members is sought."""
_NODES_PER_STEP: Final = 50
"""Nodes over which members of a class are divided in the time of one search step."""


def place_by_class(instance: TreeInstance, least: Sequence[int], budget: Budget) -> Solution | None:
    """A solution, not reserved, with all members, else with `least[gang]` and as many more as are found.

    Raises OutOfBudget.
    """
    found = _place(instance, _wanted(instance), budget)
    if found is not None:
        return found
    found = _place(instance, least, budget)
    return None if found is None else _extended(instance, found, least, _wanted(instance), budget)


def any_by_class(instance: TreeInstance, least: Sequence[int], budget: Budget) -> Solution | None:
    """A solution, not reserved, with `least[gang]` members. Raises OutOfBudget."""
    return _place(instance, least, budget)


def most_by_class(instance: TreeInstance, minimums: Sequence[int], budget: Budget) -> Solution | None:
    """A solution, not reserved, with as many members toward the minimums as are found, if more members will follow.

    Raises OutOfBudget.
    """
    empty = Solution([0] * len(instance.parts))
    found = _extended(instance, empty, [0] * len(minimums), minimums, budget, unfinished=True)
    return found if found.total else None


def _extended(
    instance: TreeInstance,
    found: Solution,
    least: Sequence[int],
    most: Sequence[int],
    budget: Budget,
    *,
    unfinished: bool = False,
) -> Solution:
    """Extends a solution with `least` members up to `most`, earlier gangs first."""
    for gang, limit in enumerate(most):
        too_many = limit + 1
        while least[gang] + 1 < too_many:
            middle = (least[gang] + too_many) // 2
            tried = [*least[:gang], middle, *least[gang + 1 :]]
            solution = _place(instance, tried, budget, few=True, unfinished=unfinished)
            if solution is None:
                too_many = middle
            else:
                found, least = solution, tried
    return found


def _wanted(instance: TreeInstance) -> list[int]:
    return [sum(part.wanted for part in instance.parts if part.gang == gang) for gang in range(len(instance.gangs))]


def _place(
    instance: TreeInstance, needed: Sequence[int], budget: Budget, *, few: bool = False, unfinished: bool = False
) -> Solution | None:
    """A solution with `needed` members of each gang; with `few`, from one order and few domains."""
    state = instance.state
    checkpoint = state.checkpoint()
    best: Solution | None = None
    try:
        orders = _orders(instance)
        if list(needed) != _wanted(instance):
            orders.reverse()
        for order in orders[: 1 if few else None]:
            domains = _DOMAINS_IF_FEW if few else _DOMAINS_TRIED
            solution = _ClassByClass(instance, order, needed, budget, domains, unfinished=unfinished).seat_gangs()
            state.rollback(checkpoint)
            if solution is None:
                continue
            if is_optimal(instance, solution):
                return solution
            if best is None or solution_cost(instance, solution) < solution_cost(instance, best):
                best = solution
    finally:
        state.rollback(checkpoint)
    return best


class _ClassByClass:
    """Places parts in one order, each as many as fit until its gang has the needed members."""

    def __init__(
        self,
        instance: TreeInstance,
        order: Sequence[int],
        needed: Sequence[int],
        budget: Budget,
        domains: int,
        *,
        unfinished: bool,
    ) -> None:
        self._instance = instance
        self._order = order
        self._needed = needed
        self._budget = budget
        self._domains = domains
        self._unfinished = unfinished

    def seat_gangs(self) -> Solution | None:
        """Gang by gang; reservations stay."""
        solution = Solution([0] * len(self._instance.parts))
        for gang in dict.fromkeys(self._instance.parts[index].gang for index in self._order):
            seats = self._best_seats(gang)
            if seats is None:
                return None
            reserve_again(self._instance.state, self._instance.parts, Solution([], seats))
            solution.seats += seats
            for index, (_, counts) in seats:
                solution.placed[index] += int(counts.sum())
        return solution

    def _best_seats(self, gang: int) -> list[tuple[int, Seats]] | None:
        """The best seats in domains of the lowest level with a solution, ties to the first; nothing is reserved."""
        state, tree, rules = self._instance.state, self._instance.tree, self._instance.gangs[gang].rules
        parts = [index for index in self._order if self._instance.parts[index].gang == gang]
        for tier in self._slices(gang):
            best: tuple[Cost, list[tuple[int, Seats]]] | None = None
            for first, last in tier:
                checkpoint = state.checkpoint()
                seated = self._seat_parts(gang, parts, first, last)
                state.rollback(checkpoint)
                if seated is None:
                    continue
                sizes, seats = seated
                used = np.flatnonzero(sizes)
                cost = cost_of(rules, tree, used, sizes[used])
                if self._satisfies(gang, used, sizes[used]) and (best is None or cost < best[0]):
                    best = cost, seats
                    if reaches_bounds(self._instance, gang, sizes):
                        break
            if best is not None:
                return best[1]
        return None

    def _seat_parts(
        self, gang: int, parts: Sequence[int], first: int, last: int
    ) -> tuple[Int64, list[tuple[int, Seats]]] | None:
        """Members of the gang on each tree node after placing all its parts, and their seats, which are reserved."""
        tree_slice = TreeSlice(self._instance, gang, first, last)
        seats: list[tuple[int, Seats]] = []
        left = self._needed[gang]
        for index in parts:
            wanted = min(self._instance.parts[index].wanted, left)
            if not wanted:
                continue
            self._spend(last - first)
            taken = tree_slice.seat(index, wanted, more_to_come=self._unfinished or wanted < left)
            if taken is not None:
                seats.append((index, taken))
                left -= int(taken[1].sum())
        return None if left else (tree_slice.held, seats)

    def _satisfies(self, gang: int, nodes: Int64, counts: Int64) -> bool:
        """All hard rules hold, or can hold once the remaining members are placed."""
        rules, tree = self._instance.gangs[gang].rules, self._instance.tree
        return (may_hold if self._unfinished else holds)(rules, tree, nodes, counts)

    def _slices(self, gang: int) -> Iterator[Iterator[tuple[int, int]]]:
        """Slices to try: single domains of packed levels, lowest level first; then the whole tree."""
        tree, rules = self._instance.tree, self._instance.gangs[gang].rules
        packed = list(takewhile(lambda rule: rule.shape is Shape.PACK, rules[:-1]))
        for at in range(len(packed) - 1, -1, -1):
            level = tree.levels[packed[at].level]
            domains = self._domains_holding_all(gang, level.of, rules[at + 1])
            yield ((int(level.starts[domain]), int(level.starts[domain + 1])) for domain in domains)
        if any(rule.shape_is_hard for rule in packed):
            return
        if tree.inside < len(tree.rows) and self._instance.gangs[gang].is_constrained:
            yield iter([(0, tree.inside)])
        yield iter([(0, len(tree.rows))])

    def _domains_holding_all(self, gang: int, of: Int64, below: Rule) -> list[int]:
        """Domains in which every part of the gang fits alone, by how well the rule below can be satisfied, then the
        tightest.
        """
        instance = self._instance
        ours = [index for index, part in enumerate(instance.parts) if part.gang == gang]
        rows = instance.tree.rows
        seats = [
            np.where(instance.fits[index] > 0, instance.state.of(instance.parts[index].class_id).fits[rows], 0)
            for index in ours
        ]
        wanted = [instance.parts[index].wanted for index in ours]
        targets = [max(0, self._needed[gang] - sum(wanted) + count) for count in wanted]
        total = np.bincount(of, np.sum(seats, axis=0))
        enough = _domains_with_seats(seats, targets, of) & (total >= self._needed[gang])
        placed = np.bincount(of, instance.placed[gang])
        if placed.any():
            enough &= placed == placed.sum()
        whole = np.flatnonzero(enough)
        lower = (
            instance.tree.levels[below.level].of if below.level < len(instance.tree.levels) else np.arange(len(rows))
        )
        divisibility = self._divisibility(seats, targets, self._needed[gang], lower, below, of)
        found: list[int] = whole[np.lexsort((total[whole], -divisibility[whole]))][: self._domains].tolist()
        return found

    def _divisibility(
        self, seats: Sequence[Int64], targets: Sequence[int], needed: int, lower: Int64, below: Rule, of: Int64
    ) -> Int64:
        """Scores of how well the rule below divides each domain's members, higher is better: int64[domains]."""
        if below.shape is Shape.PACK:
            good, most = _domains_with_seats(seats, targets, lower), 1
        else:
            good = np.bincount(lower, np.sum(seats, axis=0)) > 0
            most = below.parts if below.shape is Shape.PARTITION else needed
        first = np.flatnonzero(np.diff(lower, prepend=-1))
        divisibility: Int64 = np.minimum(np.bincount(of[first], good[lower[first]], int(of[-1]) + 1), most).astype(
            np.int64
        )
        return divisibility

    def _spend(self, nodes: int) -> None:
        steps = 1 + nodes // _NODES_PER_STEP
        self._budget.spend_if_left(steps)


def _domains_with_seats(seats: Sequence[Int64], targets: Sequence[int], of: Int64) -> Bool:
    """Domains with enough seats for each part alone: bool[domains]."""
    enough: Bool = np.all(
        [np.bincount(of, each) >= target for each, target in zip(seats, targets, strict=True)], axis=0
    )
    return enough


def _orders(instance: TreeInstance) -> list[list[int]]:
    """Orders of parts: by fewest seats, by most members, and by role."""
    seats = instance.fits.sum(axis=1).tolist()
    parts = range(len(seats))
    hardest = sorted(parts, key=lambda index: (seats[index], index))
    largest = sorted(parts, key=lambda index: (-instance.parts[index].wanted, index))
    return [list(order) for order in dict.fromkeys((tuple(hardest), tuple(largest), tuple(parts)))]
