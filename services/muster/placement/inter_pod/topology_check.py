"""Constraints over topology trees for members that are placed without regard to them: kept or not, and at what cost."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.inter_pod.domains import Region, ranked
from muster.placement.solve.costs import cost_of, holds
from muster.placement.solve.instance import Part, Solution
from muster.placement.solve.level_rules import Rule, Shape, rules_of
from muster.placement.state.capacity import CapacityState
from muster.placement.state.trees import Tree

_SUMMARY: Final = (
    "no place was found that keeps the hard constraints over the topology and what pods ask of one another"
)


class TopologyCheck:
    """The constraints of all gangs of a group. `free`: there are none."""

    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> None:
        self._state = state
        self._group = group
        self._parts = parts
        self._rules: dict[int, tuple[Tree, tuple[Rule, ...]]] = {}
        for index, gang in enumerate(group.gangs):
            if gang.constraints:
                tree = state.trees.get(gang.tree)
                assert tree is not None, f"tree {gang.tree!r} was not checked"
                self._rules[index] = tree, rules_of(gang.constraints, tree.level_names)
        self.free = not self._rules

    def kept_by(self, solution: Solution) -> bool:
        """Everything hard is kept."""
        return all(
            holds(rules, tree, *self._sizes(gang, tree, solution)) and self._inside(gang, tree, rules, solution)
            for gang, (tree, rules) in self._rules.items()
        )

    def cost_of(self, solution: Solution) -> tuple[int, ...]:
        """What is missed of soft constraints; less is better. Of equal length for all attempts."""
        cost: list[int] = []
        for gang, (tree, rules) in self._rules.items():
            cost += cost_of(rules, tree, *self._sizes(gang, tree, solution))
        return tuple(cost)

    def domains(self) -> Iterator[Region]:
        """Those of levels on which a gang is to be packed, the narrowest first."""
        for tree, rules in self._rules.values():
            for rule in reversed(rules):
                if rule.counts and rule.shape is Shape.PACK and rule.level < len(tree.levels):
                    of: Int64 = np.full(self._state.nodes.rows, -1, np.int64)
                    of[tree.rows] = tree.levels[rule.level].of
                    of[tree.rows[tree.inside :]] = -1
                    yield from ranked(self._state, self._parts, of)

    def everywhere(self) -> Iterator[Region]:
        """All nodes, those in the trees first."""
        for tree, _ in self._rules.values():
            inside = np.zeros(self._state.nodes.rows, np.bool_)
            inside[tree.rows[: tree.inside]] = True
            yield inside
        yield None

    def explanation(self, best: Solution) -> Explanation:
        """Members have room, but not in the shape that is asked for."""
        gang = next((gang for gang in self._rules if not self._kept_by_gang(gang, best)), next(iter(self._rules), 0))
        part = next(part for part in self._parts if part.gang == gang)
        asked = self._group.gangs[gang]
        return Explanation(_SUMMARY, asked.id, part.class_id, 0, asked.minimum)

    def _kept_by_gang(self, gang: int, solution: Solution) -> bool:
        tree, rules = self._rules[gang]
        return holds(rules, tree, *self._sizes(gang, tree, solution))

    def _inside(self, gang: int, tree: Tree, rules: Sequence[Rule], solution: Solution) -> bool:
        """Nodes outside of the tree are used only if nothing above the nodes is hard."""
        nodes = len(tree.levels)
        if not any(rule.is_hard for rule in rules if rule.level < nodes):
            return True
        places, _ = self._sizes(gang, tree, solution)
        return bool((places < tree.inside).all())

    def _sizes(self, gang: int, tree: Tree, solution: Solution) -> tuple[Int64, Int64]:
        """Places in the tree and members of the gang there, those counted that are there already."""
        sizes = np.zeros(len(tree.rows), np.int64)
        for index, (rows, counts) in solution.seats:
            if self._parts[index].gang == gang:
                np.add.at(sizes, tree.place[rows], counts)
        for pods in self._group.gangs[gang].placed:
            place = tree.place_of(pods.node)
            if place is not None and place >= 0:
                sizes[place] += pods.count
        used = np.flatnonzero(sizes)
        return used, sizes[used]
