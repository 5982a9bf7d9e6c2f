"""What of a group has room when the whole of it has none: for gangs that may collect their seats one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from muster.gangs.solve import SolveGroup
from muster.placement.mixed.constrained import part_that_fits
from muster.placement.mixed.feasible import is_constrained
from muster.placement.mixed.filling import fill_minimums, fill_up
from muster.placement.mixed.puzzle import find
from muster.placement.mixed.search import Budget
from muster.placement.room.packing import Choice, fewest_nodes, tightest_first
from muster.placement.room.parts import Attempt, Part, alike, retake
from muster.placement.room.room import Room


def place_partly(room: Room, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Attempt | None:
    """Seat as much of the group as has room; None if that is nothing.

    What counts toward minimums comes before members above them, then first gangs before later ones, then first roles.
    No gang that lacks members could have one more unless another had one less, as far as the budget reaches to tell.
    Under constraints, what is seated leaves the rest a place as the hard ones ask, if there is room for it later.
    """
    if is_constrained(group):
        attempt = part_that_fits(room, group, parts, budget)
        if attempt is not None:
            retake(room, parts, attempt)
        return attempt
    partly = _Partly(room, group, parts)
    best = partly.quickly()
    if not alike(parts):
        best = partly.first_roles(partly.raise_by_search(best, budget), budget)
    retake(room, parts, best)
    fill_up(room, parts, best)
    return best if best.total else None


class _Partly:
    def __init__(self, room: Room, group: SolveGroup, parts: Sequence[Part]) -> None:
        self._room = room
        self._parts = parts
        self._minimums = [gang.minimum for gang in group.gangs]

    def quickly(self) -> Attempt:
        """The best of a few tries; nothing stays taken."""
        return max((self._try(order, choice) for order, choice in self._orders()), key=self._merit)

    def raise_by_search(self, best: Attempt, budget: Budget) -> Attempt:
        """Gang by gang, one member more as long as that can be; nothing stays taken."""
        hardest_first = self._by_seats()
        for gang, minimum in enumerate(self._minimums):
            while best.of_gang(self._parts, gang) < minimum:
                required = self._toward_minimums(best)
                required[gang] += 1
                found, _ = find(self._room, self._parts, hardest_first, required, budget)
                if found is None:
                    break
                best = found
        return best

    def first_roles(self, best: Attempt, budget: Budget) -> Attempt:
        """One more of an earlier part for one less of a later one of its gang, as long as that can be; nothing stays
        taken.
        """
        hardest_first = self._by_seats()
        by_themselves = [replace(part, gang=index) for index, part in enumerate(self._parts)]
        for index, part in enumerate(self._parts):
            while best.placed[index] < part.wanted:
                later = [i for i in range(index + 1, len(self._parts)) if self._parts[i].gang == part.gang]
                given_up = next((i for i in reversed(later) if best.placed[i]), None)
                if given_up is None:
                    break
                required = list(best.placed)
                required[index] += 1
                required[given_up] -= 1
                found, _ = find(self._room, by_themselves, hardest_first, required, budget)
                if found is None:
                    break
                best = found
        return best

    def _try(self, order: Sequence[int], choice: Choice) -> Attempt:
        mark = self._room.mark()
        attempt = fill_minimums(self._room, self._parts, self._minimums, order, choice)
        self._room.undo(mark)
        return attempt

    def _orders(self) -> Iterator[tuple[Sequence[int], Choice]]:
        in_order = list(range(len(self._parts)))
        if alike(self._parts):
            yield in_order, fewest_nodes
            return
        hardest_first = self._by_seats()
        yield from product((in_order, hardest_first, hardest_first[::-1]), (fewest_nodes, tightest_first))

    def _by_seats(self) -> list[int]:
        seats = [int(self._room.of(part.class_id).fits.sum()) for part in self._parts]
        return sorted(range(len(self._parts)), key=lambda index: (seats[index], index))

    def _merit(self, attempt: Attempt) -> tuple[int, list[int], list[int]]:
        counted = self._toward_minimums(attempt)
        return sum(counted), counted, attempt.placed

    def _toward_minimums(self, attempt: Attempt) -> list[int]:
        return [min(attempt.of_gang(self._parts, gang), minimum) for gang, minimum in enumerate(self._minimums)]
