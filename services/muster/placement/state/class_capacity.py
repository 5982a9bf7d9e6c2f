"""Capacity for one pod class: how many of its pods fit on each node, and the order in which nodes are filled."""

from typing import Final, Protocol

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import PodClass, split_kind
from muster.placement.inter_pod.class_rules import InterPodRules, inter_pod_rules_of
from muster.placement.inter_pod.pod_counts import PodCounts
from muster.placement.inter_pod.pod_records import Kind
from muster.placement.state.filters import USABLE, NodeFilters
from muster.placement.state.nodes import NodeTable

MAX_FITS: Final = 2**20 - 1
"""Pods that fit on one node, at most."""
_INTER_POD_CELLS: Final = 16
"""Cells of a class with inter-pod rules at least: caps, and a count and sums by domain for every rule."""
_SELECTIVE: Final = 4
"""A class that may use less than this part of the nodes is evaluated on those alone at first."""


class Seatable(Protocol):
    """Pods of one class that fit on each node, and the node penalties of the class (a subset of ClassCapacity)."""

    @property
    def fits(self) -> Int64: ...

    @property
    def penalty(self) -> Int64: ...

    @property
    def penalties(self) -> list[int]: ...


class ClassCapacity:
    """Capacity for one pod class, or for pods of a class with one label set: `pod_class.id` is their kind then.

    `fits` is int64[rows], the pods that fit on each node now, 0 on filtered nodes.
    `alone` is the same without the inter-pod rules in `inter_pod`; if there are none it is the same array as `fits`.
    `columns` and `amounts` are the resources that one pod requests and how much of each, without zeros.
    """

    def __init__(self, pod_class: PodClass, nodes: NodeTable, capacity: Capacity, pod_counts: PodCounts) -> None:
        self.pod_class = pod_class
        self.filters = NodeFilters(pod_class, nodes)
        self.rules = inter_pod_rules_of(pod_class, self.filters, pod_counts, nodes)
        self.alone: Int64 = np.zeros(0, np.int64)
        self.fits: Int64 = self.alone
        self.seen = -1
        self._class_index = capacity.classes[split_kind(pod_class.id)[0]]
        self._selection = pod_counts.selection
        self._all = capacity.vectors[self._class_index].copy()
        self.columns: Int64 = np.flatnonzero(self._all)
        self.amounts: Int64 = self._all[self.columns]
        self.cells = 1 if self.rules is None else max(_INTER_POD_CELLS, 1 + self.rules.size)
        """Weight in a cache, in arrays over all rows."""

    @property
    def inter_pod(self) -> InterPodRules | None:
        """Rules that relate members to other pods; None if there are none now."""
        return self.rules if self.rules is not None and self.rules.apply else None

    @property
    def kind(self) -> Kind:
        """Class index and label row of the pods."""
        return self._class_index, self._selection.row(self.pod_class.label_set)

    @property
    def interacting(self) -> bool:
        """A member on one node changes which nodes other members may use, so `fits` is valid for one node at a time
        only.
        """
        return self.inter_pod is not None and self.inter_pod.members_interact()

    @property
    def penalty(self) -> Int64:
        """int64[rows]: nodes with a lower penalty are filled first."""
        return self.filters.penalty if self.inter_pod is None else self.inter_pod.penalty()

    @property
    def penalties(self) -> list[int]:
        """Distinct values of `penalty` on usable nodes, ascending."""
        if self.inter_pod is None or not self.inter_pod.preferences:
            return self.filters.penalties
        penalties: list[int] = np.unique(self.penalty[self.fits > 0]).tolist()
        return penalties

    def vector(self, resources: int) -> Int64:
        """The request of one pod, int64[resources]."""
        if resources > len(self._all):
            self._all = np.concatenate((self._all, np.zeros(resources - len(self._all), np.int64)))
        vector: Int64 = self._all[:resources]
        return vector

    def update(self, free: Int64, stamp: Int64, clock: int) -> None:
        """Update `fits` on all rows that changed since the last call; the arguments are those of the capacity state."""
        evaluated = self.filters.refresh()
        if evaluated is None or len(self.alone) != len(stamp):
            self.alone = self._fits_alone(free, slice(None))
        else:
            rows = np.flatnonzero(stamp > self.seen)
            if len(evaluated):
                rows = np.union1d(rows, evaluated)
            self.alone[rows] = self._fits_alone(free, rows)
        self.fits = self.alone if self.inter_pod is None else np.minimum(self.alone, self.inter_pod.caps())
        self.seen = clock

    def _fits_alone(self, free: Int64, rows: Int64 | slice) -> Int64:
        """Pods that fit by requests alone. One division per column: NumPy divides fastest by a scalar."""
        usable = self.filters.reason[rows] == USABLE
        if isinstance(rows, slice) and np.count_nonzero(usable) * _SELECTIVE < len(usable):
            few = np.flatnonzero(usable)
            sparse: Int64 = np.zeros(len(usable), np.int64)
            if len(few):
                sparse[few] = self._fits_alone(free, few)
            return sparse
        fits: Int64 = np.where(usable, MAX_FITS, 0)
        for column, amount in zip(self.columns.tolist(), self.amounts.tolist(), strict=True):
            np.minimum(fits, free[column, rows] // amount, out=fits)
        return np.maximum(fits, 0, out=fits)
