"""Groups under constraints that are too large to look at all ways: members of one class after another, each as equal
members are divided, with those before them as members that are there already.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.costs import Cost, cost_of, holds, is_best, may_hold, reaches_bounds, solution_cost
from muster.placement.solve.instance import Solution, TreeInstance, reserve_again
from muster.placement.solve.level_rules import Rule, Shape
from muster.placement.solve.packing import Seats
from muster.placement.solve.tree_slice import TreeSlice
from muster.placement.state.nodes import Bool

_DOMAINS_TRIED: Final = 8
_DOMAINS_FOR_MORE: Final = 2
"""Of those that have room for all by each class alone; and where it is only sought how many fit."""
_PLACES_PER_STEP: Final = 50
"""Places that members of a class are divided over in the time of one step of a search."""


def place_by_class(instance: TreeInstance, least: Sequence[int], budget: Budget) -> Solution | None:
    """Seats, not taken, for all members, else for `least[gang]` and as many more as can be found.

    Raises OutOfBudget.
    """
    found = _place(instance, _wanted(instance), budget)
    if found is not None:
        return found
    found = _place(instance, least, budget)
    return None if found is None else _raised(instance, found, least, _wanted(instance), budget)


def any_by_class(instance: TreeInstance, least: Sequence[int], budget: Budget) -> Solution | None:
    """Seats, not taken, for `least[gang]` members. Raises OutOfBudget."""
    return _place(instance, least, budget)


def most_by_class(instance: TreeInstance, minimums: Sequence[int], budget: Budget) -> Solution | None:
    """Seats, not taken, for as many members toward the minimums as can be found, while more are to come.

    Raises OutOfBudget.
    """
    nobody = Solution([0] * len(instance.parts))
    found = _raised(instance, nobody, [0] * len(minimums), minimums, budget, unfinished=True)
    return found if found.total else None


def _raised(
    instance: TreeInstance,
    found: Solution,
    least: Sequence[int],
    most: Sequence[int],
    budget: Budget,
    *,
    unfinished: bool = False,
) -> Solution:
    """More members than the `least` that were found, up to the `most`; first gangs first."""
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
    return [sum(part.wanted for part in instance.parts if part.gang == gang) for gang in range(len(instance.asked))]


def _place(
    instance: TreeInstance, needed: Sequence[int], budget: Budget, *, few: bool = False, unfinished: bool = False
) -> Solution | None:
    """So many members of each gang; in a `few` tries, if it is only sought how many fit."""
    state = instance.state
    checkpoint = state.checkpoint()
    best: Solution | None = None
    try:
        in_turn = _orders(instance)
        if list(needed) != _wanted(instance):
            in_turn.reverse()
        for order in in_turn[: 1 if few else None]:
            domains = _DOMAINS_FOR_MORE if few else _DOMAINS_TRIED
            solution = _Tries(instance, order, needed, budget, domains, unfinished=unfinished).seat_gangs()
            state.rollback(checkpoint)
            if solution is None:
                continue
            if is_best(instance, solution):
                return solution
            if best is None or solution_cost(instance, solution) < solution_cost(instance, best):
                best = solution
    finally:
        state.rollback(checkpoint)
    return best


class _Tries:
    """Parts in one order, of each as many as fit until its gang has so many members."""

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
        self._ground = instance
        self._order = order
        self._needed = needed
        self._budget = budget
        self._domains = domains
        self._unfinished = unfinished

    def seat_gangs(self) -> Solution | None:
        """Gang by gang; what is found stays taken."""
        solution = Solution([0] * len(self._ground.parts))
        for gang in dict.fromkeys(self._ground.parts[index].gang for index in self._order):
            seats = self._best_seats(gang)
            if seats is None:
                return None
            reserve_again(self._ground.state, self._ground.parts, Solution([], seats))
            solution.seats += seats
            for index, (_, counts) in seats:
                solution.placed[index] += int(counts.sum())
        return solution

    def _best_seats(self, gang: int) -> list[tuple[int, Seats]] | None:
        """The best of some domains of the lowest level that has any, the first if they are alike; nothing is taken."""
        state, tree, rules = self._ground.state, self._ground.tree, self._ground.asked[gang].rules
        parts = [index for index in self._order if self._ground.parts[index].gang == gang]
        for tier in self._where(gang):
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
                if self._keeps(gang, used, sizes[used]) and (best is None or cost < best[0]):
                    best = cost, seats
                    if reaches_bounds(self._ground, gang, sizes):
                        break
            if best is not None:
                return best[1]
        return None

    def _seat_parts(
        self, gang: int, parts: Sequence[int], first: int, last: int
    ) -> tuple[Int64, list[tuple[int, Seats]]] | None:
        """Members of the gang on each place once all its parts are seated, and the seats, which are taken."""
        tree_slice = TreeSlice(self._ground, gang, first, last)
        seats: list[tuple[int, Seats]] = []
        left = self._needed[gang]
        for index in parts:
            wanted = min(self._ground.parts[index].wanted, left)
            if not wanted:
                continue
            self._spend(last - first)
            taken = tree_slice.seat(index, wanted, more_to_come=self._unfinished or wanted < left)
            if taken is not None:
                seats.append((index, taken))
                left -= int(taken[1].sum())
        return None if left else (tree_slice.held, seats)

    def _keeps(self, gang: int, nodes: Int64, counts: Int64) -> bool:
        """Everything hard is kept, or can be once the rest has come."""
        rules, tree = self._ground.asked[gang].rules, self._ground.tree
        return (may_hold if self._unfinished else holds)(rules, tree, nodes, counts)

    def _where(self, gang: int) -> Iterator[Iterator[tuple[int, int]]]:
        """Stretches to try: single domains of the levels that are to be packed, the lowest first; then all."""
        tree, rules = self._ground.tree, self._ground.asked[gang].rules
        packed = list(takewhile(lambda rule: rule.shape is Shape.PACK, rules[:-1]))
        for at in range(len(packed) - 1, -1, -1):
            level = tree.levels[packed[at].level]
            domains = self._holding_all(gang, level.of, rules[at + 1])
            yield ((int(level.starts[domain]), int(level.starts[domain + 1])) for domain in domains)
        if any(rule.shape_is_hard for rule in packed):
            return
        if tree.inside < len(tree.rows) and self._ground.asked[gang].asks:
            yield iter([(0, tree.inside)])
        yield iter([(0, len(tree.rows))])

    def _holding_all(self, gang: int, of: Int64, below: Rule) -> list[int]:
        """Domains that have room for every part of the gang alone: those that can be divided best by the rule below,
        and of these the tightest.
        """
        instance = self._ground
        ours = [index for index, part in enumerate(instance.parts) if part.gang == gang]
        rows = instance.tree.rows
        seats = [
            np.where(instance.fits[index] > 0, instance.state.of(instance.parts[index].class_id).fits[rows], 0)
            for index in ours
        ]
        wanted = [instance.parts[index].wanted for index in ours]
        targets = [max(0, self._needed[gang] - sum(wanted) + count) for count in wanted]
        total = np.bincount(of, np.sum(seats, axis=0))
        enough = _enough(seats, targets, of) & (total >= self._needed[gang])
        there = np.bincount(of, instance.placed[gang])
        if there.any():
            enough &= there == there.sum()
        whole = np.flatnonzero(enough)
        lower = (
            instance.tree.levels[below.level].of if below.level < len(instance.tree.levels) else np.arange(len(rows))
        )
        promise = self._promise(seats, targets, self._needed[gang], lower, below, of)
        found: list[int] = whole[np.lexsort((total[whole], -promise[whole]))][: self._domains].tolist()
        return found

    def _promise(
        self, seats: Sequence[Int64], targets: Sequence[int], needed: int, lower: Int64, below: Rule, of: Int64
    ) -> Int64:
        """How well the members of each domain can be divided over those below it, more is better: int64[domains]."""
        if below.shape is Shape.PACK:
            good, most = _enough(seats, targets, lower), 1
        else:
            good = np.bincount(lower, np.sum(seats, axis=0)) > 0
            most = below.parts if below.shape is Shape.PARTITION else needed
        first = np.flatnonzero(np.diff(lower, prepend=-1))
        promise: Int64 = np.minimum(np.bincount(of[first], good[lower[first]], int(of[-1]) + 1), most).astype(np.int64)
        return promise

    def _spend(self, places: int) -> None:
        steps = 1 + places // _PLACES_PER_STEP
        if steps > self._budget.left:
            raise OutOfBudget
        self._budget.left -= steps


def _enough(seats: Sequence[Int64], targets: Sequence[int], of: Int64) -> Bool:
    """Domains that have seats for each part alone: bool[domains]."""
    enough: Bool = np.all(
        [np.bincount(of, each) >= target for each, target in zip(seats, targets, strict=True)], axis=0
    )
    return enough


def _orders(instance: TreeInstance) -> list[list[int]]:
    """The hardest part first; the one with most members first; as they come, which is the preferred one first."""
    seats = instance.fits.sum(axis=1).tolist()
    parts = range(len(seats))
    hardest = sorted(parts, key=lambda index: (seats[index], index))
    largest = sorted(parts, key=lambda index: (-instance.parts[index].wanted, index))
    return [list(order) for order in dict.fromkeys((tuple(hardest), tuple(largest), tuple(parts)))]
