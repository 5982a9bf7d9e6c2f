"""Groups under constraints whose members differ, or that are of several gangs: exactly where that can be, else well.

Gangs that go by one tree are settled together by a ladder of prices. If that would take too long, fewer nodes are
looked at, then members of one class after another; gangs on different trees come one by one. What such ways do not
find may still be there, and is not called impossible.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, permutations
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import SolveGroup
from muster.placement.explain.constraints import explain_constraints
from muster.placement.explain.explainer import Explainer
from muster.placement.solve.bounds import impossible, too_little_within
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.class_by_class import any_by_class, most_by_class, place_by_class
from muster.placement.solve.costs import is_best, solution_cost
from muster.placement.solve.dynamic_programme import MAX_SHARES, DynamicProgramme, shares_of, steps_for
from muster.placement.solve.instance import (
    ConstrainedGang,
    NotPlaced,
    Part,
    Placed,
    Solution,
    TreeInstance,
    assignments_of,
    reserve_again,
    tree_instance,
)
from muster.placement.solve.level_rules import rules_of
from muster.placement.solve.tables import best_cell, most_toward
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.trees import Tree

_ORDERS_OF_GANGS: Final = 6
_FEWEST_PLACES: Final = 16
"""Places that are worth looking at, when not all can be."""
_AT_ONCE: Final = 300
_TO_IMPROVE: Final = 8_000
"""Steps up to which a ladder is quicker than quick tries, and that may be spent to find better than these found."""
_QUICK: Final = 6_000
"""Steps that quick tries may take."""
_OVERRATED: Final = 4
"""The bound on a ladder's steps is so many times what it tends to take."""


def place_constrained(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place all members if that can be, else every gang's minimum and as many more as have room."""
    search = _Constrained(state, group, parts, budget)
    solution, proved = search.best([gang.minimum for gang in group.gangs])
    if solution is None:

        def has_place(other: SolveGroup, wished: Budget) -> bool:
            granted = min(wished.left, budget.left)
            budget.left -= granted
            return granted > 0 and has_any_place(state, other, parts, Budget(granted))

        most = search.most() or Solution([0] * len(parts))
        return NotPlaced(proved, explain_constraints(state, group, parts, explainer, most, has_place))
    reserve_again(state, parts, solution)
    return Placed(assignments_of(state, group, parts, solution))


def has_any_place(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """All minimums have a place as far as the budget reaches to tell; nothing is taken."""
    minimums = [gang.minimum for gang in group.gangs]
    return _Constrained(state, group, parts, budget).any(minimums) is not None


def part_that_fits(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """As many toward the minimums as can be placed so that the rest may follow; not taken yet."""
    return _Constrained(state, group, parts, budget).most()


_Quick = Callable[[TreeInstance, Sequence[int], Budget], Solution | None]


class _Constrained:
    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> None:
        self._state = state
        self._group = group
        self._parts = parts
        self._budget = budget
        named = next((gang.tree for gang in group.gangs if gang.constraints), group.gangs[0].tree)
        # who asks nothing of a tree goes along with the others
        self._trees = [_tree(state, gang.tree if gang.constraints else named) for gang in group.gangs]
        self._asked = [
            ConstrainedGang(gang, rules_of(gang.constraints, tree.level_names))
            for gang, tree in zip(group.gangs, self._trees, strict=True)
        ]

    def best(self, least: Sequence[int]) -> tuple[Solution | None, bool]:
        """Seats, not taken yet, for `least[gang]` members or more; if there are none, whether that is proved."""
        if impossible(self._state, self._parts, least):
            return None, True
        if not self._on_one_tree:
            return self._one_by_one(least)
        instance = self._ground()
        if too_little_within(instance, least):
            return None, True
        quick = None
        if steps_for(instance, instance.places) > min(_AT_ONCE, self._budget.left):
            quick = self._quickly(place_by_class, instance, least)
            if quick is not None and is_best(instance, quick):
                return quick, False
        found, proved = self._by_ladder(instance, least, _TO_IMPROVE if quick is not None else self._budget.left)
        if found is None or (quick is not None and solution_cost(instance, quick) < solution_cost(instance, found)):
            return quick, proved and quick is None
        return found, False

    def any(self, least: Sequence[int]) -> Solution | None:
        """As `best`, but the first place that is found."""
        if self._on_one_tree and not impossible(self._state, self._parts, least):
            instance = self._ground()
            if too_little_within(instance, least):
                return None
            found = self._quickly(any_by_class, instance, least)
            if found is not None:
                return found
        return self.best(least)[0]

    def most(self) -> Solution | None:
        """As much as can be placed, so that the rest may follow."""
        if not self._on_one_tree:
            return self._most_one_by_one()
        minimums = [asked.gang.minimum for asked in self._asked]
        whole, steps = self._ground(), self._budget.left
        for instance in self._grounds(whole, steps):
            priced = self._price(instance, steps, unfinished=True)
            if priced is not None:
                programme, table = priced
                cell = most_toward(table, self._parts, minimums)
                return None if cell is None else programme.solution(cell)
        return self._quickly(most_by_class, whole, minimums)

    @property
    def _on_one_tree(self) -> bool:
        return all(tree is self._trees[0] for tree in self._trees)

    def _quickly(self, way: _Quick, instance: TreeInstance, least: Sequence[int]) -> Solution | None:
        """By class, which is not at the cost of the groups that come after."""
        try:
            return way(instance, least, Budget(_QUICK))
        except OutOfBudget:
            return None

    def _by_ladder(self, whole: TreeInstance, least: Sequence[int], steps: int) -> tuple[Solution | None, bool]:
        wanted = sum(part.wanted for part in self._parts)
        best: Solution | None = None
        for instance in self._grounds(whole, steps):
            for any_parts in (False, True):
                priced = self._price(instance, steps, any_parts=any_parts)
                if priced is None:
                    break
                programme, table = priced
                cell = best_cell(table, self._parts, least, programme.ties)
                if cell is not None and (best is None or sum(cell) > best.total):
                    best = programme.solution(cell)
                if programme.whole or (best is not None and best.total == wanted):
                    return best, best is None
            if best is not None:
                break
        return best, False

    def _grounds(self, whole: TreeInstance, steps: int) -> Iterator[TreeInstance]:
        """All of the tree, then ever less of it, as long as there is hope that the steps suffice."""
        if shares_of(self._parts) > MAX_SHARES:
            return
        places = whole.places
        while places:
            if steps_for(whole, places) <= _OVERRATED * min(steps, self._budget.left):
                yield whole if places == whole.places else narrowed(whole, places)
            places = places // 2 if places > _FEWEST_PLACES else 0

    def _price(
        self, instance: TreeInstance, steps: int, *, unfinished: bool = False, any_parts: bool = False
    ) -> tuple[DynamicProgramme, Int64] | None:
        """The ladder and the prices of all shares; None if the steps do not suffice."""
        granted = min(steps, self._budget.left)
        budget = Budget(granted)
        try:
            programme = DynamicProgramme(instance, budget, unfinished=unfinished, any_parts=any_parts)
            return programme, programme.climb()
        except OutOfBudget:
            return None
        finally:
            self._budget.left -= granted - budget.left

    def _one_by_one(self, least: Sequence[int]) -> tuple[Solution | None, bool]:
        """Gangs on different trees."""
        gangs = range(len(self._asked))
        for order in islice(permutations(gangs), _ORDERS_OF_GANGS):
            checkpoint = self._state.checkpoint()
            solution = Solution([0] * len(self._parts))
            for nth, gang in enumerate(order):
                found, proved = self._of_gang(gang).best([least[gang]])
                if found is None:
                    self._state.rollback(checkpoint)
                    if proved and not nth:
                        return None, True
                    break
                self._take_over(gang, found, solution)
            else:
                self._state.rollback(checkpoint)
                return solution, False
        return None, False

    def _most_one_by_one(self) -> Solution | None:
        """Gangs on different trees."""
        solution = Solution([0] * len(self._parts))
        checkpoint = self._state.checkpoint()
        for gang in range(len(self._asked)):
            found = self._of_gang(gang).most()
            if found is not None:
                self._take_over(gang, found, solution)
        self._state.rollback(checkpoint)
        return solution if solution.total else None

    def _take_over(self, gang: int, found: Solution, solution: Solution) -> None:
        """Take what was found for a gang alone, and add it to the attempt for all."""
        ours = [index for index, part in enumerate(self._parts) if part.gang == gang]
        seats = [(ours[index], taken) for index, taken in found.seats]
        reserve_again(self._state, self._parts, Solution([], seats))
        solution.seats += seats
        for index, (_, counts) in seats:
            solution.placed[index] += int(counts.sum())

    def _of_gang(self, gang: int) -> "_Constrained":
        group = SolveGroup(self._group.id, (self._group.gangs[gang],))
        parts = [replace(part, gang=0) for part in self._parts if part.gang == gang]
        return _Constrained(self._state, group, parts, self._budget)

    def _ground(self) -> TreeInstance:
        return tree_instance(self._state, self._trees[0], self._asked, self._parts)


def _tree(state: CapacityState, name: str) -> Tree:
    tree = state.trees.get(name)
    assert tree is not None, f"tree {name!r} was not checked"
    return tree


_OF_EACH: Final = 2
"""Domains of each level that hold the whole group most tightly, and that have most room, whose nodes come first."""


def narrowed(instance: TreeInstance, places: int) -> TreeInstance:
    """The ground with room on so many places only, besides those where members are."""
    levels = sorted(
        {rule.level for one in instance.asked for rule in one.rules if rule.level < len(instance.tree.levels)}
    )
    preferred = np.zeros(instance.fits.shape[1], np.bool_)
    for level in levels:
        preferred |= _promising(instance, instance.tree.levels[level].of)
    room_for = instance.fits.sum(axis=0)
    usable = np.flatnonzero(room_for)
    lowest = instance.tree.levels[levels[-1]].of if levels else np.zeros(len(preferred), np.int64)
    turn = _turns(lowest[usable], room_for[usable])
    order = np.lexsort((turn, ~preferred[usable]))
    chosen: Bool = np.zeros(len(preferred), np.bool_)
    chosen[usable[order[:places]]] = True
    return instance.only(chosen)


def _promising(instance: TreeInstance, of: Int64) -> Bool:
    """Places in those domains of a level that hold all members most tightly, and in those with most room."""
    wanted = np.array([part.wanted for part in instance.parts])
    seats = np.array([np.bincount(of, fits) for fits in instance.fits]).astype(np.int64)  # int64[parts, domains]
    whole = np.flatnonzero((seats >= wanted[:, None]).all(axis=0))
    total = seats.sum(axis=0)
    most = np.minimum(seats, wanted[:, None]).sum(axis=0)
    tightest = whole[np.argsort(total[whole], kind="stable")[:_OF_EACH]]
    roomiest = np.lexsort((-total, -most))[:_OF_EACH]
    return np.isin(of, np.concatenate((tightest, roomiest)))


def _turns(domain: Int64, room_for: Int64) -> Int64:
    """Place of each node among those of its domain, the one with most room first."""
    order = np.lexsort((-room_for, domain))
    sorted_ = domain[order]
    first = np.flatnonzero(np.append(True, sorted_[1:] != sorted_[:-1])) if len(order) else order
    turns = np.zeros(len(order), np.int64)
    turns[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return turns
