"""Groups whose members are all of one class: counting how many fit settles it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint
from muster.gangs.solve import SolveGang, SolveGroup
from muster.placement.explain.constraints import explain_homogeneous
from muster.placement.explain.explainer import Explainer
from muster.placement.kernels.bounds import in_order
from muster.placement.kernels.costs import cheapest
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.costs import Cost, cost_of, holds
from muster.placement.solve.division import Division, Growing
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
from muster.placement.solve.level_rules import Rule, relaxed, rules_of, table_of
from muster.placement.solve.packing import Seats, fewest_nodes
from muster.placement.solve.tables import best_cell
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.trees import Tiers, Tree


def place_homogeneous(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer
) -> Placed | NotPlaced:
    """Place every gang's minimum and as many more as have room, first gangs first."""
    class_id = parts[0].class_id
    room_for = int(state.of(class_id).fits.sum())
    spare = room_for - sum(gang.minimum for gang in group.gangs)
    if spare < 0:
        for index, gang in enumerate(group.gangs):
            if gang.minimum > room_for:
                return NotPlaced(True, explainer.too_many(group, index, class_id, fit=room_for))
            room_for -= gang.minimum
    solution = Solution([0] * len(parts))
    for index, part in enumerate(parts):
        minimum = group.gangs[part.gang].minimum
        extra = min(spare, part.wanted - minimum)
        spare -= extra
        reserve_part(state, index, part, minimum + extra, fewest_nodes, solution)
    return Placed(assignments_of(state, group, parts, solution))


_MAX_OMITTED: Final = 64
"""Members that are left out at most where sizes that a range or factor allows do not add up to all of them."""
_PLANS_KEPT: Final = 1_024
_SMALL: Final = 20_000
"""Nodes times members squared up to which all ways to divide are looked at, where the first is not known to be best."""


def place_homogeneous_constrained(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place the one gang of the group; its members are all of one class."""
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
    """No place was found; `fit`: members that have room at most."""

    proved: bool
    fit: int


def seats_for(state: CapacityState, gang: SolveGang, part: Part, budget: Budget) -> Seats | NoSeats:
    """Where the gang's members go, all of which are in the part; nothing is taken."""
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not checked"
    shaped = _Shaped(tree, gang, part.wanted, state.of(part.class_id))
    division, proved = shaped.place()
    if not (shaped.is_settled if division is not None else proved) and shaped.is_small:
        division, proved = shaped.better(division, state, part, budget)
    if division is None:
        return NoSeats(proved, shaped.capacity)
    return tree.rows[division.nodes], division.counts


@dataclass(frozen=True)
class _Plan:
    """What a gang's constraints come to on a tree. `levels` are those of the rules, `ways` the rules with less and less
    of what is soft and `tables` the same for kernels, `tiers` those of the nodes inside of the tree. `is_bound`: no
    node outside can be used.
    """

    rules: tuple[Rule, ...]
    levels: tuple[int, ...]
    ways: tuple[tuple[Rule, ...], ...]
    tables: Int64
    tiers: Tiers
    is_bound: bool


def _plan(tree: Tree, constraints: tuple[LevelConstraint, ...]) -> _Plan:
    """Worked out once for a tree as it is."""
    found = tree.cache.get(constraints)
    if not isinstance(found, _Plan):
        rules = rules_of(constraints, tree.level_names)
        levels, ways = tuple(rule.level for rule in rules), relaxed(rules)
        is_bound = any(rule.is_hard for rule in rules if rule.level < len(tree.levels))
        tables, tiers = np.stack([table_of(way) for way in ways]), tree.tiers(levels, tree.inside)
        if len(tree.cache) >= _PLANS_KEPT:
            tree.cache.clear()
        found = tree.cache[constraints] = _Plan(rules, levels, ways, tables, tiers, is_bound)
    return found


class _Shaped:
    def __init__(self, tree: Tree, gang: SolveGang, wanted: int, of_class: ClassCapacity) -> None:
        self.tree = tree
        self.gang = gang
        self.capacity = 0
        self._plan = _plan(tree, gang.constraints)
        self._wanted = wanted
        self._of_class = of_class
        self._caps: Int64 = np.empty(len(tree.rows), np.int64)
        self._usable = in_order(of_class.fits, tree.rows, wanted, self._caps)
        self._held = _held(tree, gang) if gang.placed else None
        self.is_settled = False
        """Of the division that was found last it is known that no other is better, or there are too many to look."""

    @property
    def is_small(self) -> bool:
        """Few enough nodes and members to look at all ways to divide them."""
        return self._usable * self._wanted**2 <= _SMALL

    def better(
        self, division: Division | None, state: CapacityState, part: Part, budget: Budget
    ) -> tuple[Division | None, bool]:
        """The best that there is, if it is better; if there is none, whether that is proved."""
        asked = [ConstrainedGang(self.gang, self._plan.rules)]
        programme = DynamicProgramme(tree_instance(state, self.tree, asked, [part]), budget)
        try:
            cell = best_cell(programme.climb(), [part], [self.gang.minimum])
        except OutOfBudget:
            return division, False
        if cell is None:
            return division, division is None
        [(_, (rows, counts))] = programme.solution(cell).seats
        nodes = self.tree.place[rows]
        in_order = nodes.argsort()
        other = Division(nodes[in_order], counts[in_order], int(counts.sum()))
        return other if division is None or self._worth(other) < self._worth(division) else division, False

    def place(self) -> tuple[Division | None, bool]:
        """Where the members go; if nowhere, whether that is proved."""
        best, proved = None, True
        for nodes in self._reaches():
            division, proved = self._best(self._caps[:nodes])
            if division is not None and (best is None or division.members > best.members):
                best = division
                self.is_settled = self.is_settled and nodes == self.tree.inside
            if best is not None and best.members == self._wanted:
                break
        return best, proved

    def _reaches(self) -> Iterator[int]:
        """How many of the tree's nodes are to be looked at: those inside, and then all if none above must be inside."""
        yield self.tree.inside
        if self.tree.inside < len(self._caps) and not self._plan.is_bound:
            yield len(self._caps)

    def _best(self, caps: Int64) -> tuple[Division | None, bool]:
        division, proved = self._cheapest(caps)
        levels = self._of_class.penalties
        if division is None or len(levels) < 2:
            return division, proved
        members, cost = division.members, self._cost(division)
        penalty = self._of_class.penalty[self.tree.rows[: len(caps)]]
        for level in levels[:-1]:  # as good a place on nodes that the class dislikes less
            liked = np.where(penalty <= level, caps, 0)
            if int(liked.sum()) >= members:
                other, _ = self._cheapest(liked)
                if other is not None and other.members == members and self._cost(other) == cost:
                    return other, proved
        return division, proved

    def _cheapest(self, caps: Int64) -> tuple[Division | None, bool]:
        """The best division; if there is none, whether that is proved."""
        plan, wanted, minimum = self._plan, self._wanted, self.gang.minimum
        tiers = plan.tiers if len(caps) == self.tree.inside else self.tree.tiers(plan.levels, len(caps))
        if self._held is not None:
            return self._added(tiers, caps, self._held[: len(caps)])
        nodes, counts, members, self.capacity, is_best = cheapest(
            caps, plan.tables, tiers.starts, tiers.table, self.tree.of, wanted, minimum
        )
        if not members:
            return None, self.capacity < minimum
        self.is_settled = members == wanted and (is_best or not self.is_small)
        return Division(nodes, counts, members), False

    def _added(self, tiers: Tiers, caps: Int64, held: Int64) -> tuple[Division | None, bool]:
        """As `_cheapest`, beside members that are there."""
        ways = self._plan.ways
        loosest = Growing(ways[-1], tiers, caps, held)
        most = self.capacity = min(self._wanted, loosest.capacity)
        for members in range(most, max(self.gang.minimum, most - _MAX_OMITTED) - 1, -1):
            growing = [*(Growing(way, tiers, caps, held) for way in ways[:-1]), loosest]
            found = [each for one in growing if (each := one.place(members)) and self._holds(each)]
            if found:
                self.is_settled = members == self._wanted and not self.is_small
                return min(found, key=self._cost), False
        return None, loosest.capacity < self.gang.minimum

    def _holds(self, division: Division) -> bool:
        """Everything hard is kept."""
        return holds(self._plan.rules, self.tree, *self._sizes(division))

    def _worth(self, division: Division) -> tuple[int, int, Cost]:
        """Smaller is better: members left out, then members outside of the tree, then by the constraints."""
        outside = division.counts[division.nodes >= self.tree.inside]
        return self._wanted - division.members, int(outside.sum()), self._cost(division)

    def _cost(self, division: Division) -> Cost:
        return cost_of(self._plan.rules, self.tree, *self._sizes(division))

    def _sizes(self, division: Division) -> tuple[Int64, Int64]:
        """Nodes and their members, those counted that are there already."""
        if self._held is None:
            return division.nodes, division.counts
        sizes = self._held.copy()
        sizes[division.nodes] += division.counts
        nodes = np.flatnonzero(sizes)
        return nodes, sizes[nodes]


def _held(tree: Tree, gang: SolveGang) -> Int64:
    """Members on each of the tree's nodes, int64[nodes]; those on nodes that are not known are passed over."""
    held: Int64 = np.zeros(len(tree.rows), np.int64)
    for pods in gang.placed:
        place = tree.place_of(pods.node)
        if place is not None:
            held[place] += pods.count
    return held
