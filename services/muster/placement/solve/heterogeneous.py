"""Places heterogeneous groups without constraints: greedy orders first, then upper bounds, then branch and bound.

Groups that do not fit are placed partially in the same way.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Final

from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.solve.bounds import infeasible
from muster.placement.solve.branch_and_bound import Budget, search_exactly
from muster.placement.solve.instance import (
    NotPlaced,
    Part,
    Placed,
    Solution,
    assignments_of,
    is_homogeneous,
    minimums_reached,
    reserve_again,
    reserve_part,
)
from muster.placement.solve.packing import Choice, fewest_nodes, tightest_first
from muster.placement.state.capacity import CapacityState

_MAX_PARTS_IN_ALL_ORDERS: Final = 3
"""Parts up to which all orders are tried; above, a few orders that often succeed."""


def place_heterogeneous(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place all members if possible, else every gang's minimum and as many more as fit."""
    return _Heterogeneous(state, group, parts, budget).place(explainer)


def seat_minimums(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """Place every gang's minimum, or nothing."""
    return _Heterogeneous(state, group, parts, budget).seat_minimums()


class _Heterogeneous:
    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> None:
        self._state = state
        self._group = group
        self._parts = parts
        self._budget = budget
        self._minimums = [gang.minimum for gang in group.gangs]
        self._wanted = [sum(part.wanted for part in parts if part.gang == gang) for gang in range(len(group.gangs))]
        self._hardest_first = _hardest_first(state, parts)
        self._best = Solution([0] * len(parts))

    def place(self, explainer: Explainer) -> Placed | NotPlaced:
        all_members = [part.wanted for part in self._parts]
        solution = self._try(self._hardest_first, all_members, fewest_nodes)
        proved = False
        if solution is None:
            if infeasible(self._state, self._parts, self._minimums):
                self._try_orders(all_members)  # for the explanation: the largest number of members that fit
                return NotPlaced(True, self._explain(explainer))
            solution, proved = self._place_all(all_members)
        if solution is None and self._minimums != self._wanted:
            solution, proved = self._place_minimums()
            if solution is not None:
                fill_up(self._state, self._parts, solution)
        if solution is None:
            return NotPlaced(proved, self._explain(explainer))
        return Placed(assignments_of(self._state, self._group, self._parts, solution))

    def seat_minimums(self) -> Solution | None:
        """Place the minimums; without a solution nothing stays reserved."""
        if infeasible(self._state, self._parts, self._minimums):
            return None
        return self._place_minimums()[0]

    # Each of the following methods returns a solution with its reservations, or None without any.

    def _place_all(self, all_members: Sequence[int]) -> tuple[Solution | None, bool]:
        """All members; if none is found, whether that is proved."""
        solution = self._try_orders(all_members)
        if solution is not None:
            return solution, False
        if infeasible(self._state, self._parts, self._wanted):
            return None, True
        return self._search(self._wanted)

    def _place_minimums(self) -> tuple[Solution | None, bool]:
        """The minimums, preferably from earlier roles."""
        solution = self._try_orders(self._targets_by_role()) or self._up_to_minimums()
        if solution is not None:
            return solution, False
        if minimums_reached(self._group, self._parts, self._best):
            reserve_again(self._state, self._parts, self._best)
            return self._best, False
        return self._search(self._minimums)

    def _try_orders(self, targets: Sequence[int]) -> Solution | None:
        """The first order in which every part reaches its target."""
        tries = (self._try(order, targets, choice) for order, choice in self._orders())
        return next((solution for solution in tries if solution is not None), None)

    def _try(self, order: Sequence[int], targets: Sequence[int], choice: Choice) -> Solution | None:
        """Every part its target, one after another."""
        checkpoint = self._state.checkpoint()
        solution = Solution([0] * len(self._parts))
        for index in order:
            if targets[index]:
                reserve_part(self._state, index, self._parts[index], targets[index], choice, solution)
        if solution.placed == list(targets):
            return solution
        self._state.rollback(checkpoint)
        if self._rank(solution) > self._rank(self._best):
            self._best = solution
        return None

    def _rank(self, solution: Solution) -> tuple[bool, int, list[int]]:
        reached = minimums_reached(self._group, self._parts, solution)
        return reached, solution.total, solution.placed

    def _orders(self) -> Iterator[tuple[Sequence[int], Choice]]:
        orders: list[Sequence[int]] = [self._hardest_first, list(range(len(self._parts)))]
        if len(self._parts) <= _MAX_PARTS_IN_ALL_ORDERS:
            orders.extend(permutations(range(len(self._parts))))
        else:
            tightest = sorted(self._hardest_first, key=lambda index: -self._parts[index].wanted)
            orders += [tightest, self._hardest_first[::-1]]
        distinct = dict.fromkeys(map(tuple, orders))
        yield from product(distinct, (fewest_nodes, tightest_first))

    def _targets_by_role(self) -> list[int]:
        """Members of each part such that the minimums come from earlier roles."""
        left = list(self._minimums)
        targets = []
        for part in self._parts:
            targets.append(min(part.wanted, left[part.gang]))
            left[part.gang] -= targets[-1]
        return targets

    def _up_to_minimums(self) -> Solution | None:
        """Parts one after another, each as many as fit until its gang has its minimum."""
        for order in (range(len(self._parts)), self._hardest_first[::-1]):
            checkpoint = self._state.checkpoint()
            solution = fill_minimums(self._state, self._parts, self._minimums, order, fewest_nodes)
            if minimums_reached(self._group, self._parts, solution):
                return solution
            self._state.rollback(checkpoint)
        return None

    def _search(self, required: Sequence[int]) -> tuple[Solution | None, bool]:
        solution, proved = search_exactly(self._state, self._parts, self._hardest_first, required, self._budget)
        if solution is not None:
            reserve_again(self._state, self._parts, solution)
        return solution, proved

    def _explain(self, explainer: Explainer) -> Explanation:
        """Explain the first gang that lacks members in the best solution."""
        parts, best = self._parts, self._best
        gang = next((g for g, minimum in enumerate(self._minimums) if best.of_gang(parts, g) < minimum), 0)
        lacking = [i for i, part in enumerate(parts) if part.gang == gang and best.placed[i] < part.wanted]
        too_few = [i for i in lacking if int(self._state.of(parts[i].class_id).fits.sum()) < parts[i].wanted]
        return explainer.lacking_part(self._group, parts, gang, (too_few or lacking)[0], best)


def _hardest_first(state: CapacityState, parts: Sequence[Part]) -> list[int]:
    """Parts by how many of their members would fit alone, fewest first."""
    seats = [int(state.of(part.class_id).fits.sum()) for part in parts]
    return sorted(range(len(parts)), key=lambda index: (seats[index], -parts[index].wanted, index))


def fill_minimums(
    state: CapacityState, parts: Sequence[Part], minimums: Sequence[int], order: Iterable[int], choice: Choice
) -> Solution:
    """Place parts in this order, each as many as fit until its gang has its minimum; reservations stay."""
    left = list(minimums)
    solution = Solution([0] * len(parts))
    for index in order:
        part = parts[index]
        target = min(part.wanted, left[part.gang])
        if target:
            left[part.gang] -= reserve_part(state, index, part, target, choice, solution)
    return solution


def fill_up(state: CapacityState, parts: Sequence[Part], solution: Solution) -> None:
    """Place members beyond those of the solution, as many as fit; earlier roles first."""
    for index, part in enumerate(parts):
        missing = part.wanted - solution.placed[index]
        if missing:
            reserve_part(state, index, part, missing, fewest_nodes, solution)


def place_unconstrained_partly(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget
) -> Solution | None:
    """Place as many members as fit, homogeneous groups included; None if no member fits.

    Within the budget, no gang that lacks members could have one more unless another had one less.
    """
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
