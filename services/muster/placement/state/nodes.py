"""Nodes as arrays by row (`muster.gangs.node_columns`), with the topology domains of labels and the order by name."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.gangs.capacity import Int64
from muster.gangs.facts import NodeFacts
from muster.gangs.node_columns import NodeColumns

Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

MAX_NODES: Final = 2**19
"""Largest supported cluster: Kubernetes supports 5,000 nodes, the largest known forks 130,000."""

MAX_ABSENT_KEYS: Final = 64


class TooManyNodes(RuntimeError):
    """The cluster has more nodes than the solver's keys can distinguish."""

    def __init__(self, nodes: int) -> None:
        super().__init__(f"the cluster has {nodes} nodes; this solver supports fewer than {MAX_NODES}")


@dataclass(frozen=True, eq=False)
class Domains:
    """Nodes by the value of one label: `codes` is int64[rows], 0 for rows without the label or without a node.

    Codes are from 1 to `size` - 1, unordered; `names` are the values by code. `single`: no domain has two nodes.
    """

    key: str
    codes: Int64
    names: tuple[str, ...]
    single: bool

    @property
    def size(self) -> int:
        """Length of arrays indexed by code."""
        return len(self.names)

    @cached_property
    def by_name(self) -> Int64:
        """Rank of each code by name, int64[size]."""
        places = np.zeros(self.size, np.int64)
        places[sorted(range(self.size), key=self.names.__getitem__)] = np.arange(self.size)
        return places


class NodeTable(NodeColumns):
    """Node facts by the row that Capacity assigns, and the domains of labels.

    `order` has the rows of all nodes by name and `rank` each row's position in it, so that results do not depend on the
    order in which nodes were added; `order_version` is the version of its last change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.order_version = 0
        self._domains: dict[str, tuple[int, Domains]] = {}
        """Domains that rules use, with their version: of labels of nodes, and at most MAX_ABSENT_KEYS others."""
        self._by_name: tuple[Int64, Int64] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, changes: Iterable[tuple[int, NodeFacts]], rows: int) -> None:
        """Add or update nodes at the given rows; `rows` is the required length of arrays."""
        if rows > self.rows:
            self._grow(rows)
            self._by_name = None
        self.version += 1
        for row, node in changes:
            if self.facts[row] is None:
                self._reorder()
            self._put(row, node)

    def drop(self, names: Iterable[str]) -> None:
        """Remove nodes; unknown names are skipped."""
        self.version += 1
        for name in names:
            if self._drop(name):
                self._reorder()

    def domains(self, key: str) -> Domains:
        """Domains of a label; the same object until they change."""
        seen, known = self._domains.get(key, (-1, None))
        if known is None or seen != self.version:
            column = self.labels(key)
            codes = column.codes.astype(np.int64)
            names = ("", *column.values)
            if known is None or len(names) != known.size or not np.array_equal(codes, known.codes):
                single = not len(codes) or int(np.bincount(codes)[1:].max(initial=0)) <= 1
                known = Domains(key, codes, names, single)
                if len(self._domains) > len(self._label_counts) + MAX_ABSENT_KEYS:
                    self._domains = {each: of for each, of in self._domains.items() if each in self._label_counts}
            self._domains[key] = self.version, known
        return known

    @property
    def order(self) -> Int64:
        """Rows of all nodes by name, int64[nodes]."""
        return self._ordered()[0]

    @property
    def rank(self) -> Int64:
        """Position of each row's node by name, int64[rows]; the largest possible one for rows without a node."""
        return self._ordered()[1]

    def get(self, name: str) -> NodeFacts | None:
        row = self._rows.get(name)
        return None if row is None else self.facts[row]

    def name(self, row: int) -> str:
        node = self.facts[row]
        assert node is not None, f"row {row} has no node"
        return node.name

    def _reorder(self) -> None:
        self._by_name = None
        self.order_version = self.version

    def _ordered(self) -> tuple[Int64, Int64]:
        if self._by_name is None:
            if len(self._rows) >= MAX_NODES:
                raise TooManyNodes(len(self._rows))
            order = np.array([row for _, row in sorted(self._rows.items())], np.int64)
            rank = np.full(self.rows, MAX_NODES - 1, np.int64)
            rank[order] = np.arange(len(order))
            self._by_name = order, rank
        return self._by_name
