"""Exact search for members that mind one another: they come one by one, each where the rules let it go at that time.

For few members and few kinds of nodes it finds the best that can be had, or proves what cannot.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.placing import GroupToPlace
from muster.placement.parts import Attempt, Part, minimums_reached
from muster.placement.room import ClassRoom, Room
from muster.placement.search import Budget, OutOfBudget

MOST_MEMBERS: Final = 16
MOST_NODES: Final = 64
"""Beyond these a search has no hope within its budget."""
_STEPS_PER_STATE: Final = 4
"""What looking at one state costs, in the steps of other searches."""

Accept = Callable[[Attempt], bool]
"""Whether an attempt keeps what is asked of it as a whole."""

_State = tuple[object, ...]


def search_stepwise(
    room: Room, group: GroupToPlace, parts: Sequence[Part], budget: Budget, accept: Accept, best: Attempt | None
) -> tuple[Attempt | None, bool]:
    """The attempt with most members that is accepted and reaches all minimums, and whether none has more; `best` is one
    that is known. Nothing stays taken.
    """
    if sum(part.wanted for part in parts) > MOST_MEMBERS:
        return best, False
    search = _Stepwise(room, group, parts, budget, accept, best)
    if len(search.rows) > MOST_NODES:
        return best, False
    mark = room.mark()
    try:
        search.go(0)
    except OutOfBudget:
        return search.best, False
    finally:
        room.undo(mark)
    return search.best, True


class _Stepwise:
    """`rows` are the nodes on which some member fits if nobody minds it, by name."""

    def __init__(
        self,
        room: Room,
        group: GroupToPlace,
        parts: Sequence[Part],
        budget: Budget,
        accept: Accept,
        best: Attempt | None,
    ) -> None:
        self.best = best
        self._room = room
        self._group = group
        self._parts = parts
        self._budget = budget
        self._accept = accept
        self._members = sum(part.wanted for part in parts)
        rooms = [room.of(part.class_id) for part in parts]
        useful = np.logical_or.reduce([of_class.alone > 0 for of_class in rooms])
        rows = np.flatnonzero(useful)
        self.rows: Int64 = rows[np.argsort(room.nodes.rank[rows])]
        self._kinds = _kinds(room, rooms, self.rows) if len(self.rows) <= MOST_NODES else []
        self._any_order = any(_loosens(of_class) for of_class in rooms)
        self._placed: dict[int, list[int]] = {}  # index into rows -> members of each part
        self._counts = [0] * len(parts)
        self._seen: set[_State] = set()

    def go(self, first_part: int) -> None:
        """Try all ways to go on, parts from this one on unless a later one may help an earlier one."""
        for _ in range(_STEPS_PER_STATE):
            self._budget.spend()
        self._note()
        for index in range(0 if self._any_order else first_part, len(self._parts)):
            if self._counts[index] < self._parts[index].wanted and self._worth_it(index):
                for at in self._choices(index):
                    self._step(index, at)
                    if self._done():
                        return

    def _step(self, index: int, at: int) -> None:
        here = self._placed.setdefault(at, [0] * len(self._parts))
        here[index] += 1
        self._counts[index] += 1
        state = self._state(index)
        if state not in self._seen:
            self._seen.add(state)
            mark = self._room.mark()
            self._room.take(self._room.of(self._parts[index].class_id), self.rows[at : at + 1], np.array([1]))
            self.go(index)
            self._room.undo(mark)
        self._counts[index] -= 1
        here[index] -= 1
        if not any(here):
            del self._placed[at]

    def _choices(self, index: int) -> list[int]:
        """Nodes for the next member of a part, one of each kind that is used alike."""
        fits = self._room.of(self._parts[index].class_id).fits[self.rows]
        unlike: dict[_State, int] = {}
        for at in np.flatnonzero(fits > 0).tolist():
            unlike.setdefault((self._kinds[at], tuple(self._placed.get(at, ()))), at)
        return list(unlike.values())

    def _worth_it(self, first_part: int) -> bool:
        """More members may yet be placed than in the best attempt, and all minimums be reached."""
        if self._any_order:
            first_part = 0
        reach = list(self._counts)
        for index in range(first_part, len(self._parts)):
            part, of_class = self._parts[index], self._room.of(self._parts[index].class_id)
            seats = int((of_class.alone if self._any_order else of_class.fits)[self.rows].sum())
            reach[index] += min(part.wanted - self._counts[index], seats)
        hoped = Attempt(reach)
        if not minimums_reached(self._group, self._parts, hoped):
            return False
        return self.best is None or hoped.total > self.best.total

    def _note(self) -> None:
        attempt = Attempt(list(self._counts))
        if self.best is not None and attempt.total <= self.best.total:
            return
        if not minimums_reached(self._group, self._parts, attempt):
            return
        for index in range(len(self._parts)):
            used = [(at, here[index]) for at, here in sorted(self._placed.items()) if here[index]]
            if used:
                places, counts = np.array(used).T
                attempt.seats.append((index, (self.rows[places], counts)))
        if self._accept(attempt):
            self.best = attempt

    def _done(self) -> bool:
        return self.best is not None and self.best.total == self._members

    def _state(self, index: int) -> _State:
        """What is placed, whichever of equal nodes it is on, and which parts may go on."""
        placed = sorted((self._kinds[at], tuple(here)) for at, here in self._placed.items())
        return (0 if self._any_order else index, *placed)


def _loosens(of_class: ClassRoom) -> bool:
    """Where the class may go may become more as members are placed."""
    limits = of_class.limits
    return limits is not None and bool(limits.spread or limits.together)


def _kinds(room: Room, rooms: Sequence[ClassRoom], rows: Int64) -> list[int]:
    """Numbers that are equal for nodes that can stand for one another, by index into `rows`."""
    facts: list[list[object]] = [room.free[:, rows].T.tolist(), *(each.alone[rows].tolist() for each in rooms)]
    keys: set[str] = set()
    for limits in [each.limits for each in rooms if each.limits is not None]:
        facts.append(limits.caps()[rows].tolist())
        facts.extend(tally.on[rows].tolist() for tally in limits.tallies)
        facts.extend(rule.included()[rows].tolist() for rule in limits.spread)
        keys.update(limits.keys)
    for key in sorted(keys):
        domains = room.nodes.domains(key)
        alone = np.bincount(domains.codes, minlength=domains.size) == 1
        names = np.where(alone, -1, np.arange(domains.size))
        names[0] = 0
        facts.append(names[domains.codes[rows]].tolist())
    numbers: dict[str, int] = {}
    return [numbers.setdefault(repr(each), len(numbers)) for each in zip(*facts, strict=True)]
