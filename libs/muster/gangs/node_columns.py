"""Nodes as arrays by row: label values as columns, and the terms of node selectors matched for many nodes at once.

The rules are those of `muster.gangs.node_filters`. The coordinator (`muster.gangs.node_masks`) and placement
(`muster.placement.state.nodes`) build on this.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from muster.gangs.facts import PODS, NodeFacts, NodeOperator, NodeRequirement, NodeSelectorTerm, Taint
from muster.gangs.node_filters import as_int64, field_holds, term_valid

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Rows = slice | Int64

_SPARE: Final = 1024
"""Values of a label, or kinds of nodes, that are remembered in addition to two per row."""
_ORDINARY: Final = frozenset(("cpu", "memory", "ephemeral-storage", PODS))


@dataclass(frozen=True)
class NodeKind:
    """Fields of a node that filters read, except labels, name and capacity; equal nodes share one."""

    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    scarce: frozenset[str]
    """Extended resources of the node; pods that do not request them should prefer other nodes."""


class LabelColumn:
    """Values of one label on all nodes: `codes` is int32[rows], 0 where the label is missing."""

    def __init__(self, rows: int) -> None:
        self.codes: Int32 = np.zeros(rows, np.int32)
        self.values: dict[str, int] = {}
        self._numbers: Int64 = np.zeros(1, np.int64)
        self._numeric: Bool = np.zeros(1, np.bool_)

    def put(self, row: int, value: str | None) -> None:
        self.codes[row] = 0 if value is None else self.values.setdefault(value, len(self.values) + 1)

    def holds(self, requirement: NodeRequirement) -> Bool:
        """Whether the requirement holds, bool[codes]."""
        operator = requirement.operator
        if operator in (NodeOperator.GT, NodeOperator.LT):
            return self._compares(requirement)
        if operator in (NodeOperator.EXISTS, NodeOperator.DOES_NOT_EXIST):
            table = np.full(len(self.values) + 1, operator is NodeOperator.EXISTS)
            table[0] = operator is NodeOperator.DOES_NOT_EXIST
            return table
        listed = operator is NodeOperator.IN
        table = np.full(len(self.values) + 1, not listed)
        table[[code for value in requirement.values if (code := self.values.get(value)) is not None]] = listed
        return table

    def _compares(self, requirement: NodeRequirement) -> Bool:
        bound = as_int64(requirement.values[0])
        self._parse_new()
        if bound is None:
            return np.zeros_like(self._numeric)
        greater = requirement.operator is NodeOperator.GT
        found: Bool = self._numeric & ((self._numbers > bound) if greater else (self._numbers < bound))
        return found

    def _parse_new(self) -> None:
        known = len(self._numbers) - 1
        if known < len(self.values):
            new = [as_int64(value) for value in list(self.values)[known:]]
            self._numbers = np.concatenate((self._numbers, np.array([each or 0 for each in new], np.int64)))
            self._numeric = np.concatenate((self._numeric, np.array([each is not None for each in new])))


class NodeColumns:
    """Nodes by row; the rows are the caller's.

    `version` rises with changes, `changed` is int64[rows]: the version of the last change of each row. `kind` is
    int32[rows], an index into `kinds`, -1 for rows without a node. Sizes follow the nodes: there is a column for a
    label only while some node has it, and columns and kinds are made anew when most of what they hold is of the past.
    """

    def __init__(self) -> None:
        self.facts: list[NodeFacts | None] = []
        self.version = 0
        self.changed: Int64 = np.zeros(0, np.int64)
        self.kind: Int32 = np.zeros(0, np.int32)
        self.kinds: list[NodeKind] = []
        self.kinds_reset = 0
        """Rises when kinds are numbered anew."""
        self._kind_index: dict[tuple[tuple[Taint, ...], bool, bool, tuple[str, ...]], int] = {}
        self._rows: dict[str, int] = {}
        self.label_keys_version = 0
        """Rises when the labels that nodes have become others."""
        self._label_counts: Counter[str] = Counter()
        """Number of nodes by label."""
        self._columns: dict[str, LabelColumn] = {}

    @property
    def rows(self) -> int:
        """Length of arrays indexed by row."""
        return len(self.facts)

    def row(self, name: str) -> int | None:
        return self._rows.get(name)

    def has_label(self, key: str) -> bool:
        """Some node has the label."""
        return key in self._label_counts

    def labels(self, key: str) -> LabelColumn:
        """Values of a label, kept while a node has it."""
        column = self._columns.get(key)
        if column is None:
            column = LabelColumn(self.rows)
            if self._label_counts[key]:
                self._columns[key] = column
                for row, node in enumerate(self.facts):
                    if node is not None and (value := node.labels.get(key)) is not None:
                        column.put(row, value)
        return column

    # -- terms of node selectors

    def holds(self, requirement: NodeRequirement, rows: Rows) -> Bool:
        """A valid label requirement holds, bool[rows]."""
        if not self._label_counts[requirement.key]:
            absent = requirement.operator in (NodeOperator.NOT_IN, NodeOperator.DOES_NOT_EXIST)
            return np.full(len(self.kind[rows]), absent)
        column = self.labels(requirement.key)
        found: Bool = column.holds(requirement)[column.codes[rows]]
        return found

    def matches(self, term: NodeSelectorTerm, rows: Rows) -> Bool:
        """The nodes meet all requirements of a valid term, bool[rows]."""
        matches: Bool = np.ones(len(self.kind[rows]), np.bool_)
        for each in term.labels:
            matches &= self.holds(each, rows)
        for each in term.fields:
            if each.key == "metadata.name":
                matches &= self._is_named(each.values[0], rows) == (each.operator is NodeOperator.IN)
            elif not field_holds(each, ""):
                matches &= False
        return matches

    def any_matches(self, terms: Iterable[NodeSelectorTerm], rows: Rows) -> Bool:
        """The nodes match one of the terms, bool[rows]; invalid terms match none."""
        found: Bool = np.zeros(len(self.kind[rows]), np.bool_)
        for term in terms:
            if term_valid(term):
                found |= self.matches(term, rows)
        return found

    def _is_named(self, name: str, rows: Rows) -> Bool:
        row = self._rows.get(name, -1)
        if isinstance(rows, slice):
            named = np.zeros(self.rows, np.bool_)
            if row >= 0:
                named[row] = True
            return named[rows]
        found: Bool = rows == row
        return found

    # -- changes

    def _put(self, row: int, node: NodeFacts) -> None:
        """Set the node of an existing row, at the current version."""
        before = self.facts[row]
        self._replace_labels(row, before.labels if before is not None else {}, node.labels)
        self.facts[row] = node
        self._rows[node.name] = row
        self.kind[row] = self._kind_of(node)
        self.changed[row] = self.version

    def _drop(self, name: str) -> bool:
        """Remove a node, at the current version; returns whether there was one."""
        row = self._rows.pop(name, None)
        if row is None:
            return False
        before = self.facts[row]
        assert before is not None, f"row {row} of node {name} is empty"
        self._replace_labels(row, before.labels, {})
        self.facts[row] = None
        self.kind[row] = -1
        self.changed[row] = self.version
        return True

    def _kind_of(self, node: NodeFacts) -> int:
        if len(self.kinds) > 2 * self.rows + _SPARE:
            self.kinds_reset += 1
            self.kinds.clear()
            self._kind_index.clear()
            for row, facts in enumerate(self.facts):
                if facts is not None:
                    self.kind[row] = self._number(facts)
        return self._number(node)

    def _number(self, node: NodeFacts) -> int:
        resources = tuple([name for name, amount in node.allocatable if amount > 0])
        key = (node.taints, node.unschedulable, node.ready, resources)
        index = self._kind_index.get(key)
        if index is None:
            index = self._kind_index[key] = len(self.kinds)
            scarce = frozenset(resources) - _ORDINARY
            self.kinds.append(NodeKind(node.taints, node.unschedulable, node.ready, scarce))
        return index

    def _replace_labels(self, row: int, before: dict[str, str], after: dict[str, str]) -> None:
        if before == after:
            return
        counts, columns = self._label_counts, self._columns
        added = after.keys() - before.keys() if before else after.keys()
        if not counts.keys() >= added:
            self.label_keys_version += 1
        counts.update(iter(added))
        for key in before.keys() - after.keys():
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
                self.label_keys_version += 1
                columns.pop(key, None)
        keys = list(columns) if len(columns) < len(before) + len(after) else before.keys() | after.keys()
        for key in keys:
            value, column = after.get(key), columns.get(key)
            if column is None or before.get(key) == value:
                continue
            if len(column.values) > 2 * self.rows + _SPARE:
                del columns[key]  # most values are of the past
            else:
                column.put(row, value)

    def _grow(self, rows: int) -> None:
        more = rows - self.rows
        self.facts.extend([None] * more)
        self.kind = np.concatenate((self.kind, np.full(more, -1, np.int32)))
        self.changed = np.concatenate((self.changed, np.zeros(more, np.int64)))
        for column in self._columns.values():
            column.codes = np.concatenate((column.codes, np.zeros(more, np.int32)))


def same_but_revision(a: NodeFacts, b: NodeFacts) -> bool:
    """The two are equal in all fields but `uid` and `revision`, which no filter and no solve reads."""
    return replace(a, uid=b.uid, revision=b.revision) == b
