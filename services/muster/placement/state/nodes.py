"""Node facts as arrays by row, so that a pod class is matched against all nodes at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from muster.gangs.capacity import Int64
from muster.gangs.facts import PODS, NodeFacts, Taint

Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

MAX_NODES: Final = 2**19
"""Largest supported cluster: Kubernetes supports 5,000 nodes, the largest known forks 130,000."""

_SPARE_VALUES: Final = 1_024
"""Values of one label that are remembered, in addition to two per node."""

_ORDINARY: Final = frozenset(("cpu", "memory", "ephemeral-storage", PODS))


class TooManyNodes(RuntimeError):
    """The cluster has more nodes than the solver's keys can distinguish."""

    def __init__(self, nodes: int) -> None:
        super().__init__(f"the cluster has {nodes} nodes; this solver supports fewer than {MAX_NODES}")


@dataclass(frozen=True)
class NodeKind:
    """Fields of a node that filters read, except labels, name and capacity; equal nodes share one."""

    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    scarce: frozenset[str]
    """Extended resources of the node; pods that do not request them should prefer other nodes."""


class LabelColumn:
    """Values of one label key (or of the name) on all nodes: `codes` is int32[rows], 0 where the label is missing."""

    def __init__(self) -> None:
        self.codes: Int32 = np.zeros(0, np.int32)
        self.values: dict[str, int] = {}

    def put(self, row: int, value: str | None) -> None:
        self.codes[row] = 0 if value is None else self.values.setdefault(value, len(self.values) + 1)


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


class NodeTable:
    """Node facts by the row that Capacity assigns.

    `kind` is int32[rows], an index into `kinds`, -1 for rows without a node; `changed` is int64[rows], the `version` of
    the last change of each row. `order` has the rows of all nodes by name and `rank` each row's position in it, so that
    results do not depend on the order in which nodes were added; `order_version` is the version of its last change.
    """

    def __init__(self) -> None:
        self.facts: list[NodeFacts | None] = []
        self.kind: Int32 = np.zeros(0, np.int32)
        self.kinds: list[NodeKind] = []
        self.version = 0
        self.order_version = 0
        self.changed: Int64 = np.zeros(0, np.int64)
        self._kind_index: dict[NodeKind, int] = {}
        self._labels: dict[str, LabelColumn] = {}
        self._domains: dict[str, tuple[int, Domains]] = {}
        self._names: LabelColumn | None = None
        self._rows: dict[str, int] = {}
        self._by_name: tuple[Int64, Int64] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> int:
        """Length of arrays indexed by row."""
        return len(self.facts)

    def put(self, changes: Iterable[tuple[int, NodeFacts]], rows: int) -> None:
        """Add or update nodes at the given rows; `rows` is the required length of arrays."""
        if rows > self.rows:
            self._grow(rows)
        self.version += 1
        for row, node in changes:
            before = self.facts[row]
            self.facts[row] = node
            self.changed[row] = self.version
            self.kind[row] = self._kind(node)
            for key, column in self._labels.items():
                column.put(row, node.labels.get(key))
            if before is None:
                self._rows[node.name] = row
                self._reorder()
                if self._names is not None:
                    self._names.put(row, node.name)

    def drop(self, names: Iterable[str]) -> None:
        """Remove nodes; unknown names are skipped."""
        self.version += 1
        for name in names:
            row = self._rows.pop(name, None)
            if row is not None:
                self.facts[row] = None
                self.kind[row] = -1
                self.changed[row] = self.version
                self._reorder()

    def labels(self, key: str) -> LabelColumn:
        """Values of a label, cached from the first call on."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = self._column([node.labels.get(key) if node else None for node in self.facts])
        return column

    def domains(self, key: str) -> Domains:
        """Domains of a label; the same object until they change."""
        seen, known = self._domains.get(key, (-1, None))
        if known is None or seen != self.version:
            column = self._without_past_values(key)
            codes = np.where(self.kind >= 0, column.codes, 0).astype(np.int64)
            names = ("", *column.values)
            if known is None or len(names) != known.size or not np.array_equal(codes, known.codes):
                single = not len(codes) or int(np.bincount(codes)[1:].max(initial=0)) <= 1
                known = Domains(key, codes, names, single)
            self._domains[key] = self.version, known
        return known

    def _without_past_values(self, key: str) -> LabelColumn:
        """The column, renumbered when most of its values belong to removed nodes."""
        if len(self.labels(key).values) > 2 * self.rows + _SPARE_VALUES:
            del self._labels[key]
        return self.labels(key)

    def names(self) -> LabelColumn:
        """Names of the nodes as a label column."""
        if self._names is None:
            self._names = self._column([node.name if node else None for node in self.facts])
        return self._names

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

    def row(self, name: str) -> int | None:
        return self._rows.get(name)

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

    def _column(self, values: list[str | None]) -> LabelColumn:
        column = LabelColumn()
        column.codes = np.zeros(self.rows, np.int32)
        for row, value in enumerate(values):
            if value is not None:
                column.put(row, value)
        return column

    def _kind(self, node: NodeFacts) -> int:
        scarce = frozenset(name for name, amount in node.allocatable if amount > 0 and name not in _ORDINARY)
        kind = NodeKind(node.taints, node.unschedulable, node.ready, scarce)
        index = self._kind_index.get(kind)
        if index is None:
            index = self._kind_index[kind] = len(self.kinds)
            self.kinds.append(kind)
        return index

    def _grow(self, rows: int) -> None:
        more = rows - self.rows
        self.facts.extend([None] * more)
        self.kind = np.concatenate((self.kind, np.full(more, -1, np.int32)))
        self.changed = np.concatenate((self.changed, np.zeros(more, np.int64)))
        for column in (*self._labels.values(), *([self._names] if self._names else [])):
            column.codes = np.concatenate((column.codes, np.zeros(more, np.int32)))
        self._by_name = None


def same_for_placement(a: NodeFacts, b: NodeFacts) -> bool:
    """The two are equal in all fields but `uid` and `revision`, which no solve reads."""
    return replace(a, uid=b.uid, revision=b.revision) == b
