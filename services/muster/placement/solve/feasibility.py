"""Feasibility of groups under hard constraints alone, and partial placement of groups that do not fit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Final

from msgspec import structs

from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.solver import find_interacting, members_interact
from muster.placement.solve.branch_and_bound import Budget, search_exactly
from muster.placement.solve.constrained import has_solution, partial_solution
from muster.placement.solve.heterogeneous import fill_minimums, fill_up, seat_minimums
from muster.placement.solve.homogeneous import NoSeats, seats_for
from muster.placement.solve.instance import Part, Solution, is_homogeneous, reserve_again
from muster.placement.solve.packing import Choice, fewest_nodes, tightest_first
from muster.placement.state.capacity import CapacityState

_CONSTRAINTS: Final = attrgetter("constraints")  # called several times per group
_SHAPES: Final = (LevelPolicy.PACK, LevelPolicy.SPREAD, LevelPolicy.PARTITION)


def only_hard(group: SolveGroup) -> SolveGroup:
    """The group without soft constraints that do not affect hard ones.

    Hard shapes apply within each domain of constrained levels above. Therefore such levels stay, with their shapes, and
    only soft ranges and factors are removed.
    """
    gangs = (structs.replace(gang, constraints=_hard_of(gang.constraints)) for gang in group.gangs)
    return structs.replace(group, gangs=tuple(gangs))


def _hard_of(constraints: Sequence[LevelConstraint]) -> tuple[LevelConstraint, ...]:
    if not any(each.hard and each.policy in _SHAPES for each in constraints):
        return tuple(each for each in constraints if each.hard)
    remaining = [each for each in constraints if each.hard or each.policy in _SHAPES]
    levels = dict.fromkeys(each.level for each in constraints)
    shaped = {each.level for each in remaining}
    return *remaining, *(LevelConstraint(level, LevelPolicy.PACK) for level in levels if level not in shaped)


def is_constrained(group: SolveGroup) -> bool:
    """Some gang has topology constraints."""
    return any(map(_CONSTRAINTS, group.gangs))


def has_place(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """All minimums have a placement that is found within the budget. Nothing stays reserved."""
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
    return has_solution(state, group, parts, budget)


def place_partial(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """Place as much of the group as fits; None if that is nothing.

    Members toward minimums come before members above them, then earlier gangs before later ones, then earlier roles.
    Within the budget, no gang that lacks members could have one more unless another had one less. Under constraints,
    the placement can be completed later under the hard constraints if capacity allows.
    """
    if is_constrained(group):
        solution = partial_solution(state, group, parts, budget)
        if solution is not None:
            reserve_again(state, parts, solution)
        return solution
    partial = _PartialPlacement(state, group, parts)
    best = partial.by_greedy_orders()
    if not is_homogeneous(parts):
        best = partial.prefer_earlier_roles(partial.extend_by_search(best, budget), budget)
    reserve_again(state, parts, best)
    fill_up(state, parts, best)
    return best if best.total else None


class _PartialPlacement:
    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> None:
        self._state = state
        self._parts = parts
        self._minimums = [gang.minimum for gang in group.gangs]

    def by_greedy_orders(self) -> Solution:
        """The best of a few greedy orders; nothing stays reserved."""
        return max((self._try(order, choice) for order, choice in self._orders()), key=self._rank)

    def extend_by_search(self, best: Solution, budget: Budget) -> Solution:
        """Gang by gang, one more member while possible; nothing stays reserved."""
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

    def prefer_earlier_roles(self, best: Solution, budget: Budget) -> Solution:
        """Swap members of later parts for members of earlier parts of their gang; nothing stays reserved."""
        hardest_first = self._by_seats()
        separate = [replace(part, gang=index) for index, part in enumerate(self._parts)]
        for index, part in enumerate(self._parts):
            while best.placed[index] < part.wanted:
                later = [i for i in range(index + 1, len(self._parts)) if self._parts[i].gang == part.gang]
                surplus = next((i for i in reversed(later) if best.placed[i]), None)
                if surplus is None:
                    break
                required = list(best.placed)
                required[index] += 1
                required[surplus] -= 1
                found, _ = search_exactly(self._state, separate, hardest_first, required, budget)
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

    def _rank(self, solution: Solution) -> tuple[int, list[int], list[int]]:
        counted = self._toward_minimums(solution)
        return sum(counted), counted, solution.placed

    def _toward_minimums(self, solution: Solution) -> list[int]:
        return [min(solution.of_gang(self._parts, gang), minimum) for gang, minimum in enumerate(self._minimums)]
