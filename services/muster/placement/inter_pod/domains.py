"""Topology of interacting groups: domains to which attempts are confined, and the check of topology constraints.

Members with affinity to one another and no matching pod yet need one common domain; pack constraints may need one too.
Members are seated by inter-pod rules alone, so constraints are checked on the finished solution.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.solve.instance import Part, Solution
from muster.placement.solve.level_rules import Rule, Shape, cost_of, holds, rules_of
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.trees import Tree

AllowedRows = Bool | None
"""Rows of the nodes that may be used, bool[rows]; None: all."""

_SUMMARY: Final = "no placement was found that satisfies both the hard topology constraints and the inter-pod rules"


@dataclass(frozen=True)
class RankedDomains:
    """Disjoint domains, iterated as row masks. `of` is int64[rows], the domain of each row, -1 for none; `order` lists
    domains, the most promising first.
    """

    of: Int64
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Bool]:
        for domain in self.order.tolist():
            yield self.of == domain


def affinity_domains(state: CapacityState, parts: Sequence[Part], allowed: AllowedRows = None) -> RankedDomains | None:
    """Domains in which all members with affinity to one another can be placed; None if no domain has to be chosen."""
    keys = sorted({key for part in parts for key in open_affinity_keys(state, part)})
    if not keys:
        return None
    of: Int64 = np.zeros(state.nodes.rows, np.int64)
    labelled = np.ones(state.nodes.rows, np.bool_) if allowed is None else allowed
    for key in keys:
        codes = state.nodes.domains(key).codes
        of = np.unique(of * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1].reshape(-1)
        labelled = labelled & (codes > 0)
    return ranked(state, parts, np.where(labelled, of, -1))


def ranked(state: CapacityState, parts: Sequence[Part], of: Int64) -> RankedDomains:
    """Domains in which any member fits: most members first, then fewest free seats, then by node name."""
    count = int(of.max(initial=-1)) + 1
    members, seats = np.zeros(count, np.int64), np.zeros(count, np.int64)
    inside = of >= 0
    for part in parts:
        fits = np.minimum(state.of(part.class_id).fits, part.wanted)
        here = np.bincount(of[inside], fits[inside], count).astype(np.int64)
        members += np.minimum(here, part.wanted)
        seats += here
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, of[inside], state.nodes.rank[inside])
    order = np.lexsort((first, seats, -members))
    return RankedDomains(of, order[members[order] > 0])


def open_affinity_keys(state: CapacityState, part: Part) -> tuple[str, ...]:
    """Topology keys of affinity among members of the part for which no domain is chosen yet."""
    rules = state.of(part.class_id).inter_pod
    if rules is None:
        return ()
    return tuple(key for rule in rules.affinity if rule.members_interact() for key in rule.keys)


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
        return Explanation(_SUMMARY, violated.id, part.class_id, 0, violated.minimum, only_constraints=True)

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
