"""Whether a group has a place at all as its hard constraints ask; soft ones have no say."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from msgspec import structs

from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.solver import find_interacting, members_interact
from muster.placement.solve.branch_and_bound import Budget, search_exactly
from muster.placement.solve.constrained import has_any_place, part_that_fits
from muster.placement.solve.heterogeneous import fill_minimums, fill_up, seat_minimums
from muster.placement.solve.homogeneous import NoSeats, seats_for
from muster.placement.solve.instance import Part, Solution, is_homogeneous, reserve_again
from muster.placement.solve.packing import Choice, fewest_nodes, tightest_first
from muster.placement.state.capacity import CapacityState

_SHAPES: Final = (LevelPolicy.PACK, LevelPolicy.SPREAD, LevelPolicy.PARTITION)


def only_hard(group: SolveGroup) -> SolveGroup:
    """The group without soft constraints that do not matter to what is hard.

    Hard shapes are kept within each domain of the levels above that have a constraint, so levels stay where there are
    any, with their shapes, and only soft ranges and factors go.
    """
    gangs = (structs.replace(gang, constraints=_hard_of(gang.constraints)) for gang in group.gangs)
    return structs.replace(group, gangs=tuple(gangs))


def _hard_of(constraints: Sequence[LevelConstraint]) -> tuple[LevelConstraint, ...]:
    if not any(each.hard and each.policy in _SHAPES for each in constraints):
        return tuple(each for each in constraints if each.hard)
    kept = [each for each in constraints if each.hard or each.policy in _SHAPES]
    levels = dict.fromkeys(each.level for each in constraints)
    shaped = {each.level for each in kept}
    return *kept, *(LevelConstraint(level, LevelPolicy.PACK) for level in levels if level not in shaped)


def is_constrained(group: SolveGroup) -> bool:
    """It asks for more than room."""
    return any(gang.constraints for gang in group.gangs)


def has_place(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """All minimums have a place together, as far as the budget reaches to tell. Nothing stays taken."""
    if members_interact(state, parts):
        return find_interacting(state, group, parts, budget) is not None
    if not is_constrained(group):
        checkpoint = state.checkpoint()
        seated = seat_minimums(state, group, parts, budget) is not None
        state.rollback(checkpoint)
        return seated
    if len(group.gangs) == 1 and is_homogeneous(parts):
        seats = seats_for(state, group.gangs[0], parts[0], budget)
        if not isinstance(seats, NoSeats) or seats.proved:
            return not isinstance(seats, NoSeats)
    return has_any_place(state, group, parts, budget)


def place_partly(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """Seat as much of the group as has room; None if that is nothing.

    What counts toward minimums comes before members above them, then first gangs before later ones, then first roles.
    No gang that lacks members could have one more unless another had one less, as far as the budget reaches to tell.
    Under constraints, what is seated leaves the rest a place as the hard ones ask, if there is room for it later.
    """
    if is_constrained(group):
        solution = part_that_fits(state, group, parts, budget)
        if solution is not None:
            reserve_again(state, parts, solution)
        return solution
    partly = _Partly(state, group, parts)
    best = partly.quickly()
    if not is_homogeneous(parts):
        best = partly.first_roles(partly.raise_by_search(best, budget), budget)
    reserve_again(state, parts, best)
    fill_up(state, parts, best)
    return best if best.total else None


class _Partly:
    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> None:
        self._state = state
        self._parts = parts
        self._minimums = [gang.minimum for gang in group.gangs]

    def quickly(self) -> Solution:
        """The best of a few tries; nothing stays taken."""
        return max((self._try(order, choice) for order, choice in self._orders()), key=self._merit)

    def raise_by_search(self, best: Solution, budget: Budget) -> Solution:
        """Gang by gang, one member more as long as that can be; nothing stays taken."""
        hardest_first = self._by_seats()
        for gang, minimum in enumerate(self._minimums):
            while best.of_gang(self._parts, gang) < minimum:
                required = self._toward_minimums(best)
                required[gang] += 1
                found, _ = search_exactly(self._state, self._parts, hardest_first, required, budget)
                if found is None:
                    break
                best = found
        return best

    def first_roles(self, best: Solution, budget: Budget) -> Solution:
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
                found, _ = search_exactly(self._state, by_themselves, hardest_first, required, budget)
                if found is None:
                    break
                best = found
        return best

    def _try(self, order: Sequence[int], choice: Choice) -> Solution:
        checkpoint = self._state.checkpoint()
        solution = fill_minimums(self._state, self._parts, self._minimums, order, choice)
        self._state.rollback(checkpoint)
        return solution

    def _orders(self) -> Iterator[tuple[Sequence[int], Choice]]:
        in_order = list(range(len(self._parts)))
        if is_homogeneous(self._parts):
            yield in_order, fewest_nodes
            return
        hardest_first = self._by_seats()
        yield from product((in_order, hardest_first, hardest_first[::-1]), (fewest_nodes, tightest_first))

    def _by_seats(self) -> list[int]:
        seats = [int(self._state.of(part.class_id).fits.sum()) for part in self._parts]
        return sorted(range(len(self._parts)), key=lambda index: (seats[index], index))

    def _merit(self, solution: Solution) -> tuple[int, list[int], list[int]]:
        counted = self._toward_minimums(solution)
        return sum(counted), counted, solution.placed

    def _toward_minimums(self, solution: Solution) -> list[int]:
        return [min(solution.of_gang(self._parts, gang), minimum) for gang, minimum in enumerate(self._minimums)]
