"""Places groups under constraints that are heterogeneous or have several gangs: exactly if the budget allows.

Gangs on one tree are solved together by a dynamic programme. If that exceeds the budget, it runs on fewer nodes, after
a heuristic that nodes class by class. Gangs on different trees are placed one after another. A heuristic that fails
proves nothing: the answer is "not found", not "infeasible".
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
from muster.placement.solve.bounds import infeasible, infeasible_on_tree, is_optimal, solution_cost
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.class_by_class import any_by_class, most_by_class, place_by_class
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

_MAX_GANG_ORDERS: Final = 6
_MIN_NODES: Final = 16
"""Smallest number of nodes to which the instance is restricted."""
_EXACT_FIRST: Final = 300
_IMPROVEMENT_STEPS: Final = 8_000
"""Steps up to which the dynamic programme is faster than heuristics, and steps spent to improve on their result."""
_HEURISTIC_STEPS: Final = 6_000
"""Budget of a heuristic."""
_OVERESTIMATE: Final = 4
"""Ratio of the estimated steps of the dynamic programme to those it usually takes."""


def place_constrained(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place all members if possible, else every gang's minimum and as many more as fit."""
    search = _Constrained(state, group, parts, budget)
    solution, proved = search.best([gang.minimum for gang in group.gangs])
    if solution is None:

        def has_place(other: SolveGroup, change: Budget) -> bool:
            granted = min(change.left, budget.left)
            budget.left -= granted
            return granted > 0 and has_solution(state, other, parts, Budget(granted, state.limit))

        most = search.most() or Solution([0] * len(parts))
        return NotPlaced(proved, explain_constraints(state, group, parts, explainer, most, has_place))
    reserve_again(state, parts, solution)
    return Placed(assignments_of(state, group, parts, solution))


def has_solution(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """All minimums have a placement that is found within the budget; nothing is reserved."""
    minimums = [gang.minimum for gang in group.gangs]
    return _Constrained(state, group, parts, budget).any(minimums) is not None


def partial_solution(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """The solution with most members toward the minimums to which the rest may be added; nothing is reserved."""
    return _Constrained(state, group, parts, budget).most()


def place_on_allowed(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    allowed: Sequence[Bool],
    budget: Budget,
    *,
    whole: bool,
) -> tuple[Solution | None, bool]:
    """A solution on nodes that each gang may use, bool[rows] by gang; nothing is reserved. If there is none, whether
    that is proved. `whole`: with more members than the minimums, as far as they fit.
    """
    search = _Constrained(state, group, parts, budget, allowed)
    minimums = [gang.minimum for gang in group.gangs]
    if whole:
        return search.best(minimums)
    return search.any(minimums), False


_Heuristic = Callable[[TreeInstance, Sequence[int], Budget], Solution | None]


class _Constrained:
    def __init__(
        self,
        state: CapacityState,
        group: SolveGroup,
        parts: Sequence[Part],
        budget: Budget,
        allowed: Sequence[Bool] = (),
    ) -> None:
        self._state = state
        self._allowed = allowed
        self._group = group
        self._parts = parts
        self._budget = budget
        named = next((gang.tree for gang in group.gangs if gang.constraints), group.gangs[0].tree)
        # gangs without constraints join the tree of the others
        self._trees = [_tree(state, gang.tree if gang.constraints else named) for gang in group.gangs]
        self._gangs = [
            ConstrainedGang(gang, rules_of(gang.constraints, tree.level_names))
            for gang, tree in zip(group.gangs, self._trees, strict=True)
        ]

    def best(self, least: Sequence[int]) -> tuple[Solution | None, bool]:
        """A solution, not reserved, with at least `least[gang]` members; if there is none, whether that is proved."""
        if infeasible(self._state, self._parts, least):
            return None, True
        if not self._same_tree:
            return self._one_by_one(least)
        instance = self._instance()
        if infeasible_on_tree(instance, least):
            return None, True
        heuristic = None
        if steps_for(instance, instance.usable_nodes) > min(_EXACT_FIRST, self._budget.left):
            heuristic = self._by_heuristic(place_by_class, instance, least)
            if heuristic is not None and is_optimal(instance, heuristic):
                return heuristic, False
        found, proved = self._by_dynamic_programme(
            instance, least, _IMPROVEMENT_STEPS if heuristic is not None else self._budget.left
        )
        if found is None or (
            heuristic is not None and solution_cost(instance, heuristic) < solution_cost(instance, found)
        ):
            return heuristic, proved and heuristic is None
        return found, False

    def any(self, least: Sequence[int]) -> Solution | None:
        """As `best`, but the first solution found."""
        if self._same_tree and not infeasible(self._state, self._parts, least):
            instance = self._instance()
            if infeasible_on_tree(instance, least):
                return None
            found = self._by_heuristic(any_by_class, instance, least)
            if found is not None:
                return found
        return self.best(least)[0]

    def most(self) -> Solution | None:
        """The solution with most members to which the rest may be added."""
        if not self._same_tree:
            return self._most_one_by_one()
        minimums = [each.gang.minimum for each in self._gangs]
        complete, steps = self._instance(), self._budget.left
        for instance in self._restrictions(complete, steps):
            solved = self._solve_programme(instance, steps, unfinished=True)
            if solved is not None:
                programme, table = solved
                cell = most_toward(table, self._parts, minimums)
                return None if cell is None else programme.solution(cell)
        return self._by_heuristic(most_by_class, complete, minimums)

    @property
    def _same_tree(self) -> bool:
        return all(tree is self._trees[0] for tree in self._trees)

    def _by_heuristic(self, heuristic: _Heuristic, instance: TreeInstance, least: Sequence[int]) -> Solution | None:
        """Run a heuristic on a budget of its own, which does not count against other groups."""
        try:
            return heuristic(instance, least, Budget(_HEURISTIC_STEPS, self._state.limit))
        except OutOfBudget:
            return None

    def _by_dynamic_programme(
        self, complete: TreeInstance, least: Sequence[int], steps: int
    ) -> tuple[Solution | None, bool]:
        wanted = sum(part.wanted for part in self._parts)
        best: Solution | None = None
        for instance in self._restrictions(complete, steps):
            for any_parts in (False, True):
                solved = self._solve_programme(instance, steps, any_parts=any_parts)
                if solved is None:
                    break
                programme, table = solved
                cell = best_cell(table, self._parts, least, programme.ties)
                if cell is not None and (best is None or sum(cell) > best.total):
                    best = programme.solution(cell)
                if programme.complete or (best is not None and best.total == wanted):
                    return best, best is None
            if best is not None:
                break
        return best, False

    def _restrictions(self, complete: TreeInstance, steps: int) -> Iterator[TreeInstance]:
        """The complete instance, then ever smaller ones, while the steps may suffice."""
        if shares_of(self._parts) > MAX_SHARES:
            return
        nodes = complete.usable_nodes
        while nodes:
            if steps_for(complete, nodes) <= _OVERESTIMATE * min(steps, self._budget.left):
                yield complete if nodes == complete.usable_nodes else restricted(complete, nodes)
            nodes = nodes // 2 if nodes > _MIN_NODES else 0

    def _solve_programme(
        self, instance: TreeInstance, steps: int, *, unfinished: bool = False, any_parts: bool = False
    ) -> tuple[DynamicProgramme, Int64] | None:
        """The dynamic programme with its final table; None if the steps do not suffice."""
        granted = min(steps, self._budget.left)
        budget = Budget(granted, self._state.limit)
        try:
            programme = DynamicProgramme(instance, budget, unfinished=unfinished, any_parts=any_parts)
            return programme, programme.solve()
        except OutOfBudget:
            return None
        finally:
            self._budget.left -= granted - budget.left

    def _one_by_one(self, least: Sequence[int]) -> tuple[Solution | None, bool]:
        """Gangs on different trees, in a few orders."""
        gangs = range(len(self._gangs))
        for order in islice(permutations(gangs), _MAX_GANG_ORDERS):
            checkpoint = self._state.checkpoint()
            solution = Solution([0] * len(self._parts))
            for nth, gang in enumerate(order):
                found, proved = self._of_gang(gang).best([least[gang]])
                if found is None:
                    self._state.rollback(checkpoint)
                    if proved and not nth:
                        return None, True
                    break
                self._reserve_for_gang(gang, found, solution)
            else:
                self._state.rollback(checkpoint)
                return solution, False
        return None, False

    def _most_one_by_one(self) -> Solution | None:
        """Gangs on different trees, in their order."""
        solution = Solution([0] * len(self._parts))
        checkpoint = self._state.checkpoint()
        for gang in range(len(self._gangs)):
            found = self._of_gang(gang).most()
            if found is not None:
                self._reserve_for_gang(gang, found, solution)
        self._state.rollback(checkpoint)
        return solution if solution.total else None

    def _reserve_for_gang(self, gang: int, found: Solution, solution: Solution) -> None:
        """Reserve the solution of one gang and add it to that of the group."""
        ours = [index for index, part in enumerate(self._parts) if part.gang == gang]
        seats = [(ours[index], taken) for index, taken in found.seats]
        reserve_again(self._state, self._parts, Solution([], seats))
        solution.seats += seats
        for index, (_, counts) in seats:
            solution.placed[index] += int(counts.sum())

    def _of_gang(self, gang: int) -> "_Constrained":
        group = SolveGroup(self._group.id, (self._group.gangs[gang],))
        parts = [replace(part, gang=0) for part in self._parts if part.gang == gang]
        return _Constrained(self._state, group, parts, self._budget, self._allowed[gang : gang + 1])

    def _instance(self) -> TreeInstance:
        return tree_instance(self._state, self._trees[0], self._gangs, self._parts, self._allowed)


def _tree(state: CapacityState, name: str) -> Tree:
    tree = state.trees.get(name)
    assert tree is not None, f"tree {name!r} was not validated"
    return tree


_DOMAINS_PER_LEVEL: Final = 2
"""Domains per level whose nodes are preferred: the tightest that hold the complete group, and the largest."""


def restricted(instance: TreeInstance, nodes: int) -> TreeInstance:
    """The instance restricted to `nodes` usable nodes; nodes with members placed earlier are not counted."""
    levels = sorted(
        {rule.level for one in instance.gangs for rule in one.rules if rule.level < len(instance.tree.levels)}
    )
    preferred = np.zeros(instance.fits.shape[1], np.bool_)
    for level in levels:
        preferred |= _preferred_domains(instance, instance.tree.levels[level].of)
    fits = instance.fits.sum(axis=0)
    usable = np.flatnonzero(fits)
    lowest = instance.tree.levels[levels[-1]].of if levels else np.zeros(len(preferred), np.int64)
    rank = _ranks_in_domain(lowest[usable], fits[usable])
    order = np.lexsort((rank, ~preferred[usable]))
    chosen: Bool = np.zeros(len(preferred), np.bool_)
    chosen[usable[order[:nodes]]] = True
    return instance.restricted_to(chosen)


def _preferred_domains(instance: TreeInstance, of: Int64) -> Bool:
    """Nodes in the domains of a level that hold all members most tightly, and in the largest domains."""
    wanted = np.array([part.wanted for part in instance.parts])
    seats = np.array([np.bincount(of, fits) for fits in instance.fits]).astype(np.int64)  # int64[parts, domains]
    complete = np.flatnonzero((seats >= wanted[:, None]).all(axis=0))
    total = seats.sum(axis=0)
    most = np.minimum(seats, wanted[:, None]).sum(axis=0)
    tightest = complete[np.argsort(total[complete], kind="stable")[:_DOMAINS_PER_LEVEL]]
    roomiest = np.lexsort((-total, -most))[:_DOMAINS_PER_LEVEL]
    return np.isin(of, np.concatenate((tightest, roomiest)))


def _ranks_in_domain(domain: Int64, fits: Int64) -> Int64:
    """Rank of each node within its domain, the node with most capacity first."""
    order = np.lexsort((-fits, domain))
    sorted_ = domain[order]
    first = np.flatnonzero(np.append(True, sorted_[1:] != sorted_[:-1])) if len(order) else order
    ranks = np.zeros(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return ranks
