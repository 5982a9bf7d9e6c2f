"""Node filters and preferences of pod classes, evaluated for all nodes at once and incrementally for changed nodes.

The rules are defined in `muster.gangs.node_filters`, for one node. Here they are evaluated over arrays: once per
distinct kind of node or label value (`muster.gangs.node_columns`), not once per node, in the same order, since a node
counts under the first filter that rejects it. CONTRIBUTING.md has the steps to add a filter. Free resources are in
`muster.placement.state.capacity`, rules between pods in `muster.placement.inter_pod`.
"""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass
from muster.gangs.node_columns import NodeKind
from muster.gangs.node_filters import (
    AFFINITY,
    VOLUMES,
    prefer_no_schedule_count,
    status_filter_reason,
    status_filter_reasons,
    term_valid,
    untolerated_taint,
)
from muster.placement.state.nodes import Bool, Int32, NodeTable

USABLE: Final = 0
ABSENT: Final = -1
_TAINT_COST: Final = 2**40
WEIGHT_COST: Final = 2**12
"""PreferNoSchedule taints outweigh any sum of affinity weights, which outweighs any number of unneeded scarce
resources.
"""


class NodeFilters:
    """Filters and preferences of one class on all nodes.

    `reason` is int32[rows]: USABLE, ABSENT (no node in this row) or an index into `reasons`. `penalty` is int64[rows]:
    nodes with a lower penalty are filled first; `penalties` are its distinct values on usable nodes, ascending.
    """

    def __init__(self, pod_class: PodClass, nodes: NodeTable) -> None:
        self.pod_class = pod_class
        self.reasons: list[str] = [""]
        self.reason: Int32 = np.zeros(0, np.int32)
        self.penalty: Int64 = np.zeros(0, np.int64)
        self.penalties: list[int] = []
        self._nodes = nodes
        self._seen = -1
        # I11: reasons and kinds end when those of the nodes are numbered anew, at two per node and some.
        self._codes: dict[str, int] = {}
        self._by_kind: list[tuple[int, int]] = []
        self._kinds_reset = 0
        self._needs = frozenset(name for name, amount in pod_class.requests if amount > 0)
        required = pod_class.required_node_affinity
        self._required = None if required is None else _valid_terms(required)
        self._volumes = [_valid_terms(each) for each in pod_class.volumes]
        self._preferences = [
            preference for preference in pod_class.preferred_node_affinity if term_valid(preference.term)
        ]

    def refresh(self) -> Int64 | None:
        """Evaluate changed nodes again; returns their rows, None if all were evaluated."""
        nodes = self._nodes
        if self._seen == nodes.version and len(self.reason) == nodes.rows:
            return np.zeros(0, np.int64)
        rows = None
        if self._seen < 0 or len(self.reason) != nodes.rows or self._kinds_reset != nodes.kinds_reset:
            self._kinds_reset = nodes.kinds_reset
            self._by_kind, self._codes, self.reasons = [], {}, [""]
            self.reason = np.zeros(nodes.rows, np.int32)
            self.penalty = np.zeros(nodes.rows, np.int64)
            self._evaluate(slice(None))
        else:
            rows = np.flatnonzero(nodes.changed > self._seen)
            if len(rows):
                self._evaluate(rows)
        self._seen = nodes.version
        if rows is None or len(rows):
            self.penalties = _distinct(self.penalty[self.reason == USABLE])
        return rows

    @property
    def after_resources(self) -> list[int]:
        """Reasons that kube-scheduler checks after resources."""
        return [code for reason, code in self._codes.items() if reason == VOLUMES]

    def included(self, *, admitted: bool, untainted: bool) -> Bool:
        """Nodes, bool[rows]: on request, only those that node selector and affinity admit, and only those without an
        untolerated taint.
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

    def obstacles(self) -> dict[tuple[str, ...], Int64]:
        """The filtered rows by all filters that reject them: those of one would not be usable without one filter."""
        rows = np.flatnonzero(~np.isin(self.reason, (USABLE, ABSENT)))
        admitted = self._admitted(rows)
        not_admitted = np.zeros(len(rows), np.bool_) if admitted is None else ~admitted
        beyond_volumes = np.zeros(len(rows), np.bool_)
        for terms in self._volumes:
            beyond_volumes |= ~self._nodes.any_matches(terms, rows)
        found: dict[tuple[str, ...], Int64] = {}
        rejections = 4 * self._nodes.kind[rows] + 2 * not_admitted + beyond_volumes
        for rejection in np.unique(rejections).tolist():
            kind = self._nodes.kinds[rejection // 4]
            status = status_filter_reasons(self.pod_class.tolerations, kind.unschedulable, kind.taints, kind.ready)
            reasons = (*status, *([AFFINITY] if rejection & 2 else []), *([VOLUMES] if rejection & 1 else []))
            same = rows[rejections == rejection]
            found[reasons] = np.concatenate((found[reasons], same)) if reasons in found else same
        return found

    def _evaluate(self, rows: slice | Int64) -> None:
        nodes = self._nodes
        while len(self._by_kind) < len(nodes.kinds):
            self._by_kind.append(self._evaluate_kind(nodes.kinds[len(self._by_kind)]))
        reasons, penalties = zip(*self._by_kind, (ABSENT, 0), strict=True)  # the last is for kind -1
        kind = nodes.kind[rows]
        reason = np.array(reasons, np.int32)[kind]
        penalty = np.array(penalties, np.int64)[kind]
        admitted = self._admitted(rows)
        if admitted is not None:
            reason[(reason == USABLE) & ~admitted] = self._code(AFFINITY)
        for terms in self._volumes:
            reason[(reason == USABLE) & ~self._nodes.any_matches(terms, rows)] = self._code(VOLUMES)
        for preference in self._preferences:
            penalty -= WEIGHT_COST * preference.weight * nodes.matches(preference.term, rows)
        self.reason[rows] = reason
        self.penalty[rows] = penalty

    def _evaluate_kind(self, kind: NodeKind) -> tuple[int, int]:
        tolerations = self.pod_class.tolerations
        reason = status_filter_reason(tolerations, kind.unschedulable, kind.taints, kind.ready)
        unneeded = min(len(kind.scarce - self._needs), WEIGHT_COST - 1)
        return (
            USABLE if reason is None else self._code(reason),
            _TAINT_COST * prefer_no_schedule_count(tolerations, kind.taints) + unneeded,
        )

    def _admitted(self, rows: slice | Int64) -> Bool | None:
        """Rows admitted by node selector and required affinity, bool[rows]; None: all."""
        admitted: Bool | None = None
        for key, value in self.pod_class.node_selector:
            holds = self._nodes.holds(NodeRequirement(key, NodeOperator.IN, (value,)), rows)
            admitted = holds if admitted is None else admitted & holds
        if self._required is not None:
            one = self._nodes.any_matches(self._required, rows)
            admitted = one if admitted is None else admitted & one
        return admitted

    def _code(self, reason: str) -> int:
        code = self._codes.get(reason)
        if code is None:
            code = self._codes[reason] = len(self.reasons)
            self.reasons.append(reason)
        return code


def _distinct(values: Int64) -> list[int]:
    """Distinct values, ascending; usually one."""
    if len(values) and values.min() == values.max():
        return [int(values[0])]
    distinct: list[int] = np.unique(values).tolist()
    return distinct


def _valid_terms(terms: tuple[NodeSelectorTerm, ...]) -> list[NodeSelectorTerm]:
    return [term for term in terms if term_valid(term)]
