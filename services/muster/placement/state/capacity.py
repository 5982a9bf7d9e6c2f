"""What is free on every node while a batch is solved: taken step by step, given back in reverse, never below zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import PodClass
from muster.placement.inter_pod.class_rules import inter_pod_rules_of
from muster.placement.inter_pod.pod_counts import PodCounts
from muster.placement.state.filters import USABLE, NodeFilters
from muster.placement.state.nodes import NodeTable
from muster.placement.state.trees import Trees

# A node's key for one class packs, from the high bits down: how many fit, how much is free in all, place by name.
# Sorting keys is sorting by tightness with ties by size, then name; the low bits lead back to the node.
SIZE_BITS: Final = 24
RANK_BITS: Final = 19
FITS_SHIFT: Final = SIZE_BITS + RANK_BITS
MAX_FITS: Final = 2**20 - 1
RANK_MASK: Final = 2**RANK_BITS - 1
_PER_RESOURCE_BITS: Final = 20
_TIED_AT_ONCE: Final = 64
"""Rows; of more that change at once ties are worked out when they are asked for, which is not always."""
_CACHED_CELLS: Final = 20_000_000
"""Rows times classes that are kept between solves: 20 bytes each."""


class NotEnoughFree(AssertionError):
    """Bug in the solver: it tried to take more than a node has free (I3)."""

    def __init__(self, node: str, class_id: str) -> None:
        super().__init__(f"tried to take more of node {node!r} for pods of class {class_id!r} than it has free (I3)")


class Seatable(Protocol):
    """How many pods of one class fit on each node, and what the class dislikes of nodes, as ClassRoom has it."""

    @property
    def fits(self) -> Int64: ...

    @property
    def penalty(self) -> Int64: ...

    @property
    def levels(self) -> list[int]: ...


class ClassCapacity:
    """How many pods of one class fit on each node now: `fits` is int64[rows], 0 where the class may not go.

    `alone` is the same but for what other pods on nodes forbid, which `limits` knows; without any it is `fits` itself.
    `vector` is what one pod takes, int64[resources]; `columns` and `amounts` are its resources that are not 0.
    """

    def __init__(self, pod_class: PodClass, nodes: NodeTable, capacity: Capacity, pod_counts: PodCounts) -> None:
        self.pod_class = pod_class
        self.filters = NodeFilters(pod_class, nodes)
        self.inter_pod = inter_pod_rules_of(pod_class, self.filters, pod_counts, nodes)
        self.alone: Int64 = np.zeros(0, np.int64)
        self.fits: Int64 = self.alone
        self.seen = -1
        self._all = capacity.vectors[capacity.classes[pod_class.id]].copy()
        self.columns: Int64 = np.flatnonzero(self._all)
        self.amounts: Int64 = self._all[self.columns]

    @property
    def interacting(self) -> bool:
        """A member on one node changes what may go to others, so that `fits` holds for one node at a time only."""
        return self.inter_pod is not None and self.inter_pod.members_interact()

    @property
    def penalty(self) -> Int64:
        """int64[rows]: nodes with less are to be filled first."""
        return self.filters.penalty if self.inter_pod is None else self.inter_pod.penalty()

    @property
    def levels(self) -> list[int]:
        """Values of `dislike` on nodes that may be used, rising."""
        if self.inter_pod is None or not self.inter_pod.wishes:
            return self.filters.levels
        levels: list[int] = np.unique(self.penalty[self.fits > 0]).tolist()
        return levels

    def vector(self, resources: int) -> Int64:
        """What one pod takes, int64[resources]."""
        if resources > len(self._all):
            self._all = np.concatenate((self._all, np.zeros(resources - len(self._all), np.int64)))
        vector: Int64 = self._all[:resources]
        return vector


Gone = tuple[str, Int64, Int64]
"""Class, rows and how many pods of the class are as if gone from each."""


@dataclass(frozen=True)
class _Seats:
    """Pods of one class that took room."""

    of_class: ClassCapacity
    rows: Int64
    counts: Int64


@dataclass(frozen=True)
class _FreeChange:
    """What changed on rows without regard to classes: int64[resources, rows]. `gone`: pods that are as if gone."""

    rows: Int64
    amounts: Int64
    gone: Sequence[Gone]


class CapacityState:
    """Free amounts of nodes: `free` is int64[resources, rows], negative where a node is oversubscribed.

    It follows `capacity` and `nodes` on `refresh`; in between it belongs to one solve, which takes and gives back what
    it took by `undo`. `stamp` is int64[rows]: the `clock` at which a row changed last.
    """

    def __init__(self, capacity: Capacity, nodes: NodeTable, pod_classes: Mapping[str, PodClass]) -> None:
        self.capacity = capacity
        self.nodes = nodes
        self.trees = Trees(nodes)
        self.pod_counts = PodCounts(capacity, nodes)
        self.pod_classes = pod_classes
        self.free: Int64 = np.zeros((0, 0), np.int64)
        self.stamp: Int64 = np.zeros(0, np.int64)
        self.clock = 0
        self._tie: Int64 = np.zeros(0, np.int64)
        self._tied = 0  # the clock at which ties were known of all rows
        self._shifts: Int64 = np.zeros((0, 1), np.int64)
        self._capacity_seen = self._order_seen = self._nodes_seen = -1
        self._classes: dict[str, ClassCapacity] = {}
        self._taken: list[_Seats | _FreeChange] = []

    def refresh(self) -> None:
        """Take over what changed in capacity and nodes since the last time. Nothing may be taken."""
        assert not self._taken, "a solve has not given back what it took"
        capacity, nodes = self.capacity, self.nodes
        resources, rows = len(capacity.resources), nodes.rows
        self.pod_counts.refresh()
        if self.free.shape != (resources, rows):
            self.free = np.zeros((resources, rows), np.int64)
            self.stamp = np.zeros(rows, np.int64)
            self._tie = np.zeros(rows, np.int64)
            self._capacity_seen = self._order_seen = self._nodes_seen = -1
        if self._nodes_seen != nodes.version:
            shifts = self._measure_sizes()
            if self._order_seen != nodes.order_version or not np.array_equal(shifts, self._shifts):
                self._capacity_seen = -1
            self._shifts = shifts
        if self._capacity_seen != capacity.version:
            changed = np.flatnonzero(capacity.touched[:rows] > self._capacity_seen)
            left = capacity.allocatable[changed, :resources] - capacity.used[changed, :resources]
            self.free[:, changed] = left.T
            self._touch(changed)
        self._capacity_seen, self._nodes_seen = capacity.version, nodes.version
        self._order_seen = nodes.order_version

    def of(self, class_id: str) -> ClassCapacity:
        """Room for one class, up to date. Raises KeyError for an unknown class."""
        of_class = self._classes.pop(class_id, None)
        if of_class is None:
            of_class = ClassCapacity(self.pod_classes[class_id], self.nodes, self.capacity, self.pod_counts)
            for _ in range(len(self._classes) + 1 - max(16, _CACHED_CELLS // max(1, self.nodes.rows))):
                del self._classes[next(iter(self._classes))]
        self._classes[class_id] = of_class
        if of_class.seen != self.clock:
            self._fit(of_class)
        return of_class

    def keep_up(self, most: int) -> None:
        """Bring the classes that were asked for last up to date, before somebody waits for them."""
        for class_id in list(self._classes)[-most:]:
            self.of(class_id)

    def forget_classes(self) -> None:
        """Drop what is kept of classes between solves."""
        self._classes.clear()

    def keys(self, of_class: Seatable) -> Int64:
        """Keys of the nodes that have room for the class, int64[some], in the order of rows."""
        if self._tied < self.clock:
            self._tie_up(np.flatnonzero(self.stamp > self._tied))
        keys: Int64 = (of_class.fits << FITS_SHIFT) | self._tie
        return keys[of_class.fits > 0]

    def rows_of(self, keys: Int64) -> Int64:
        """Rows that the keys lead back to."""
        rows: Int64 = self.nodes.order[keys & RANK_MASK]
        return rows

    def take(self, of_class: ClassCapacity, rows: Int64, counts: Int64) -> None:
        """Take room for `counts[i]` pods of the class on `rows[i]`; rows are distinct.

        Raises NotEnoughRoom.
        """
        self.reserve_unchecked(of_class, rows, counts)
        left = self.free[:, _index(rows)][of_class.columns]
        if left.min(initial=0) < 0:
            raise NotEnoughFree(self.nodes.name(int(rows[(left < 0).any(axis=0)][0])), of_class.pod_class.id)

    def reserve_unchecked(self, of_class: ClassCapacity, rows: Int64, counts: Int64) -> None:
        """As `take`, but whether there is room or not: what is decided already counts, whatever a node has left."""
        self._taken.append(_Seats(of_class, rows, counts))
        self.pod_counts.add(of_class.pod_class.id, rows, counts)
        at = _index(rows)
        self.free[:, at] -= of_class.vector(len(self.free))[:, None] * counts
        self._touch(at)

    def change_free(self, rows: Int64, amounts: Int64, gone: Sequence[Gone] = ()) -> None:
        """Change what is free on distinct rows: less for what is kept for others, more for pods that would go.

        `amounts` is int64[resources, rows]; the caller sees to it that no node gets more than it offers. `gone` says
        which pods those are; nobody minds them then.
        """
        self._taken.append(_FreeChange(rows, amounts, gone))
        for class_id, left, counts in gone:
            self.pod_counts.add(class_id, left, -counts)
        at = _index(rows)
        self.free[:, at] += amounts
        self._touch(at)

    def checkpoint(self) -> int:
        """A point to go back to with `undo`."""
        return len(self._taken)

    def rollback(self, checkpoint: int) -> None:
        """Give back everything taken since the mark."""
        taken = self._taken[checkpoint:]
        if not taken:
            return
        del self._taken[checkpoint:]
        for change in taken:
            if isinstance(change, _FreeChange):
                at = _index(change.rows)
                self.free[:, at] -= change.amounts
                for class_id, left, counts in change.gone:
                    self.pod_counts.add(class_id, left, counts)
                self._touch(at)
        self._empty([seats for seats in taken if isinstance(seats, _Seats)])

    def _empty(self, taken: Sequence[_Seats]) -> None:
        """By class, since there may be thousands."""
        by_class: dict[str, list[_Seats]] = {}
        for seats in taken:
            by_class.setdefault(seats.of_class.pod_class.id, []).append(seats)
        for same_class in by_class.values():
            of_class = same_class[0].of_class
            rows = np.concatenate([seats.rows for seats in same_class])
            counts = np.concatenate([seats.counts for seats in same_class])
            for column, amount in zip(of_class.columns.tolist(), of_class.amounts.tolist(), strict=True):
                np.add.at(self.free[column], rows, amount * counts)
            self.pod_counts.add(of_class.pod_class.id, rows, -counts)
            self._touch(_index(rows))

    def _touch(self, at: Int64 | slice) -> None:
        self.clock += 1
        self.stamp[at] = self.clock
        if self._tied == self.clock - 1 and (isinstance(at, slice) or len(at) <= _TIED_AT_ONCE):
            self._tie_up(at)

    def _tie_up(self, at: Int64 | slice) -> None:
        """Bring ties up to date with all rows that changed."""
        shares: Int64 = np.maximum(self.free[:, at], 0) >> self._shifts
        size: Int64 = np.minimum(shares.sum(axis=0), 2**SIZE_BITS - 1)
        self._tie[at] = (size << RANK_BITS) | self.nodes.rank[at]
        self._tied = self.clock

    def _measure_sizes(self) -> Int64:
        """How far to shift amounts of each resource so that nodes compare by their share of the largest node.

        int64[resources, 1]; powers of two, so that they stay the same while nodes come and go.
        """
        largest = self.capacity.allocatable[: self.nodes.rows, : len(self.free)].max(axis=0, initial=0)
        bits = np.array([int(amount).bit_length() for amount in largest], np.int64)
        return np.maximum(bits - _PER_RESOURCE_BITS, 0)[:, None]

    def _fit(self, of_class: ClassCapacity) -> None:
        judged = of_class.filters.refresh()
        if judged is None or len(of_class.alone) != len(self.stamp):
            of_class.alone = self._fitting(of_class, slice(None))
        else:
            rows = np.flatnonzero(self.stamp > of_class.seen)
            if len(judged):
                rows = np.union1d(rows, judged)
            of_class.alone[rows] = self._fitting(of_class, rows)
        of_class.fits = (
            of_class.alone if of_class.inter_pod is None else np.minimum(of_class.alone, of_class.inter_pod.caps())
        )
        of_class.seen = self.clock

    def _fitting(self, of_class: ClassCapacity, rows: Int64 | slice) -> Int64:
        """How many fit by their requests alone: column by column, since NumPy divides fastest by one number."""
        usable = of_class.filters.reason[rows] == USABLE
        fits: Int64 = np.where(usable, MAX_FITS, 0)
        for column, amount in zip(of_class.columns.tolist(), of_class.amounts.tolist(), strict=True):
            np.minimum(fits, self.free[column, rows] // amount, out=fits)
        return np.maximum(fits, 0, out=fits)


def _index(rows: Int64) -> Int64 | slice:
    """For one row a slice, which NumPy is several times faster with."""
    if len(rows) == 1:
        row = int(rows[0])
        return slice(row, row + 1)
    return rows
