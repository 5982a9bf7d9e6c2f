"""Topology trees as arrays over nodes, ordered so that every domain of every level is one slice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import TopologyTree
from muster.placement.state.nodes import Bool, Int32, NodeTable

FLAT: Final = TopologyTree("flat", default=True)
"""The tree of a cluster without any: nodes only."""

MAX_TIERS: Final = 64
"""Sets of levels whose tiers a tree keeps: constraints may name any of them."""


@dataclass(frozen=True)
class Level:
    """One level of a tree above the nodes: domain `d` consists of nodes `starts[d]` to before `starts[d + 1]`.

    Both are int64: `starts[domains + 1]` are indexes into the tree's `rows`, `of[nodes]` is the domain of each node.
    """

    name: str
    starts: Int64
    of: Int64


class Tiers:
    """Selected levels of a tree, the last of which is the nodes'; domains of each tier are grouped by domain of the one
    above.

    `below[t]` is int64[domains + 1] for each tier but the last: domain `d` contains the domains `below[t][d]` to before
    `below[t][d + 1]` of the next tier. For kernels, domains of all tiers are numbered consecutively, tier by tier,
    after a root that contains the first tier: `starts` is int64[domains above the nodes + 1], as one `below` of all,
    and `table` is int64[tiers, 2], the number of each tier's first domain and how many domains of the next tier one of
    its domains contains at most.
    """

    def __init__(self, below: Sequence[Int64], nodes: int) -> None:
        self.below = below
        sizes = [len(starts) - 1 for starts in below] + [nodes]
        first = np.cumsum([1, *sizes])
        parts = [starts[:-1] + first[tier + 1] for tier, starts in enumerate(below)]
        self.starts: Int64 = np.concatenate(([1], *parts, [first[-1]]))
        most = [int(np.diff(starts).max(initial=0)) for starts in below] + [0]
        self.table: Int64 = np.stack((first[:-1], np.array(most)), axis=1)


class Tree:
    """The nodes of the cluster in the order of a tree.

    `rows` is int64[nodes]: rows of the NodeTable, domain by domain, domains and nodes by name. From index `inside` on
    are the nodes that the tree does not name; each is a domain of its own on every level. `position` is int64[rows]:
    the index of each row in `rows`, -1 for rows without a node. `levels` are the levels above the nodes, top first, and
    `of` is int64[levels, nodes], the domain of each node on every level. `cache` holds values that others derive from
    the tree, in numbers that they limit; it and the tiers are cleared when the tree changes.
    """

    def __init__(self, facts: TopologyTree, nodes: NodeTable) -> None:
        self.facts = facts
        self._nodes = nodes
        self._order_seen = self._nodes_seen = -1
        self._codes: list[Int32] = []
        self._tiers: dict[tuple[tuple[int, ...], int], Tiers] = {}  # by levels and number of nodes, at most MAX_TIERS
        self.rows: Int64 = np.zeros(0, np.int64)
        self.position: Int64 = np.zeros(0, np.int64)
        self.inside = 0
        self.of: Int64 = np.zeros((0, 0), np.int64)
        self.levels: list[Level] = []
        self.cache: dict[object, object] = {}

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names from the top to the node level."""
        return tuple(level.name for level in self.facts.levels)

    def refresh(self) -> None:
        """Take over changes of nodes since the last call."""
        nodes = self._nodes
        if self._nodes_seen == nodes.version and len(self.position) == nodes.rows:
            return
        codes = [nodes.labels(level.label_key).codes for level in self.facts.levels[:-1] if level.label_key]
        if (
            self._order_seen != nodes.order_version
            or len(self.position) != nodes.rows
            or not _equal(codes, self._codes)
        ):
            self._arrange()
            self._codes = [each.copy() for each in codes]
        self._nodes_seen, self._order_seen = nodes.version, nodes.order_version

    def position_of(self, node: str) -> int | None:
        """Index of a node in `rows`."""
        row = self._nodes.row(node)
        return None if row is None else int(self.position[row])

    def tiers(self, levels: Sequence[int], nodes: int) -> Tiers:
        """Tiers of some levels over the first `nodes` nodes. Levels are indexes, top first; the last is the nodes'."""
        key = (tuple(levels), nodes)
        found = self._tiers.get(key)
        if found is None:
            if len(self._tiers) >= MAX_TIERS:
                self._tiers.clear()
            found = self._tiers[key] = Tiers([self._within(*pair, nodes) for pair in pairwise(levels)], nodes)
        return found

    def _within(self, upper: int, lower: int, nodes: int) -> Int64:
        starts = self.levels[upper].starts
        starts = starts[: int(np.searchsorted(starts, nodes)) + 1]
        if lower < len(self.levels):
            of = self.levels[lower].of
            starts = np.append(of[starts[:-1]], of[nodes - 1] + 1 if nodes else 0)
        return starts

    def path(self, level: int, domain: int) -> str:
        """The domain's path from the top, e.g. "zone-1/rack-7"; "(outside)/NODE" for a node outside of the tree."""
        at = int(self.levels[level].starts[domain]) if level < len(self.levels) else domain
        node = self._nodes.name(int(self.rows[at]))
        if at >= self.inside:
            return f"(outside)/{node}"
        names = self._names_above(node)[: level + 1]
        return "/".join(names if level < len(self.levels) else [*names, node])

    def _arrange(self) -> None:
        paths = self._paths()  # int64[nodes, levels]: domains of each level numbered by name, -1 outside
        inside: Bool = np.all(paths >= 0, axis=1) & self._is_listed()
        by_path = np.lexsort(paths.T[::-1]) if paths.shape[1] else np.arange(len(paths))
        order = np.concatenate((by_path[inside[by_path]], np.flatnonzero(~inside)))
        self.rows = self._nodes.order[order]
        self.inside = int(inside.sum())
        self.position = np.full(self._nodes.rows, -1, np.int64)
        self.position[self.rows] = np.arange(len(self.rows))
        self.levels = []
        self.of = np.zeros((paths.shape[1], len(order)), np.int64)
        self._tiers.clear()
        self.cache.clear()
        first: Bool = np.zeros(len(order), np.bool_)
        first[:1] = True
        first[self.inside :] = True
        for index, level in enumerate(self.facts.levels[:-1]):
            first[1:] |= paths[order[1:], index] != paths[order[:-1], index]
            starts = np.append(np.flatnonzero(first), len(order))
            self.of[index] = first.cumsum() - 1
            self.levels.append(Level(level.name, starts, self.of[index]))

    def _is_listed(self) -> Bool:
        """bool[nodes], by name: False for nodes missing from a tree without levels above the nodes."""
        if len(self.facts.levels) > 1 or not self.facts.leaves:
            return np.ones(len(self._nodes), np.bool_)
        rows = [row for name, _ in self.facts.leaves if (row := self._nodes.row(name)) is not None]
        listed = np.zeros(len(self._nodes), np.bool_)
        listed[self._nodes.rank[rows]] = True
        return listed

    def _paths(self) -> Int64:
        """int64[nodes, levels]: domains of each node, nodes by name."""
        levels = self.facts.levels[:-1]
        paths: Int64 = np.full((len(self._nodes), len(levels)), -1, np.int64)
        if not levels:
            return paths
        if levels[0].label_key:
            for index, level in enumerate(levels):
                column = self._nodes.labels(level.label_key)
                ranks = np.full(len(column.values) + 1, -1, np.int64)
                for number, value in enumerate(sorted(filter(None, column.values))):  # an empty value means no domain
                    ranks[column.values[value]] = number
                paths[:, index] = ranks[column.codes[self._nodes.order]]
            return paths
        of_domain = _listed_paths(self.facts)
        rank = self._nodes.rank
        for name, of in self.facts.leaves:
            row = self._nodes.row(name)
            if row is not None and of >= 0:
                paths[rank[row]] = of_domain[of]
        return paths

    def _names_above(self, node: str) -> list[str]:
        levels = self.facts.levels[:-1]
        if levels and levels[0].label_key:
            facts = self._nodes.get(node)
            return [facts.labels.get(level.label_key, "") for level in levels] if facts is not None else []
        names: list[str] = []
        at = next((domain for name, domain in self.facts.leaves if name == node), -1)
        while at >= 0:
            names.append(self.facts.domains[at].name)
            at = self.facts.domains[at].parent
        return names[::-1]


class Trees:
    """All trees of the cluster by name, and which of them is the default. A tree ends when the stream removes it."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._flat = Tree(FLAT, nodes)
        self._by_name: dict[str, Tree] = {}
        self._default = self._flat

    def put(self, trees: Iterable[TopologyTree]) -> None:
        """Add or replace trees."""
        for facts in trees:
            self._by_name[facts.name] = Tree(facts, self._nodes)
        self._select_default()

    def drop(self, names: Iterable[str]) -> None:
        """Remove trees; unknown names are skipped."""
        for name in names:
            self._by_name.pop(name, None)
        self._select_default()

    @property
    def names(self) -> list[str]:
        """Sorted names of the known trees."""
        return sorted(self._by_name)

    def get(self, name: str) -> Tree | None:
        """The tree of this name, "" for the default, up to date with the nodes; None if unknown."""
        tree = self._by_name.get(name) if name else self._default
        if tree is None and name == FLAT.name:
            tree = self._flat
        if tree is not None:
            tree.refresh()
        return tree

    def _select_default(self) -> None:
        self._default = next((tree for _, tree in sorted(self._by_name.items()) if tree.facts.default), self._flat)


def _listed_paths(facts: TopologyTree) -> Int64:
    """int64[domains, levels]: each domain and its ancestors, numbered by name; -1 on lower levels."""
    levels = len(facts.levels) - 1
    rank = np.zeros(len(facts.domains), np.int64)
    by_name = sorted(range(len(facts.domains)), key=lambda index: facts.domains[index].name)
    rank[by_name] = np.arange(len(by_name))
    paths: Int64 = np.full((len(facts.domains), levels), -1, np.int64)
    for index, domain in enumerate(facts.domains):
        if domain.parent >= 0:
            paths[index] = paths[domain.parent]
        paths[index, domain.level] = rank[index]
    return paths


def _equal(codes: Sequence[Int32], others: Sequence[Int32]) -> bool:
    return len(codes) == len(others) and all(map(np.array_equal, codes, others))
