"""Eligible nodes: which nodes would take a pod of a class if they were empty, as arrays over all nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import NodeFacts, PodClass
from muster.gangs.node_columns import Bool, Rows
from muster.gangs.node_masks import NodeMasks

MAX_CELLS: Final = 32_000_000
"""Rows times classes that are remembered, at one byte each."""
MIN_CLASSES: Final = 64


@dataclass(slots=True, eq=False)
class _Known:
    eligible: Bool
    seen: int
    """Version of the nodes up to which it is right."""


class EligibleNodes:
    """Eligible nodes of classes that were asked about, bool[rows] by class: computed at the first question, then again
    for changed nodes only. The classes asked about longest ago are forgotten beyond MAX_CELLS.
    """

    def __init__(self, capacity: Capacity, classes: Mapping[str, PodClass]) -> None:
        self._capacity, self._classes = capacity, classes
        self._masks = NodeMasks()
        self._known: dict[str, _Known] = {}
        self.evaluations = 0
        """How often a class was compared with many nodes, at 20 to 100 µs for 5,000 nodes: what bounds the work of a
        step is counted in these.
        """

    def __len__(self) -> int:
        """Number of classes that are remembered."""
        return len(self._known)

    @property
    def rows(self) -> int:
        """Length of the arrays."""
        return self._masks.rows

    def put_node(self, row: int, node: NodeFacts) -> None:
        """Add or change a node, after its row in the capacity."""
        self._masks.put(row, node)

    def drop_node(self, name: str) -> None:
        self._masks.drop(name)

    def forget_class(self, class_id: str) -> None:
        self._known.pop(class_id, None)

    def knows(self, class_id: str) -> bool:
        """The row of the class is up to date: there is nothing to compute."""
        known = self._known.get(class_id)
        return known is not None and known.seen == self._masks.version

    def of(self, class_id: str) -> Bool:
        """The eligible nodes of a known class, bool[rows]; not to be changed."""
        known = self._known.get(class_id)
        if known is None or len(known.eligible) != self._masks.rows:
            known = _Known(self._evaluate(class_id, slice(None)), self._masks.version)
        elif known.seen != self._masks.version:
            rows = np.flatnonzero(self._masks.changed > known.seen)
            known.eligible[rows] = self._evaluate(class_id, rows)
            known.seen = self._masks.version
        else:
            return known.eligible
        self._known.pop(class_id, None)
        self._known[class_id] = known  # the last to be forgotten
        for _ in range(len(self._known) - max(MIN_CLASSES, MAX_CELLS // max(1, self._masks.rows))):
            del self._known[next(iter(self._known))]
        return known.eligible

    def takes(self, row: int, class_id: str) -> bool:
        """The node in this row is eligible."""
        known = self._known.get(class_id)
        if known is not None and row < len(known.eligible) and self._masks.changed[row] <= known.seen:
            return bool(known.eligible[row])
        return row < self._masks.rows and bool(self.of(class_id)[row])

    def _evaluate(self, class_id: str, rows: Rows) -> Bool:
        self.evaluations += 1
        pod_class, capacity = self._classes[class_id], self._capacity
        eligible = self._masks.passes(pod_class, rows)
        requested = capacity.vectors[capacity.classes[class_id]]
        allocatable = capacity.allocatable[: self._masks.rows]
        for column in np.flatnonzero(requested).tolist():
            eligible &= _padded(allocatable[:, column], self._masks.rows)[rows] >= requested[column]
        return eligible


def _padded(amounts: Int64, rows: int) -> Int64:
    """The masks may have grown further than the capacity."""
    return amounts if len(amounts) == rows else np.concatenate((amounts, np.zeros(rows - len(amounts), np.int64)))
