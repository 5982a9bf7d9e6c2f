"""Which nodes pass the node filters of a pod class, evaluated for all nodes, or all changed ones, at once.

The rules are those of `muster.gangs.node_filters`; tests/unit/gangs/test_node_masks.py compares the two. Only whether a
node passes is computed here, not the reason.
"""

from typing import Final

import numpy as np

from muster.gangs.byte_cache import ByteCache
from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, PodClass, Toleration
from muster.gangs.node_columns import Bool, NodeColumns, Rows, same_but_revision
from muster.gangs.node_filters import status_filter_reason

_TOLERATION_BYTES: Final = 16 << 20
"""Lists of tolerations whose outcome is remembered for a while, also when no class has them any more (I11)."""


class _Outcome:
    """Whether nodes of each kind pass with one list of tolerations; the last value is for rows without a node."""

    __slots__ = ("kinds_reset", "passes")

    def __init__(self, _tolerations: tuple[Toleration, ...]) -> None:
        self.kinds_reset = -1
        self.passes: Bool = np.zeros(1, np.bool_)


class NodeMasks(NodeColumns):
    """The nodes as columns, and the filters over them."""

    def __init__(self) -> None:
        super().__init__()
        self._outcomes = ByteCache(_Outcome, _TOLERATION_BYTES)

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
        outcome = self._outcomes(tolerations)
        if outcome.kinds_reset != self.kinds_reset:
            outcome.kinds_reset = self.kinds_reset
            outcome.passes = np.zeros(1, np.bool_)
        done = len(outcome.passes) - 1
        if done < len(self.kinds):
            new = [
                status_filter_reason(tolerations, kind.unschedulable, kind.taints, kind.ready) is None
                for kind in self.kinds[done:]
            ]
            outcome.passes = np.array([*outcome.passes[:-1].tolist(), *new, False], np.bool_)
        return outcome.passes
