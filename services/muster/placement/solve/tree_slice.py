"""A slice of a tree, one domain or all of it, over which the members of a gang are divided class by class."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.costs import Cost, cost_of
from muster.placement.solve.division import Divider, Division, GrowthDivider
from muster.placement.solve.instance import TreeInstance
from muster.placement.solve.level_rules import UNBOUNDED, Rule, Shape, relaxed
from muster.placement.solve.packing import Seats
from muster.placement.state.capacity import ClassCapacity
from muster.placement.state.trees import Tiers

_PENALTIES_TRIED: Final = 8
"""Penalties tried, lowest first."""

Relaxations = Sequence[tuple[Rule, ...]]


class TreeSlice:
    """Nodes `first` to before `last` of the tree; `held` are the gang's members on each node of the tree, int64.

    Each class is divided as a homogeneous gang, with the members of earlier classes as placed.
    """

    def __init__(self, instance: TreeInstance, gang: int, first: int, last: int) -> None:
        self._instance = instance
        self._rules = instance.gangs[gang].rules
        self._first = first
        self._last = last
        self._rows = instance.tree.rows[first:last]
        self._tiers = _tiers(instance, [rule.level for rule in self._rules], first, last)
        self.held: Int64 = instance.placed[gang].copy()

    def seat(self, index: int, wanted: int, *, more_to_come: bool) -> Seats | None:
        """Reserve capacity for `wanted` members of a part, or as many as fit; None if none fits.

        With `more_to_come`, only hard rules that later members cannot repair apply.
        """
        instance = self._instance
        of_class = instance.state.of(instance.parts[index].class_id)
        usable = instance.fits[index, self._first : self._last] > 0
        caps = np.where(usable, np.minimum(of_class.fits[self._rows], wanted), 0)
        relaxations = (_unfinished(self._rules),) if more_to_come else relaxed(self._rules)
        relaxed_rules = (relaxations[0], relaxations[-1])
        division = self._divide(relaxed_rules, caps, wanted)
        if division is None:
            return None
        division = self._on_preferred_nodes(division, relaxed_rules, of_class, caps)
        rows = self._rows[division.nodes]
        instance.state.reserve(of_class, rows, division.counts)
        self.held[division.nodes + self._first] += division.counts
        return rows, division.counts

    def _divide(self, relaxed_rules: Relaxations, caps: Int64, members: int) -> Division | None:
        held = self.held[self._first : self._last]
        there = bool(held.any())
        for rules in relaxed_rules:
            divider = (
                GrowthDivider(rules, self._tiers, caps, held) if there else Divider(rules, self._tiers, caps, members)
            )
            most = min(members, divider.capacity)
            found = divider.place(most) if most else None
            if found is not None:
                return found
        return None

    def _on_preferred_nodes(
        self, division: Division, relaxed_rules: Relaxations, of_class: ClassCapacity, caps: Int64
    ) -> Division:
        """An equally good division on nodes with a lower penalty, if there is one."""
        penalties = of_class.penalties
        if len(penalties) < 2:
            return division
        members, cost = int(division.counts.sum()), self._cost(division)
        penalty = of_class.penalty[self._rows]
        for limit in penalties[:-1][:_PENALTIES_TRIED]:
            preferred = np.where(penalty <= limit, caps, 0)
            if int(preferred.sum()) >= members:
                other = self._divide(relaxed_rules, preferred, members)
                if other is not None and int(other.counts.sum()) == members and self._cost(other) <= cost:
                    return other
        return division

    def _cost(self, division: Division) -> Cost:
        sizes = self.held.copy()
        sizes[division.nodes + self._first] += division.counts
        used = np.flatnonzero(sizes)
        return cost_of(self._rules, self._instance.tree, used, sizes[used])


def _unfinished(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules that must hold while members are missing."""
    return tuple(
        replace(
            rule,
            shape_is_hard=rule.shape_is_hard and rule.shape is Shape.PACK,
            least=1,
            most=rule.most if rule.range_is_hard else UNBOUNDED,
            step=1,
            step_is_hard=False,
        )
        for rule in rules
    )


def _tiers(instance: TreeInstance, levels: Sequence[int], first: int, last: int) -> Tiers:
    """As Tree.tiers, for nodes `first` to before `last`."""
    tree = instance.tree
    if not first:
        return tree.tiers(levels, last)
    of = [
        tree.levels[level].of[first:last] - tree.levels[level].of[first]
        if level < len(tree.levels)
        else np.arange(last - first)
        for level in levels
    ]
    found = []
    for upper, lower in pairwise(of):
        starts = np.append(lower[np.flatnonzero(np.diff(upper, prepend=-1))], lower[-1] + 1)
        found.append(starts)
    return Tiers(found, last - first)
