"""Groups under constraints that are too large to look at all ways: members of one class after another, each as equal
members are divided, with those before them as members that are there already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.division import Divider, Division
from muster.placement.ground import Ground
from muster.placement.growing import Growing
from muster.placement.nodes import Bool
from muster.placement.parts import Attempt
from muster.placement.rules import UNBOUNDED, Rule, Shape, relaxed
from muster.placement.sizes import Cost, cost_of, holds

_DOMAINS_TRIED: Final = 8
"""Of each level, that have room for all by each class alone, the tightest first."""


def place_by_class(ground: Ground, least: Sequence[int]) -> Attempt | None:
    """Seats, not taken, for all members, else for the minimums; the best of a few tries."""
    for targets in (tuple(part.wanted for part in ground.parts), _first_parts(ground, least)):
        found = [done for order in _orders(ground) if (done := _Tries(ground, order, targets).seat_gangs()) is not None]
        if found:
            return min(found, key=lambda done: done.cost).attempt
    return None


@dataclass(frozen=True)
class _Done:
    attempt: Attempt
    cost: Cost


class _Tries:
    """Parts in one order, each with so many members."""

    def __init__(self, ground: Ground, order: Sequence[int], targets: Sequence[int]) -> None:
        self._ground = ground
        self._order = order
        self._targets = targets
        self._attempt = Attempt([0] * len(targets))
        self._cost: Cost = ()

    def seat_gangs(self) -> _Done | None:
        """Gang by gang; the room is left as it was."""
        room = self._ground.room
        mark = room.mark()
        gangs = dict.fromkeys(self._ground.parts[index].gang for index in self._order)
        done = all(self._seat_gang(gang) for gang in gangs)
        room.undo(mark)
        return _Done(self._attempt, self._cost) if done else None

    def _seat_gang(self, gang: int) -> bool:
        room, tree, rules = self._ground.room, self._ground.tree, self._ground.asked[gang].rules
        parts = [index for index in self._order if self._ground.parts[index].gang == gang and self._targets[index]]
        for places in self._where(gang):
            mark, seats = room.mark(), len(self._attempt.seats)
            sizes = self._seat_parts(gang, parts, places)
            if sizes is not None:
                used = np.flatnonzero(sizes)
                if holds(rules, tree, used, sizes[used]):
                    self._cost += cost_of(rules, tree, used, sizes[used])
                    for index in parts:
                        self._attempt.placed[index] = self._targets[index]
                    return True
            room.undo(mark)
            del self._attempt.seats[seats:]
        return False

    def _seat_parts(self, gang: int, parts: Sequence[int], places: Bool) -> Int64 | None:
        """Members of the gang on each place once all its parts are seated."""
        ground, rules = self._ground, self._ground.asked[gang].rules
        held: Int64 = ground.placed[gang].copy()
        for index in parts:
            of_class = ground.room.of(ground.parts[index].class_id)
            caps = np.where(places & (ground.fits[index] > 0), of_class.fits[ground.tree.rows], 0)
            ways = list(relaxed(rules)) if index == parts[-1] else [tuple(map(_to_be_continued, rules))]
            division = self._divide([ways[0], ways[-1]], caps, held, self._targets[index])
            if division is None:
                return None
            rows = ground.tree.rows[division.nodes]
            ground.room.take(of_class, rows, division.counts)
            self._attempt.seats.append((index, (rows, division.counts)))
            held[division.nodes] += division.counts
        return held

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

    def _where(self, gang: int) -> Iterator[Bool]:
        """Places to try: one domain of the levels that are to be packed, the lowest first; then all."""
        ground, tree = self._ground, self._ground.tree
        everywhere: Bool = np.ones(len(tree.rows), np.bool_)
        packed = []
        for rule in ground.asked[gang].rules:
            if rule.shape is not Shape.PACK or rule.level >= len(tree.levels):
                break
            packed.append(rule)
        for rule in reversed(packed):
            of = tree.levels[rule.level].of
            for domain in self._holding_all(gang, of):
                yield of == domain
        if any(rule.shape_is_hard for rule in packed):
            return
        if tree.inside < len(everywhere):
            yield np.arange(len(everywhere)) < tree.inside
        yield everywhere

    def _holding_all(self, gang: int, of: Int64) -> list[int]:
        """Domains that have room for every part of the gang alone, the tightest first."""
        ground = self._ground
        ours = [index for index, part in enumerate(ground.parts) if part.gang == gang]
        rows = ground.tree.rows
        seats = [
            np.bincount(
                of, np.where(ground.fits[index] > 0, ground.room.of(ground.parts[index].class_id).fits[rows], 0)
            )
            for index in ours
        ]
        enough = np.all([have >= self._targets[index] for have, index in zip(seats, ours, strict=True)], axis=0)
        there = np.bincount(of, ground.placed[gang])
        if there.any():
            enough &= there == there.sum()
        whole = np.flatnonzero(enough)
        total = np.sum(seats, axis=0)[whole]
        found: list[int] = whole[np.argsort(total, kind="stable")][:_DOMAINS_TRIED].tolist()
        return found


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
