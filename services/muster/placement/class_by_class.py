"""Groups under constraints that are too large to look at all ways: members of one class after another, each as equal
members are divided, with those before them as members that are there already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.division import Divider, Division
from muster.placement.ground import Ground
from muster.placement.growing import Growing
from muster.placement.nodes import Bool
from muster.placement.packing import Seats
from muster.placement.parts import Attempt, retake
from muster.placement.rules import UNBOUNDED, Rule, Shape, relaxed
from muster.placement.search import Budget, OutOfBudget
from muster.placement.sizes import Cost, cost_of, holds
from muster.placement.worth import is_best, reaches_bounds, worth

_DOMAINS_TRIED: Final = 8
"""Of those that have room for all by each class alone."""
_PLACES_PER_STEP: Final = 50
"""Places that members of a class are divided over in the time of one step of a search."""


def place_by_class(ground: Ground, least: Sequence[int], budget: Budget) -> Attempt | None:
    """Seats, not taken, for all members, else for the minimums; the best of a few tries.

    Raises OutOfBudget.
    """
    mark = ground.room.mark()
    try:
        return _place(ground, least, budget)
    finally:
        ground.room.undo(mark)


def _place(ground: Ground, least: Sequence[int], budget: Budget) -> Attempt | None:
    for targets in (tuple(part.wanted for part in ground.parts), _first_parts(ground, least)):
        best: Attempt | None = None
        for order in _orders(ground):
            attempt = _Tries(ground, order, targets, budget).seat_gangs()
            if attempt is None:
                continue
            if is_best(ground, attempt):
                return attempt
            if best is None or worth(ground, attempt) < worth(ground, best):
                best = attempt
        if best is not None:
            return best
    return None


class _Tries:
    """Parts in one order, each with so many members."""

    def __init__(self, ground: Ground, order: Sequence[int], targets: Sequence[int], budget: Budget) -> None:
        self._ground = ground
        self._order = order
        self._targets = targets
        self._budget = budget

    def seat_gangs(self) -> Attempt | None:
        """Gang by gang; the room is left as it was."""
        room = self._ground.room
        mark = room.mark()
        attempt = Attempt(list(self._targets))
        for gang in dict.fromkeys(self._ground.parts[index].gang for index in self._order):
            seats = self._best_seats(gang)
            if seats is None:
                room.undo(mark)
                return None
            retake(room, self._ground.parts, Attempt([], seats))
            attempt.seats += seats
        room.undo(mark)
        return attempt

    def _best_seats(self, gang: int) -> list[tuple[int, Seats]] | None:
        """The best of some domains of the lowest level that has any, the first if they are alike; nothing is taken."""
        room, tree, rules = self._ground.room, self._ground.tree, self._ground.asked[gang].rules
        parts = [index for index in self._order if self._ground.parts[index].gang == gang and self._targets[index]]
        for tier in self._where(gang):
            best: tuple[Cost, list[tuple[int, Seats]]] | None = None
            for places in tier:
                mark = room.mark()
                seated = self._seat_parts(gang, parts, places)
                room.undo(mark)
                if seated is None:
                    continue
                sizes, seats = seated
                used = np.flatnonzero(sizes)
                cost = cost_of(rules, tree, used, sizes[used])
                if holds(rules, tree, used, sizes[used]) and (best is None or cost < best[0]):
                    best = cost, seats
                    if reaches_bounds(self._ground, gang, sizes):
                        break
            if best is not None:
                return best[1]
        return None

    def _seat_parts(
        self, gang: int, parts: Sequence[int], places: Bool
    ) -> tuple[Int64, list[tuple[int, Seats]]] | None:
        """Members of the gang on each place once all its parts are seated, and the seats, which are taken."""
        ground, rules = self._ground, self._ground.asked[gang].rules
        held: Int64 = ground.placed[gang].copy()
        seats: list[tuple[int, Seats]] = []
        for index in parts:
            self._spend(len(held))
            of_class = ground.room.of(ground.parts[index].class_id)
            caps = np.where(places & (ground.fits[index] > 0), of_class.fits[ground.tree.rows], 0)
            ways = list(relaxed(rules)) if index == parts[-1] else [tuple(map(_to_be_continued, rules))]
            division = self._divide([ways[0], ways[-1]], caps, held, self._targets[index])
            if division is None:
                return None
            rows = ground.tree.rows[division.nodes]
            ground.room.take(of_class, rows, division.counts)
            seats.append((index, (rows, division.counts)))
            held[division.nodes] += division.counts
        return held, seats

    def _divide(self, ways: Sequence[tuple[Rule, ...]], caps: Int64, held: Int64, members: int) -> Division | None:
        caps = np.minimum(caps, members)
        for rules in ways:
            children = self._ground.tree.children([rule.level for rule in rules], len(caps))
            if held.any():
                found = Growing(rules, children, caps, held).place(members)
            else:
                found = Divider(rules, children, caps, members).place(members)
            if found is not None:
                return found
        return None

    def _where(self, gang: int) -> Iterator[Iterator[Bool]]:
        """Places to try: single domains of the levels that are to be packed, the lowest first; then all."""
        tree, rules = self._ground.tree, self._ground.asked[gang].rules
        everywhere: Bool = np.ones(len(tree.rows), np.bool_)
        packed = list(takewhile(lambda rule: rule.shape is Shape.PACK, rules[:-1]))
        for at in range(len(packed) - 1, -1, -1):
            of = tree.levels[packed[at].level].of
            yield (of == domain for domain in self._holding_all(gang, of, rules[at + 1]))
        if any(rule.shape_is_hard for rule in packed):
            return
        if tree.inside < len(everywhere):
            yield iter([np.arange(len(everywhere)) < tree.inside])
        yield iter([everywhere])

    def _holding_all(self, gang: int, of: Int64, below: Rule) -> list[int]:
        """Domains that have room for every part of the gang alone: those that can be divided best by the rule below,
        and of these the tightest.
        """
        ground = self._ground
        ours = [index for index, part in enumerate(ground.parts) if part.gang == gang]
        rows = ground.tree.rows
        seats = [
            np.where(ground.fits[index] > 0, ground.room.of(ground.parts[index].class_id).fits[rows], 0)
            for index in ours
        ]
        targets = [self._targets[index] for index in ours]
        enough = _enough(seats, targets, of)
        there = np.bincount(of, ground.placed[gang])
        if there.any():
            enough &= there == there.sum()
        whole = np.flatnonzero(enough)
        lower = ground.tree.levels[below.level].of if below.level < len(ground.tree.levels) else np.arange(len(rows))
        total = np.bincount(of, np.sum(seats, axis=0))
        promise = self._promise(seats, targets, lower, below, of)
        found: list[int] = whole[np.lexsort((total[whole], -promise[whole]))][:_DOMAINS_TRIED].tolist()
        return found

    def _promise(self, seats: Sequence[Int64], targets: Sequence[int], lower: Int64, below: Rule, of: Int64) -> Int64:
        """How well the members of each domain can be divided over those below it, more is better: int64[domains]."""
        if below.shape is Shape.PACK:
            good, most = _enough(seats, targets, lower), 1
        else:
            good = np.bincount(lower, np.sum(seats, axis=0)) > 0
            most = below.parts if below.shape is Shape.PARTITION else sum(targets)
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


def _to_be_continued(rule: Rule) -> Rule:
    """What holds of a rule while more members are to come."""
    return replace(
        rule,
        shape_is_hard=rule.shape_is_hard and rule.shape is Shape.PACK,
        least=1,
        step=1,
        most=rule.most or UNBOUNDED,
    )


def _orders(ground: Ground) -> list[list[int]]:
    """The hardest part first, and the one with most members first."""
    seats = ground.fits.sum(axis=1).tolist()
    parts = range(len(seats))
    hardest = sorted(parts, key=lambda index: (seats[index], index))
    largest = sorted(parts, key=lambda index: (-ground.parts[index].wanted, index))
    return [list(order) for order in dict.fromkeys((tuple(hardest), tuple(largest), tuple(parts)))]


def _first_parts(ground: Ground, least: Sequence[int]) -> tuple[int, ...]:
    """Members of each part that make up the minimums when first parts go first."""
    left = list(least)
    targets = []
    for part in ground.parts:
        targets.append(min(part.wanted, left[part.gang]))
        left[part.gang] -= targets[-1]
    return tuple(targets)
