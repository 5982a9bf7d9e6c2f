"""Divides equal members over a tree or a slice of it, level by level from the top, for new gangs and for gangs with
placed members.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.kernels.bounds import capacities
from muster.placement.kernels.search import search
from muster.placement.solve.instance import TreeInstance
from muster.placement.solve.level_rules import UNBOUNDED, Cost, Rule, Shape, cost_of, relaxed, table_of
from muster.placement.solve.packing import Seats
from muster.placement.state.class_capacity import ClassCapacity
from muster.placement.state.trees import Tiers


@dataclass(frozen=True)
class Division:
    """Members on nodes: `nodes` are ascending indexes into the tree's rows, `counts` the members on each, both int64;
    `members` is their sum.
    """

    nodes: Int64
    counts: Int64
    members: int


class Divider:
    """Divides members over the nodes of a tree; soft ranges and factors count as hard.

    `caps` is int64[nodes]: members that fit on each node; `tiers` as Tree.tiers of the rules' levels. `capacity` is an
    upper bound on the members that can be placed.
    """

    def __init__(self, rules: tuple[Rule, ...], tiers: Tiers, caps: Int64, wanted: int) -> None:
        self._rules = table_of(rules)
        self._tiers = tiers
        self._caps = capacities(caps, self._rules, tiers.starts, tiers.table, wanted)
        self.capacity = int(self._caps[0])

    def place(self, members: int) -> Division | None:
        """A division of exactly `members` members; None if the search finds none."""
        tiers = self._tiers
        nodes, counts, _, _ = search(self._rules, tiers.starts, tiers.table, self._caps, members)
        return Division(nodes, counts, members) if len(nodes) else None


class GrowthDivider:
    """Adds members to a gang with placed members so that its rules hold.

    Later members are few, and the placed ones determine where they may go, so no alternatives are searched. `caps` and
    `held` are int64[nodes]: members that still fit on each node, and placed members; `tiers` as in Divider. `capacity`
    is an upper bound on the members that can be added.
    """

    def __init__(self, rules: tuple[Rule, ...], tiers: Tiers, caps: Int64, held: Int64) -> None:
        self._rules = rules
        self._below = tiers.below
        self._last = len(rules) - 1
        self._held = [held]
        self._caps = [_allowed(rules[-1], caps, held)]
        for tier in range(self._last - 1, -1, -1):
            starts = tiers.below[tier][:-1]
            below = self._capacity(tier + 1, np.add.reduceat(self._caps[0], starts), starts)
            self._held.insert(0, np.add.reduceat(self._held[0], starts))
            self._caps.insert(0, _allowed(rules[tier], below, self._held[0]))
        total = self._caps[0].sum(keepdims=True)
        self.capacity = int(self._capacity(0, total, np.zeros(1, np.int64))[0]) if len(caps) else 0

    def place(self, members: int) -> Division | None:
        """A division of `members` more members; None if none is found that satisfies the hard rules."""
        added: dict[int, int] = {}
        if not self._grow(0, 0, len(self._caps[0]), members, added):
            return None
        nodes = np.array(sorted(added), np.int64)
        return Division(nodes, np.array([added[node] for node in nodes.tolist()], np.int64), members)

    def _capacity(self, tier: int, total: Int64, starts: Int64) -> Int64:
        """Upper bound for each domain above a tier; `total` if the tier's rule is soft. Call it before the tier above
        is added.
        """
        rule = self._rules[tier]
        if rule.shape is not Shape.PACK or not rule.shape_is_hard:
            return total
        held, caps = self._held[0], self._caps[0]
        used = np.add.reduceat((held > 0).astype(np.int64), starts)
        in_used = np.maximum.reduceat(np.where(held > 0, caps, 0), starts)
        return np.where(used == 0, np.maximum.reduceat(caps, starts), np.where(used == 1, in_used, 0))

    def _grow(self, tier: int, first: int, last: int, members: int, added: dict[int, int]) -> bool:
        rule = self._rules[tier]
        caps, held = self._caps[tier][first:last], self._held[tier][first:last]
        if rule.shape is Shape.PACK:
            counts = _packed(rule, caps, held, members)
        else:
            counts = _spread_evenly(rule, caps, held, members)
        if counts is None:
            return False
        for at in np.flatnonzero(counts).tolist():
            domain, count = first + at, int(counts[at])
            if tier == self._last:
                added[domain] = count
                continue
            starts = self._below[tier]
            if not self._grow(tier + 1, int(starts[domain]), int(starts[domain + 1]), count, added):
                return False
        return True


def _allowed(rule: Rule, caps: Int64, held: Int64) -> Int64:
    """Members that each domain may still take by the rule's range."""
    if rule.has_range:
        caps = np.minimum(caps, np.maximum(rule.most - held, 0))
        caps = np.where(held + caps >= rule.least, caps, 0)
    return caps


def _packed(rule: Rule, caps: Int64, held: Int64, members: int) -> Int64 | None:
    """Domains with members first; the tightest that holds all, else the largest first."""
    counts = np.zeros(len(caps), np.int64)
    for used in (True, False):
        free = np.where((held > 0) == used, caps, 0)
        whole = np.flatnonzero(free >= members)
        if len(whole):
            counts[whole[free[whole].argmin()]] += members
            return counts
        if rule.shape_is_hard and not (used and not held.any()):
            return None
        order = np.argsort(-free, kind="stable")
        taken = free[order].cumsum()
        some = np.diff(np.minimum(taken, members), prepend=0)
        counts[order] += some
        members -= int(some.sum())
        if not members:
            return counts
    return None


def _spread_evenly(rule: Rule, caps: Int64, held: Int64, members: int) -> Int64 | None:
    """One member at a time to the smallest domain, in no more domains than a partition has parts if possible."""
    used = held > 0
    parts = int(used.sum())
    open_ = used & (caps > 0)
    if rule.shape is Shape.PARTITION:
        new = np.flatnonzero(~used & (caps > 0))
        roomiest = new[np.argsort(-caps[new], kind="stable")]
        wanted = max(0, rule.parts - parts)
        while wanted < len(roomiest) and int(caps[open_].sum() + caps[roomiest[:wanted]].sum()) < members:
            wanted += 1
        open_[roomiest[:wanted]] = True
    else:
        open_ = caps > 0
    if int(caps[open_].sum()) < members:
        return None
    counts = np.zeros(len(caps), np.int64)
    heap = [(int(held[at]), at) for at in np.flatnonzero(open_).tolist()]
    heapify(heap)
    left = caps.copy()
    for _ in range(members):
        size, at = heap[0]
        while not left[at]:
            heapreplace(heap, (1 << 62, at))
            size, at = heap[0]
        counts[at] += 1
        left[at] -= 1
        heapreplace(heap, (size + 1, at))
    return counts


_PENALTIES_TRIED: Final = 8
"""Penalties tried, lowest first."""

Relaxations = Sequence[tuple[Rule, ...]]


class TreeSlice:
    """One domain of a tree or all of it: nodes `first` to before `last`.

    `held` is int64[nodes of the tree]: the gang's members on each.

    Each class is divided as a homogeneous gang, with the members of earlier classes as placed.
    """

    def __init__(self, instance: TreeInstance, gang: int, first: int, last: int) -> None:
        self._instance = instance
        self._rules = instance.gangs[gang].rules
        self._unfinished = (_unfinished(self._rules),)
        all_relaxed = relaxed(self._rules)
        self._finished = (all_relaxed[0], all_relaxed[-1])
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
        relaxed_rules = self._unfinished if more_to_come else self._finished
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
