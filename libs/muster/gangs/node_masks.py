"""Nodes as arrays, so that the node filters of a pod class are evaluated for all nodes, or all changed ones, at once.

The rules are those of `muster.gangs.node_filters`; tests/unit/gangs/test_node_masks.py compares the two. Only whether a
node passes is computed here, not the reason.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass, Taint, Toleration
from muster.gangs.node_filters import as_int64, field_holds, status_filter_reason, term_valid

Bool = NDArray[np.bool_]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Rows = slice | Int64

_SPARE: Final = 1024
"""Values of a label, or kinds of nodes, that are remembered in addition to two per row."""
_MAX_TOLERATIONS: Final = 1024
"""Distinct lists of tolerations whose outcome is remembered."""

_Kind = tuple[tuple[Taint, ...], bool, bool]
"""Taints, cordon and readiness."""


class _LabelColumn:
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


class NodeMasks:
    """Nodes by row; the rows are the caller's.

    `version` rises with every change, `changed` is int64[rows]: the version of the last change of each row. Sizes
    follow the nodes: there is a column for a label only while some node has it, and columns, kinds and outcomes for
    tolerations are made anew when most of what they hold is of the past.
    """

    def __init__(self) -> None:
        self.version = 0
        self.changed: Int64 = np.zeros(0, np.int64)
        self._facts: list[NodeFacts | None] = []
        self._row_of: dict[str, int] = {}
        self._keys: Counter[str] = Counter()
        """Number of nodes by label."""
        self._columns: dict[str, _LabelColumn] = {}
        self._kind: Int32 = np.zeros(0, np.int32)
        self._kinds: dict[_Kind, int] = {}
        self._passes: dict[tuple[Toleration, ...], Bool] = {}
        """Whether nodes of each kind pass, by tolerations; the last value is for rows without a node."""

    @property
    def rows(self) -> int:
        """Length of arrays indexed by row."""
        return len(self._facts)

    def put(self, row: int, node: NodeFacts) -> None:
        """Add or change a node; its row may have been that of a removed one."""
        if row >= self.rows:
            self._grow(max(row + 1, 2 * self.rows))
        before = self._facts[row]
        if before is not None and replace(before, uid=node.uid, revision=node.revision) == node:
            self._facts[row] = node
            return
        self._replace_labels(row, before.labels if before is not None else {}, node.labels)
        self._facts[row] = node
        self._row_of[node.name] = row
        self._kind[row] = self._kind_of(node)
        self._touch(row)

    def drop(self, name: str) -> None:
        """Remove a node; an unknown one is ignored."""
        row = self._row_of.pop(name, None)
        if row is None:
            return
        before = self._facts[row]
        assert before is not None, f"row {row} of node {name} is empty"
        self._replace_labels(row, before.labels, {})
        self._facts[row] = None
        self._kind[row] = -1
        self._touch(row)

    def passes(self, pod_class: PodClass, rows: Rows) -> Bool:
        """The nodes that the filters of the class let in, bool[rows]."""
        passing: Bool = self._tolerated(pod_class.tolerations)[self._kind[rows]]
        for key, value in pod_class.node_selector:
            passing &= self._holds(NodeRequirement(key, NodeOperator.IN, (value,)), rows)
        if pod_class.required_node_affinity is not None:
            passing &= self._any_matches(pod_class.required_node_affinity, rows)
        for terms in pod_class.volumes:
            passing &= self._any_matches(terms, rows)
        return passing

    def _any_matches(self, terms: Iterable[NodeSelectorTerm], rows: Rows) -> Bool:
        found: Bool = np.zeros(len(self._kind[rows]), np.bool_)
        for term in terms:
            if term_valid(term):
                found |= self._matches(term, rows)
        return found

    def _matches(self, term: NodeSelectorTerm, rows: Rows) -> Bool:
        matches: Bool = np.ones(len(self._kind[rows]), np.bool_)
        for each in term.labels:
            matches &= self._holds(each, rows)
        for each in term.fields:
            if each.key == "metadata.name":
                matches &= self._is_named(each.values[0], rows) == (each.operator is NodeOperator.IN)
            elif not field_holds(each, ""):
                matches &= False
        return matches

    def _holds(self, requirement: NodeRequirement, rows: Rows) -> Bool:
        if not self._keys[requirement.key]:
            absent = requirement.operator in (NodeOperator.NOT_IN, NodeOperator.DOES_NOT_EXIST)
            return np.full(len(self._kind[rows]), absent)
        column = self._column(requirement.key)
        found: Bool = column.holds(requirement)[column.codes[rows]]
        return found

    def _is_named(self, name: str, rows: Rows) -> Bool:
        row = self._row_of.get(name, -1)
        if isinstance(rows, slice):
            named = np.zeros(self.rows, np.bool_)
            if row >= 0:
                named[row] = True
            return named[rows]
        found: Bool = rows == row
        return found

    def _tolerated(self, tolerations: tuple[Toleration, ...]) -> Bool:
        known = self._passes.get(tolerations)
        if known is None or len(known) <= len(self._kinds):
            done = 0 if known is None else len(known) - 1
            new = [
                status_filter_reason(tolerations, unschedulable, taints, ready) is None
                for taints, unschedulable, ready in list(self._kinds)[done:]
            ]
            known = np.array([*([] if known is None else known[:-1].tolist()), *new, False], np.bool_)
            if len(self._passes) >= _MAX_TOLERATIONS:
                self._passes.clear()
            self._passes[tolerations] = known
        return known

    # -- growth

    def _touch(self, row: int) -> None:
        self.version += 1
        self.changed[row] = self.version

    def _kind_of(self, node: NodeFacts) -> int:
        if len(self._kinds) > 2 * self.rows + _SPARE:
            self._kinds.clear()
            self._passes.clear()
            for row, facts in enumerate(self._facts):
                if facts is not None:
                    self._kind[row] = self._number(facts)
        return self._number(node)

    def _number(self, node: NodeFacts) -> int:
        return self._kinds.setdefault((node.taints, node.unschedulable, node.ready), len(self._kinds))

    def _replace_labels(self, row: int, before: dict[str, str], after: dict[str, str]) -> None:
        for key, value in after.items():
            if key not in before:
                self._keys[key] += 1
            if before.get(key) != value and (column := self._columns.get(key)) is not None:
                if len(column.values) > 2 * self.rows + _SPARE:
                    del self._columns[key]  # most values are of the past
                else:
                    column.put(row, value)
        for key in before:
            if key not in after:
                self._keys[key] -= 1
                if not self._keys[key]:
                    del self._keys[key]
                    self._columns.pop(key, None)
                elif (column := self._columns.get(key)) is not None:
                    column.put(row, None)

    def _column(self, key: str) -> _LabelColumn:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _LabelColumn(self.rows)
            for row, node in enumerate(self._facts):
                if node is not None and (value := node.labels.get(key)) is not None:
                    column.put(row, value)
        return column

    def _grow(self, rows: int) -> None:
        more = rows - self.rows
        self._facts.extend([None] * more)
        self._kind = np.concatenate((self._kind, np.full(more, -1, np.int32)))
        self.changed = np.concatenate((self.changed, np.zeros(more, np.int64)))
        for column in self._columns.values():
            column.codes = np.concatenate((column.codes, np.zeros(more, np.int32)))
