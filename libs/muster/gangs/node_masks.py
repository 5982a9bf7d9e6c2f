"""Which nodes pass the node filters of a pod class, evaluated for all nodes, or all changed ones, at once.

The rules are those of `muster.gangs.node_filters`; tests/unit/gangs/test_node_masks.py compares the two. Only whether a
node passes is computed here, not the reason.
"""

from typing import Final

import numpy as np

from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, PodClass, Toleration
from muster.gangs.node_columns import Bool, NodeColumns, Rows, same_but_revision
from muster.gangs.node_filters import status_filter_reason

_MAX_TOLERATIONS: Final = 64
"""Distinct lists of tolerations whose outcome is remembered, also when no class has them any more (I11)."""


class NodeMasks(NodeColumns):
    """The nodes as columns, and the filters over them."""

    def __init__(self) -> None:
        super().__init__()
        self._passes: dict[tuple[Toleration, ...], Bool] = {}
        """Whether nodes of each kind pass, by tolerations; the last value is for rows without a node."""
        self._passes_reset = 0

    def put(self, row: int, node: NodeFacts) -> None:
        """Add or change a node; its row may have been that of a removed one."""
        if row >= self.rows:
            self._grow(max(row + 1, 2 * self.rows))
        before = self.facts[row]
        if before is not None and same_but_revision(before, node):
            self.facts[row] = node
            return
        self.version += 1
        self._put(row, node)

    def drop(self, name: str) -> None:
        """Remove a node; an unknown one is ignored."""
        if name in self._rows:
            self.version += 1
            self._drop(name)

    def passes(self, pod_class: PodClass, rows: Rows) -> Bool:
        """The nodes that the filters of the class let in, bool[rows]."""
        passing: Bool = self._tolerated(pod_class.tolerations)[self.kind[rows]]
        for key, value in pod_class.node_selector:
            passing &= self.holds(NodeRequirement(key, NodeOperator.IN, (value,)), rows)
        if pod_class.required_node_affinity is not None:
            passing &= self.any_matches(pod_class.required_node_affinity, rows)
        for terms in pod_class.volumes:
            passing &= self.any_matches(terms, rows)
        return passing

    def _tolerated(self, tolerations: tuple[Toleration, ...]) -> Bool:
        if self._passes_reset != self.kinds_reset:
            self._passes.clear()
            self._passes_reset = self.kinds_reset
        known = self._passes.get(tolerations)
        if known is None or len(known) <= len(self.kinds):
            done = 0 if known is None else len(known) - 1
            new = [
                status_filter_reason(tolerations, kind.unschedulable, kind.taints, kind.ready) is None
                for kind in self.kinds[done:]
            ]
            known = np.array([*([] if known is None else known[:-1].tolist()), *new, False], np.bool_)
            if len(self._passes) >= _MAX_TOLERATIONS:
                self._passes.clear()
            self._passes[tolerations] = known
        return known
