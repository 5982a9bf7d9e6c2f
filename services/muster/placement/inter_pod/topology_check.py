"""Checks the topology constraints of members that were seated by inter-pod rules alone, and their cost."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.inter_pod.domains import AllowedRows, ranked
from muster.placement.solve.instance import Part, Solution
from muster.placement.solve.level_rules import Rule, Shape, cost_of, holds, rules_of
from muster.placement.state.capacity import CapacityState
from muster.placement.state.trees import Tree

_SUMMARY: Final = "no placement was found that satisfies both the hard topology constraints and the inter-pod rules"


class TopologyCheck:
    """The topology constraints of all gangs of a group. `unconstrained`: no gang has any."""

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
        self.unconstrained = not self._rules

    def satisfied_by(self, solution: Solution) -> bool:
        """All hard constraints are satisfied."""
        return all(self._gang_satisfied(gang, solution) and self._stays_in_tree(gang, solution) for gang in self._rules)

    def cost_of(self, solution: Solution) -> tuple[int, ...]:
        """Violation of soft constraints, compared lexicographically; the same length for every solution."""
        cost: list[int] = []
        for gang, (tree, rules) in self._rules.items():
            cost += cost_of(rules, tree, *self._sizes(gang, tree, solution))
        return tuple(cost)

    def pack_domains(self) -> Iterator[AllowedRows]:
        """Domains of the levels to which a gang is packed, the lowest level first."""
        for tree, rules in self._rules.values():
            for rule in reversed(rules):
                if rule.counts and rule.shape is Shape.PACK and rule.level < len(tree.levels):
                    of: Int64 = np.full(self._state.nodes.rows, -1, np.int64)
                    of[tree.rows] = tree.levels[rule.level].of
                    of[tree.rows[tree.inside :]] = -1
                    yield from ranked(self._state, self._parts, of)

    def all_nodes(self) -> Iterator[AllowedRows]:
        """The nodes of each tree, then all nodes."""
        for tree, _ in self._rules.values():
            inside = np.zeros(self._state.nodes.rows, np.bool_)
            inside[tree.rows[: tree.inside]] = True
            yield inside
        yield None

    def explanation(self, best: Solution) -> Explanation:
        """All members fit, but the topology constraints are violated."""
        gang = next((gang for gang in self._rules if not self._gang_satisfied(gang, best)), next(iter(self._rules), 0))
        part = next(part for part in self._parts if part.gang == gang)
        violated = self._group.gangs[gang]
        return Explanation(_SUMMARY, violated.id, part.class_id, 0, violated.minimum)

    def _gang_satisfied(self, gang: int, solution: Solution) -> bool:
        tree, rules = self._rules[gang]
        return holds(rules, tree, *self._sizes(gang, tree, solution))

    def _stays_in_tree(self, gang: int, solution: Solution) -> bool:
        """Nodes outside the tree may be used only if no level above the nodes has a hard constraint."""
        tree, rules = self._rules[gang]
        nodes = len(tree.levels)
        if not any(rule.is_hard for rule in rules if rule.level < nodes):
            return True
        places, _ = self._sizes(gang, tree, solution)
        return bool((places < tree.inside).all())

    def _sizes(self, gang: int, tree: Tree, solution: Solution) -> tuple[Int64, Int64]:
        """Places in the tree with members of the gang and how many, members placed before the solve included."""
        sizes = np.zeros(len(tree.rows), np.int64)
        for index, (rows, counts) in solution.seats:
            if self._parts[index].gang == gang:
                np.add.at(sizes, tree.position[rows], counts)
        for pods in self._group.gangs[gang].placed:
            place = tree.position_of(pods.node)
            if place is not None and place >= 0:
                sizes[place] += pods.count
        used = np.flatnonzero(sizes)
        return used, sizes[used]
