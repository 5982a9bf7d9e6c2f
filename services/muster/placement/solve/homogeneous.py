"""Places homogeneous groups: by counting, or under constraints by dividing the members over the tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint
from muster.gangs.solve import SolveGang, SolveGroup
from muster.placement.explain.constraints import explain_counted, explain_homogeneous
from muster.placement.explain.explainer import Explainer
from muster.placement.kernels.bounds import node_caps
from muster.placement.kernels.costs import cheapest
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.division import Division, GrowthDivider
from muster.placement.solve.dynamic_programme import DynamicProgramme
from muster.placement.solve.instance import (
    ConstrainedGang,
    NotPlaced,
    Part,
    Placed,
    Solution,
    assignments_of,
    reserve_part,
    tree_instance,
)
from muster.placement.solve.level_rules import Cost, Rule, cost_of, holds, inside_only, relaxed, rules_of, table_of
from muster.placement.solve.packing import Seats, fewest_nodes
from muster.placement.solve.tables import best_cell
from muster.placement.state.capacity import CapacityState
from muster.placement.state.class_capacity import ClassCapacity
from muster.placement.state.trees import Tiers, Tree


def place_homogeneous(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer
) -> Placed | NotPlaced:
    """Place every gang's minimum and as many more members as fit, earlier gangs first."""
    class_id = parts[0].class_id
    fit = int(state.of(class_id).fits.sum())
    spare = fit - sum(gang.minimum for gang in group.gangs)
    if spare < 0:
        for index, gang in enumerate(group.gangs):
            if gang.minimum > fit:
                return NotPlaced(True, explain_counted(state, group, index, class_id, explainer, fit))
            fit -= gang.minimum
    solution = Solution([0] * len(parts))
    for index, part in enumerate(parts):
        minimum = group.gangs[part.gang].minimum
        extra = min(spare, part.wanted - minimum)
        spare -= extra
        reserve_part(state, index, part, minimum + extra, fewest_nodes, solution)
    return Placed(assignments_of(state, group, parts, solution))


_MAX_OMITTED: Final = 64
"""Members left out at most when no combination of sizes allowed by a range or factor adds up to all of them."""
_MAX_CACHED_PLANS: Final = 1_024
"""Plans of one tree, by constraints."""
_SMALL: Final = 20_000
"""Nodes times members squared up to which the dynamic programme runs, if the first division is not known to be optimal.
"""


def place_homogeneous_constrained(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place a single gang under constraints."""
    [gang], [part] = group.gangs, parts
    seats = seats_for(state, gang, part, budget)
    if isinstance(seats, NoSeats):

        def places(other: SolveGang) -> bool:
            return not isinstance(seats_for(state, other, part, budget), NoSeats)

        return NotPlaced(seats.proved, explain_homogeneous(state, group, part.class_id, explainer, seats.fit, places))
    rows, counts = seats
    state.reserve(state.of(part.class_id), rows, counts)
    return Placed(assignments_of(state, group, parts, Solution([int(counts.sum())], [(0, seats)])))


@dataclass(frozen=True)
class NoSeats:
    """No placement was found; `fit`: an upper bound on the members that fit."""

    proved: bool
    fit: int


def seats_for(state: CapacityState, gang: SolveGang, part: Part, budget: Budget) -> Seats | NoSeats:
    """Seats of the gang's members, which form one part; nothing is reserved."""
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not validated"
    search = _DivisionSearch(tree, gang, part.wanted, state.of(part.class_id))
    division, proved = search.place()
    if not (search.is_optimal if division is not None else proved) and search.is_small:
        division, proved = search.improve(division, state, part, budget)
    if division is None:
        return NoSeats(proved, search.capacity)
    return tree.rows[division.nodes], division.counts


@dataclass(frozen=True)
class _Plan:
    """A gang's constraints applied to a tree: `rules`, their `levels`, `relaxations` (the rules with fewer and fewer
    soft ones), the same as `tables` for kernels, and the `tiers` of the nodes inside of the tree. `inside_only`:
    nodes outside of the tree are not allowed.
    """

    rules: tuple[Rule, ...]
    levels: tuple[int, ...]
    relaxations: tuple[tuple[Rule, ...], ...]
    tables: Int64
    tiers: Tiers
    inside_only: bool


def _plan(tree: Tree, constraints: tuple[LevelConstraint, ...]) -> _Plan:
    """The plan, cached until the tree changes or has too many."""
    found = tree.cache.get(constraints)
    if not isinstance(found, _Plan):
        rules = rules_of(constraints, tree.level_names)
        levels, relaxations = tuple(rule.level for rule in rules), relaxed(rules)
        tables, tiers = np.stack([table_of(rules) for rules in relaxations]), tree.tiers(levels, tree.inside)
        if len(tree.cache) >= _MAX_CACHED_PLANS:
            tree.cache.clear()
        found = tree.cache[constraints] = _Plan(rules, levels, relaxations, tables, tiers, inside_only(rules))
    return found


class _DivisionSearch:
    def __init__(self, tree: Tree, gang: SolveGang, wanted: int, of_class: ClassCapacity) -> None:
        self.tree = tree
        self.gang = gang
        self.capacity = 0
        self._plan = _plan(tree, gang.constraints)
        self._wanted = wanted
        self._of_class = of_class
        self._caps: Int64 = np.empty(len(tree.rows), np.int64)
        self._usable = node_caps(of_class.fits, tree.rows, wanted, self._caps)
        self._held = _held(tree, gang) if gang.placed else None
        self.is_optimal = False
        """The last division is known to be optimal, or there are too many to enumerate."""

    @property
    def is_small(self) -> bool:
        """Few enough nodes and members for the dynamic programme."""
        return self._usable * self._wanted**2 <= _SMALL

    def improve(
        self, division: Division | None, state: CapacityState, part: Part, budget: Budget
    ) -> tuple[Division | None, bool]:
        """The optimal division if it is better than `division`; if there is none, whether that is proved."""
        gangs = [ConstrainedGang(self.gang, self._plan.rules)]
        programme = DynamicProgramme(tree_instance(state, self.tree, gangs, [part]), budget)
        try:
            cell = best_cell(programme.solve(), [part], [self.gang.minimum])
        except OutOfBudget:
            return division, False
        if cell is None:
            return division, division is None
        [(_, (rows, counts))] = programme.solution(cell).seats
        nodes = self.tree.position[rows]
        order = nodes.argsort()
        other = Division(nodes[order], counts[order], int(counts.sum()))
        return other if division is None or self._total_cost(other) < self._total_cost(division) else division, False

    def place(self) -> tuple[Division | None, bool]:
        """The division found; if none, whether that is proved."""
        best, proved = None, True
        for nodes in self._node_counts():
            division, proved = self._best(self._caps[:nodes])
            if division is not None and (best is None or division.members > best.members):
                best = division
                self.is_optimal = self.is_optimal and nodes == self.tree.inside
            if best is not None and best.members == self._wanted:
                break
        return best, proved

    def _node_counts(self) -> Iterator[int]:
        """Numbers of nodes to consider: those inside of the tree, then all if rules allow it."""
        yield self.tree.inside
        if self.tree.inside < len(self._caps) and not self._plan.inside_only:
            yield len(self._caps)

    def _best(self, caps: Int64) -> tuple[Division | None, bool]:
        division, proved = self._cheapest(caps)
        penalties = self._of_class.penalties
        if division is None or len(penalties) < 2:
            return division, proved
        members, cost = division.members, self._cost(division)
        penalty = self._of_class.penalty[self.tree.rows[: len(caps)]]
        for limit in penalties[:-1]:  # an equally good division on nodes with a lower penalty
            preferred = np.where(penalty <= limit, caps, 0)
            if int(preferred.sum()) >= members:
                other, _ = self._cheapest(preferred)
                if other is not None and other.members == members and self._cost(other) == cost:
                    return other, proved
        return division, proved

    def _cheapest(self, caps: Int64) -> tuple[Division | None, bool]:
        """The cheapest division; if there is none, whether that is proved."""
        plan, wanted, minimum = self._plan, self._wanted, self.gang.minimum
        tiers = plan.tiers if len(caps) == self.tree.inside else self.tree.tiers(plan.levels, len(caps))
        if self._held is not None:
            return self._extend(tiers, caps, self._held[: len(caps)])
        nodes, counts, members, self.capacity, is_optimal = cheapest(
            caps, plan.tables, tiers.starts, tiers.table, self.tree.of, wanted, minimum
        )
        if not members:
            return None, self.capacity < minimum
        self.is_optimal = members == wanted and (is_optimal or not self.is_small)
        return Division(nodes, counts, members), False

    def _extend(self, tiers: Tiers, caps: Int64, held: Int64) -> tuple[Division | None, bool]:
        """As `_cheapest`, in addition to members placed earlier."""
        relaxations = self._plan.relaxations
        most_relaxed = GrowthDivider(relaxations[-1], tiers, caps, held)
        most = self.capacity = min(self._wanted, most_relaxed.capacity)
        for members in range(most, max(self.gang.minimum, most - _MAX_OMITTED) - 1, -1):
            dividers = [*(GrowthDivider(rules, tiers, caps, held) for rules in relaxations[:-1]), most_relaxed]
            found = [each for one in dividers if (each := one.place(members)) and self._holds(each)]
            if found:
                self.is_optimal = members == self._wanted and not self.is_small
                return min(found, key=self._cost), False
        return None, most_relaxed.capacity < self.gang.minimum

    def _holds(self, division: Division) -> bool:
        """All hard rules hold."""
        return holds(self._plan.rules, self.tree, *self._sizes(division))

    def _total_cost(self, division: Division) -> tuple[int, int, Cost]:
        """Smaller is better: members left out, members outside of the tree, then the cost of soft rules."""
        outside = division.counts[division.nodes >= self.tree.inside]
        return self._wanted - division.members, int(outside.sum()), self._cost(division)

    def _cost(self, division: Division) -> Cost:
        return cost_of(self._plan.rules, self.tree, *self._sizes(division))

    def _sizes(self, division: Division) -> tuple[Int64, Int64]:
        """Nodes and their members, including those placed earlier."""
        if self._held is None:
            return division.nodes, division.counts
        sizes = self._held.copy()
        sizes[division.nodes] += division.counts
        nodes = np.flatnonzero(sizes)
        return nodes, sizes[nodes]


def _held(tree: Tree, gang: SolveGang) -> Int64:
    """Members on each of the tree's nodes, int64[nodes]; unknown nodes are skipped."""
    held: Int64 = np.zeros(len(tree.rows), np.int64)
    for pods in gang.placed:
        position = tree.position_of(pods.node)
        if position is not None:
            held[position] += pods.count
    return held
