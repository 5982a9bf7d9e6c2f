"""Which nodes a pod class may use and which it prefers, for all nodes at once and kept up to date by changed rows.

The rules of muster.gangs.node_filters, applied to each distinct value once instead of to each node.
"""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass
from muster.gangs.node_filters import (
    AFFINITY,
    disliked_taints,
    field_holds,
    requirement_holds,
    term_valid,
    untolerated_taint,
    why_not_status,
)
from muster.placement.state.nodes import Bool, Int32, LabelColumn, NodeKind, NodeTable

VOLUMES: Final = "node(s) had volume node affinity conflict"

USABLE: Final = 0
ABSENT: Final = -1
_TAINT_COST: Final = 2**40
WEIGHT_COST: Final = 2**12
"""Avoided taints count more than any sum of weights, and that more than any number of unneeded scarce resources."""


class NodeFilters:
    """One class against all nodes.

    `reason` is int32[rows]: USABLE, ABSENT (no node there) or an index into `reasons`. `dislike` is int64[rows]: nodes
    with less are to be filled first; `levels` are its values on usable nodes, rising.
    """

    def __init__(self, pod_class: PodClass, nodes: NodeTable) -> None:
        self.pod_class = pod_class
        self.reasons: list[str] = [""]
        self.reason: Int32 = np.zeros(0, np.int32)
        self.penalty: Int64 = np.zeros(0, np.int64)
        self.levels: list[int] = []
        self._nodes = nodes
        self._seen = -1
        self._codes: dict[str, int] = {}
        self._by_kind: list[tuple[int, int]] = []
        self._needs = frozenset(name for name, amount in pod_class.requests if amount > 0)
        required = pod_class.required_node_affinity
        self._required = None if required is None else _readable(required)
        self._volumes = [_readable(each) for each in pod_class.volumes]
        self._wishes = [wish for wish in pod_class.preferred_node_affinity if term_valid(wish.term)]

    def refresh(self) -> Int64 | None:
        """Judge again the nodes that changed; returns their rows, None if all were judged."""
        nodes = self._nodes
        if self._seen == nodes.version and len(self.reason) == nodes.rows:
            return np.zeros(0, np.int64)
        rows = None
        if self._seen < 0 or len(self.reason) != nodes.rows:
            self.reason = np.zeros(nodes.rows, np.int32)
            self.penalty = np.zeros(nodes.rows, np.int64)
            self._judge(slice(None))
        else:
            rows = np.flatnonzero(nodes.changed > self._seen)
            if len(rows):
                self._judge(rows)
        self._seen = nodes.version
        if rows is None or len(rows):
            self.levels = _distinct(self.penalty[self.reason == USABLE])
        return rows

    @property
    def late(self) -> list[int]:
        """Reasons that kube-scheduler finds only after it has looked at room."""
        return [code for reason, code in self._codes.items() if reason == VOLUMES]

    def included(self, *, admitted: bool, untainted: bool) -> Bool:
        """Nodes, bool[rows]: if asked, only those that node selector and affinity admit and without any taint that
        keeps the class off.
        """
        nodes = self._nodes
        included: Bool = nodes.kind >= 0
        if admitted:
            matching = self._admitted(slice(None))
            if matching is not None:
                included &= matching
        if untainted:
            tolerations = self.pod_class.tolerations
            clean = [untolerated_taint(tolerations, kind.taints) is None for kind in nodes.kinds]
            included &= np.array([*clean, False])[nodes.kind]
        return included

    def _judge(self, rows: slice | Int64) -> None:
        nodes = self._nodes
        while len(self._by_kind) < len(nodes.kinds):
            self._by_kind.append(self._judge_kind(nodes.kinds[len(self._by_kind)]))
        table = np.array([*self._by_kind, (ABSENT, 0)], np.int64)  # the last row is that of kind -1
        kind = nodes.kind[rows]
        reason = table[kind, 0].astype(np.int32)
        penalty = table[kind, 1]
        admitted = self._admitted(rows)
        if admitted is not None:
            reason[(reason == USABLE) & ~admitted] = self._code(AFFINITY)
        for terms in self._volumes:
            reason[(reason == USABLE) & ~self._any_matches(terms, rows)] = self._code(VOLUMES)
        for wish in self._wishes:
            penalty -= WEIGHT_COST * wish.weight * self._matches(wish.term, rows)
        self.reason[rows] = reason
        self.penalty[rows] = penalty

    def _judge_kind(self, kind: NodeKind) -> tuple[int, int]:
        tolerations = self.pod_class.tolerations
        reason = why_not_status(tolerations, kind.unschedulable, kind.taints, kind.ready)
        unneeded = min(len(kind.scarce - self._needs), WEIGHT_COST - 1)
        return (
            USABLE if reason is None else self._code(reason),
            _TAINT_COST * disliked_taints(tolerations, kind.taints) + unneeded,
        )

    def _admitted(self, rows: slice | Int64) -> Bool | None:
        """bool[rows] of node selector and required affinity; None: all."""
        admitted: Bool | None = None
        for key, value in self.pod_class.node_selector:
            column = self._nodes.labels(key)
            holds: Bool = column.codes[rows] == column.values.get(value, -1)
            admitted = holds if admitted is None else admitted & holds
        if self._required is not None:
            one = self._any_matches(self._required, rows)
            admitted = one if admitted is None else admitted & one
        return admitted

    def _any_matches(self, terms: list[NodeSelectorTerm], rows: slice | Int64) -> Bool:
        one: Bool = np.zeros(len(self._nodes.kind[rows]), np.bool_)
        for term in terms:
            one |= self._matches(term, rows)
        return one

    def _matches(self, term: NodeSelectorTerm, rows: slice | Int64) -> Bool:
        nodes = self._nodes
        matches: Bool = np.ones(len(nodes.kind[rows]), np.bool_)
        for each in term.labels:
            column = nodes.labels(each.key)
            matches &= _holds_by_code(each, column)[column.codes[rows]]
        for each in term.fields:
            if each.key == "metadata.name":
                column = nodes.names()
                same: Bool = column.codes[rows] == column.values.get(each.values[0], -1)
                matches &= same if each.operator is NodeOperator.IN else ~same
            elif not field_holds(each, ""):
                matches &= False
        return matches

    def _code(self, reason: str) -> int:
        code = self._codes.get(reason)
        if code is None:
            code = self._codes[reason] = len(self.reasons)
            self.reasons.append(reason)
        return code


def _distinct(values: Int64) -> list[int]:
    """The values that there are, rising: mostly one."""
    if len(values) and values.min() == values.max():
        return [int(values[0])]
    distinct: list[int] = np.unique(values).tolist()
    return distinct


def _readable(terms: tuple[NodeSelectorTerm, ...]) -> list[NodeSelectorTerm]:
    return [term for term in terms if term_valid(term)]


def _holds_by_code(requirement: NodeRequirement, column: LabelColumn) -> Bool:
    """Whether the requirement holds for each value of the column, bool[codes]; the first is for nodes without one."""
    table: Bool = np.empty(len(column.values) + 1, np.bool_)
    if requirement.operator in (NodeOperator.IN, NodeOperator.NOT_IN):
        listed = requirement.operator is NodeOperator.IN
        table[:] = not listed
        for value in requirement.values:
            code = column.values.get(value)
            if code is not None:
                table[code] = listed
    elif requirement.operator in (NodeOperator.EXISTS, NodeOperator.DOES_NOT_EXIST):
        table[:] = requirement.operator is NodeOperator.EXISTS
        table[0] = requirement.operator is NodeOperator.DOES_NOT_EXIST
    else:
        table[0] = requirement_holds(requirement, None)
        for value, code in column.values.items():
            table[code] = requirement_holds(requirement, value)
    return table
