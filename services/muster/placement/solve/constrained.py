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
from muster.placement.explain.constraints import hindrance
from muster.placement.explain.explainer import Explainer
from muster.placement.solve.bounds import impossible, too_little_within
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.class_by_class import any_by_class, most_by_class, place_by_class
from muster.placement.solve.costs import is_best, worth
from muster.placement.solve.dynamic_programme import MOST_SHARES, Ladder, shares_of, steps_for
from muster.placement.solve.instance import (
    Asked,
    Attempt,
    Ground,
    NotPlaced,
    Part,
    Placed,
    assignments_of,
    ground_of,
    retake,
)
from muster.placement.solve.level_rules import rules_of
from muster.placement.solve.tables import best_cell, most_toward
from muster.placement.state.capacity import Room
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
    room: Room, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place all members if that can be, else every gang's minimum and as many more as have room."""
    search = _Constrained(room, group, parts, budget)
    attempt, proved = search.best([gang.minimum for gang in group.gangs])
    if attempt is None:

        def has_place(other: SolveGroup, wished: Budget) -> bool:
            granted = min(wished.left, budget.left)
            budget.left -= granted
            return granted > 0 and has_any_place(room, other, parts, Budget(granted))

        most = search.most() or Attempt([0] * len(parts))
        return NotPlaced(proved, hindrance(room, group, parts, explainer, most, has_place))
    retake(room, parts, attempt)
    return Placed(assignments_of(room, group, parts, attempt))


def has_any_place(room: Room, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """All minimums have a place as far as the budget reaches to tell; nothing is taken."""
    minimums = [gang.minimum for gang in group.gangs]
    return _Constrained(room, group, parts, budget).any(minimums) is not None


def part_that_fits(room: Room, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Attempt | None:
    """As many toward the minimums as can be placed so that the rest may follow; not taken yet."""
    return _Constrained(room, group, parts, budget).most()


_Quick = Callable[[Ground, Sequence[int], Budget], Attempt | None]


class _Constrained:
    def __init__(self, room: Room, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> None:
        self._room = room
        self._group = group
        self._parts = parts
        self._budget = budget
        named = next((gang.tree for gang in group.gangs if gang.constraints), group.gangs[0].tree)
        # who asks nothing of a tree goes along with the others
        self._trees = [_tree(room, gang.tree if gang.constraints else named) for gang in group.gangs]
        self._asked = [
            Asked(gang, rules_of(gang.constraints, tree.level_names))
            for gang, tree in zip(group.gangs, self._trees, strict=True)
        ]

    def best(self, least: Sequence[int]) -> tuple[Attempt | None, bool]:
        """Seats, not taken yet, for `least[gang]` members or more; if there are none, whether that is proved."""
        if impossible(self._room, self._parts, least):
            return None, True
        if not self._on_one_tree:
            return self._one_by_one(least)
        ground = self._ground()
        if too_little_within(ground, least):
            return None, True
        quick = None
        if steps_for(ground, ground.places) > min(_AT_ONCE, self._budget.left):
            quick = self._quickly(place_by_class, ground, least)
            if quick is not None and is_best(ground, quick):
                return quick, False
        found, proved = self._by_ladder(ground, least, _TO_IMPROVE if quick is not None else self._budget.left)
        if found is None or (quick is not None and worth(ground, quick) < worth(ground, found)):
            return quick, proved and quick is None
        return found, False

    def any(self, least: Sequence[int]) -> Attempt | None:
        """As `best`, but the first place that is found."""
        if self._on_one_tree and not impossible(self._room, self._parts, least):
            ground = self._ground()
            if too_little_within(ground, least):
                return None
            found = self._quickly(any_by_class, ground, least)
            if found is not None:
                return found
        return self.best(least)[0]

    def most(self) -> Attempt | None:
        """As much as can be placed, so that the rest may follow."""
        if not self._on_one_tree:
            return self._most_one_by_one()
        minimums = [asked.gang.minimum for asked in self._asked]
        whole, steps = self._ground(), self._budget.left
        for ground in self._grounds(whole, steps):
            priced = self._price(ground, steps, unfinished=True)
            if priced is not None:
                ladder, table = priced
                cell = most_toward(table, self._parts, minimums)
                return None if cell is None else ladder.attempt(cell)
        return self._quickly(most_by_class, whole, minimums)

    @property
    def _on_one_tree(self) -> bool:
        return all(tree is self._trees[0] for tree in self._trees)

    def _quickly(self, way: _Quick, ground: Ground, least: Sequence[int]) -> Attempt | None:
        """By class, which is not at the cost of the groups that come after."""
        try:
            return way(ground, least, Budget(_QUICK))
        except OutOfBudget:
            return None

    def _by_ladder(self, whole: Ground, least: Sequence[int], steps: int) -> tuple[Attempt | None, bool]:
        wanted = sum(part.wanted for part in self._parts)
        best: Attempt | None = None
        for ground in self._grounds(whole, steps):
            for any_parts in (False, True):
                priced = self._price(ground, steps, any_parts=any_parts)
                if priced is None:
                    break
                ladder, table = priced
                cell = best_cell(table, self._parts, least, ladder.ties)
                if cell is not None and (best is None or sum(cell) > best.total):
                    best = ladder.attempt(cell)
                if ladder.whole or (best is not None and best.total == wanted):
                    return best, best is None
            if best is not None:
                break
        return best, False

    def _grounds(self, whole: Ground, steps: int) -> Iterator[Ground]:
        """All of the tree, then ever less of it, as long as there is hope that the steps suffice."""
        if shares_of(self._parts) > MOST_SHARES:
            return
        places = whole.places
        while places:
            if steps_for(whole, places) <= _OVERRATED * min(steps, self._budget.left):
                yield whole if places == whole.places else narrowed(whole, places)
            places = places // 2 if places > _FEWEST_PLACES else 0

    def _price(
        self, ground: Ground, steps: int, *, unfinished: bool = False, any_parts: bool = False
    ) -> tuple[Ladder, Int64] | None:
        """The ladder and the prices of all shares; None if the steps do not suffice."""
        granted = min(steps, self._budget.left)
        budget = Budget(granted)
        try:
            ladder = Ladder(ground, budget, unfinished=unfinished, any_parts=any_parts)
            return ladder, ladder.climb()
        except OutOfBudget:
            return None
        finally:
            self._budget.left -= granted - budget.left

    def _one_by_one(self, least: Sequence[int]) -> tuple[Attempt | None, bool]:
        """Gangs on different trees."""
        gangs = range(len(self._asked))
        for order in islice(permutations(gangs), _ORDERS_OF_GANGS):
            mark = self._room.mark()
            attempt = Attempt([0] * len(self._parts))
            for nth, gang in enumerate(order):
                found, proved = self._of_gang(gang).best([least[gang]])
                if found is None:
                    self._room.undo(mark)
                    if proved and not nth:
                        return None, True
                    break
                self._take_over(gang, found, attempt)
            else:
                self._room.undo(mark)
                return attempt, False
        return None, False

    def _most_one_by_one(self) -> Attempt | None:
        """Gangs on different trees."""
        attempt = Attempt([0] * len(self._parts))
        mark = self._room.mark()
        for gang in range(len(self._asked)):
            found = self._of_gang(gang).most()
            if found is not None:
                self._take_over(gang, found, attempt)
        self._room.undo(mark)
        return attempt if attempt.total else None

    def _take_over(self, gang: int, found: Attempt, attempt: Attempt) -> None:
        """Take what was found for a gang alone, and add it to the attempt for all."""
        ours = [index for index, part in enumerate(self._parts) if part.gang == gang]
        seats = [(ours[index], taken) for index, taken in found.seats]
        retake(self._room, self._parts, Attempt([], seats))
        attempt.seats += seats
        for index, (_, counts) in seats:
            attempt.placed[index] += int(counts.sum())

    def _of_gang(self, gang: int) -> "_Constrained":
        group = SolveGroup(self._group.id, (self._group.gangs[gang],))
        parts = [replace(part, gang=0) for part in self._parts if part.gang == gang]
        return _Constrained(self._room, group, parts, self._budget)

    def _ground(self) -> Ground:
        return ground_of(self._room, self._trees[0], self._asked, self._parts)


def _tree(room: Room, name: str) -> Tree:
    tree = room.trees.get(name)
    assert tree is not None, f"tree {name!r} was not checked"
    return tree


_OF_EACH: Final = 2
"""Domains of each level that hold the whole group most tightly, and that have most room, whose nodes come first."""


def narrowed(ground: Ground, places: int) -> Ground:
    """The ground with room on so many places only, besides those where members are."""
    levels = sorted({rule.level for one in ground.asked for rule in one.rules if rule.level < len(ground.tree.levels)})
    preferred = np.zeros(ground.fits.shape[1], np.bool_)
    for level in levels:
        preferred |= _promising(ground, ground.tree.levels[level].of)
    room_for = ground.fits.sum(axis=0)
    usable = np.flatnonzero(room_for)
    lowest = ground.tree.levels[levels[-1]].of if levels else np.zeros(len(preferred), np.int64)
    turn = _turns(lowest[usable], room_for[usable])
    order = np.lexsort((turn, ~preferred[usable]))
    chosen: Bool = np.zeros(len(preferred), np.bool_)
    chosen[usable[order[:places]]] = True
    return ground.only(chosen)


def _promising(ground: Ground, of: Int64) -> Bool:
    """Places in those domains of a level that hold all members most tightly, and in those with most room."""
    wanted = np.array([part.wanted for part in ground.parts])
    seats = np.array([np.bincount(of, fits) for fits in ground.fits]).astype(np.int64)  # int64[parts, domains]
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
