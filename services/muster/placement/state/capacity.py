"""Capacity state: what is free on every node during a batch, with reservations that can be rolled back."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakSet

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import PodClass, split_kind
from muster.gangs.quantity import MAX_AMOUNT
from muster.gangs.selection import PodSelection
from muster.gangs.solve import NominatedCapacity
from muster.placement.inter_pod.pod_counts import PodCounts
from muster.placement.inter_pod.pod_records import Kind
from muster.placement.state.class_capacity import ClassCapacity, Seatable
from muster.placement.state.filters import USABLE, NodeFilters
from muster.placement.state.nodes import NodeTable
from muster.placement.state.time_limit import UNLIMITED, OutOfMemory, TimeLimit
from muster.placement.state.trees import Trees

# A node's key for one class packs, from the high bits down: pods that fit, free capacity as a sum, rank by name.
# Sorting keys sorts nodes by tightness, then size, then name; the low bits identify the node.
SIZE_BITS: Final = 24
RANK_BITS: Final = 19
FITS_SHIFT: Final = SIZE_BITS + RANK_BITS
RANK_MASK: Final = 2**RANK_BITS - 1
_PER_RESOURCE_BITS: Final = 20
_EAGER_TIES: Final = 64
"""Rows. Tie-breakers of larger changes are computed lazily, since they are not always needed."""
_CACHED_CELLS: Final = 20_000_000
"""Rows times classes that are cached between solves, at 20 bytes each."""
_MIN_CACHED: Final = 16
"""Classes that are cached in any case."""
_MAX_CELLS: Final = 100_000_000
"""Bound on cells of int64 in the arrays, of one cell per row, of all classes and counts that exist at a time."""
_CLASS_ARRAYS: Final = 6
"""Arrays of a class: what fits, with and without rules, caps by rules, reasons, penalties, and one in computation."""
_COUNT_ARRAYS: Final = 2
"""Arrays of a count of pods: by node, and by domain."""
_ARRAY_OVERHEAD: Final = 512
"""Cells that take as much memory as the objects around an array."""


class NotEnoughFree(AssertionError):
    """Bug in the solver: a reservation exceeds what the node has free (I3)."""

    def __init__(self, node: str, class_id: str) -> None:
        super().__init__(f"reservation for class {class_id!r} exceeds what node {node!r} has free (I3)")


Evicted = tuple[Kind, Int64, Int64]
"""Kind, rows and number of pods of the kind per row that count as evicted."""


@dataclass(frozen=True)
class _Seats:
    """Pods of one class with a reservation."""

    of_class: ClassCapacity
    rows: Int64
    counts: Int64


@dataclass(frozen=True)
class _FreeChange:
    """A change of free amounts, int64[resources, rows], independent of classes; `evicted` pods count as gone."""

    rows: Int64
    amounts: Int64
    evicted: Sequence[Evicted]


class CapacityState:
    """Free amounts of nodes: `free` is int64[resources, rows], negative where a node is oversubscribed.

    `refresh` takes over changes of `capacity` and `nodes`. Between two calls the state belongs to one solve, which
    reverts its reservations with `rollback`. `stamp` is int64[rows]: the `clock` of the last change of each row.
    `limit` is the time limit of that solve.
    """

    def __init__(
        self,
        capacity: Capacity,
        nodes: NodeTable,
        pod_classes: Mapping[str, PodClass],
        selection: PodSelection | None = None,
    ) -> None:
        self.capacity = capacity
        self.nodes = nodes
        self.trees = Trees(nodes)
        self.pod_counts = PodCounts(capacity, nodes, selection or PodSelection())
        self.pod_classes = pod_classes
        self.limit: TimeLimit = UNLIMITED
        self.free: Int64 = np.zeros((0, 0), np.int64)
        self.stamp: Int64 = np.zeros(0, np.int64)
        self.clock = 0
        self._tie: Int64 = np.zeros(0, np.int64)
        self._ties_clock = 0  # clock at which the tie-breakers of all rows were current
        self._shifts: Int64 = np.zeros((0, 1), np.int64)
        self._capacity_seen = self._order_seen = self._nodes_seen = -1
        # I11: by kind, the most recently used last. Entries end with their class or label set, and the least recently
        # used ones when there are more than _CACHED_CELLS.
        self._classes: dict[str, ClassCapacity] = {}
        self._cached_cells = 0
        self._evaluated: WeakSet[NodeFilters] = WeakSet()
        """Filters of every class that is cached, or used by the solve in progress: as many as _MAX_CELLS allows."""
        self._pods_seen = self._columns_seen = -1
        self._reserved: list[_Seats | _FreeChange] = []  # of the solve in progress, which rolls them back

    def refresh(self) -> None:
        """Take over changes of capacity and nodes since the last call. No reservation may be open."""
        assert not self._reserved, "a solve has not rolled back its reservations"
        capacity, nodes = self.capacity, self.nodes
        resources, rows = capacity.width, nodes.rows
        self.pod_counts.refresh()
        if self._pods_seen != self.pod_counts.generation:
            self._pods_seen = self.pod_counts.generation
            self.clock += 1  # inter-pod rules may give other results, though no node has changed
        if self._columns_seen != capacity.columns_version:
            self._columns_seen = capacity.columns_version
            self.forget_classes()
            self.free = np.zeros((0, 0), np.int64)
        if self.free.shape != (resources, rows):
            self.free = np.zeros((resources, rows), np.int64)
            self.stamp = np.zeros(rows, np.int64)
            self._tie = np.zeros(rows, np.int64)
            self._capacity_seen = self._order_seen = self._nodes_seen = -1
        if self._nodes_seen != nodes.version:
            shifts = self._resource_shifts()
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

    def of(self, kind: str) -> ClassCapacity:
        """Capacity for one class, or kind of pods, up to date. Raises KeyError for an unknown class, OutOfTime, and
        OutOfMemory.
        """
        self.limit.check()
        of_class = self._classes.pop(kind, None)
        if of_class is None:
            of_class = ClassCapacity(self.pod_class(kind), self.nodes, self.capacity, self.pod_counts)
            self._evaluated.add(of_class.filters)
            self._limit_memory()
            self._cached_cells += of_class.cells
            while self._cached_cells > _CACHED_CELLS // max(1, self.nodes.rows) and len(self._classes) >= _MIN_CACHED:
                self._cached_cells -= self._classes.pop(next(iter(self._classes))).cells
        self._classes[kind] = of_class
        if of_class.seen != self.clock:
            of_class.update(self.free, self.stamp, self.clock)
        return of_class

    def _limit_memory(self) -> None:
        """Raises OutOfMemory if the solve in progress alone uses too many classes and counts at a time."""
        if self._exceeds_memory():
            self.forget_classes()
        if self._exceeds_memory():
            raise OutOfMemory(len(self._evaluated), self.pod_counts.in_use, len(self.nodes))

    def _exceeds_memory(self) -> bool:
        arrays = _CLASS_ARRAYS * len(self._evaluated) + _COUNT_ARRAYS * self.pod_counts.in_use
        return arrays * (self.nodes.rows + _ARRAY_OVERHEAD) > _MAX_CELLS

    def pod_class(self, kind: str) -> PodClass:
        """The class of a kind of pods, with their label set. Raises KeyError for an unknown class."""
        class_id, label_set = split_kind(kind)
        pod_class = self.pod_classes[class_id]
        return replace(pod_class, id=kind, label_set=label_set) if label_set else pod_class

    def request_of(self, kind: str) -> Int64:
        """The request of one pod of a kind, int64[resources]."""
        vector: Int64 = self.capacity.vectors[self.capacity.classes[split_kind(kind)[0]], : len(self.free)]
        return vector

    def forget(self, class_ids: Container[str], label_sets: Container[str]) -> None:
        """Drop what is cached of removed classes and label sets."""
        for kind in list(self._classes):
            class_id, label_set = split_kind(kind)
            if class_id in class_ids or label_set in label_sets:
                self._cached_cells -= self._classes.pop(kind).cells

    def update_recent(self, classes: int) -> None:
        """Update the `classes` most recently used, so that the next solve does not have to."""
        for class_id in list(self._classes)[-classes:]:
            self.of(class_id)

    def forget_classes(self) -> None:
        """Drop the cache of classes."""
        self._classes.clear()
        self._cached_cells = 0

    def keys(self, of_class: Seatable) -> Int64:
        """Keys of the nodes on which the class fits, int64[some], in row order."""
        if self._ties_clock < self.clock:
            self._update_ties(np.flatnonzero(self.stamp > self._ties_clock))
        keys: Int64 = (of_class.fits << FITS_SHIFT) | self._tie
        return keys[of_class.fits > 0]

    def rows_of(self, keys: Int64) -> Int64:
        """Rows that the keys identify."""
        rows: Int64 = self.nodes.order[keys & RANK_MASK]
        return rows

    def reserve(self, of_class: ClassCapacity, rows: Int64, counts: Int64) -> None:
        """Reserve capacity for `counts[i]` pods of the class on `rows[i]`; rows are distinct.

        Raises NotEnoughFree.
        """
        self.reserve_unchecked(of_class, rows, counts)
        left = self.free[:, _index(rows)][of_class.columns]
        if left.min(initial=0) < 0:
            raise NotEnoughFree(self.nodes.name(int(rows[(left < 0).any(axis=0)][0])), of_class.pod_class.id)

    def reserve_unchecked(self, of_class: ClassCapacity, rows: Int64, counts: Int64) -> None:
        """As `reserve` without the check."""
        self._reserved.append(_Seats(of_class, rows, counts))
        self.pod_counts.add(of_class.kind, rows, counts)
        at = _index(rows)
        self.free[:, at] -= of_class.vector(len(self.free))[:, None] * counts
        self._touch(at)

    def reserve_all(self, seats: Sequence[tuple[str, Int64, Int64]]) -> None:
        """Reserve capacity for decided pods, whatever a node has left: kind, rows, and number of pods per row.

        Raises KeyError for an unknown class.
        """
        requests = [self.request_of(kind) for kind, _, _ in seats]
        if not any(len(rows) for _, rows, _ in seats):
            return
        rows, where = np.unique(np.concatenate([rows for _, rows, _ in seats]), return_inverse=True)
        amounts = np.zeros((len(rows), len(self.free)), np.int64)
        each = [counts[:, None] * request for request, (_, _, counts) in zip(requests, seats, strict=True)]
        np.add.at(amounts, where.reshape(-1), np.concatenate(each))
        held = [
            (known, some, -counts)
            for kind, some, counts in seats
            if len(some) and (known := self.kind_if_followed(kind)) is not None
        ]
        self.change_free(rows, -amounts.T, held)

    def kind_if_followed(self, kind: str) -> Kind | None:
        """Class index and label row of pods that inter-pod rules could select; None for others."""
        pod_class = self.pod_class(kind)
        return self.pod_counts.kind(split_kind(kind)[0], pod_class.label_set)

    def change_free(self, rows: Int64, amounts: Int64, evicted: Sequence[Evicted] = ()) -> None:
        """Change what is free on distinct rows: less for nominated capacity, more for evicted pods.

        `amounts` is int64[resources, rows]; the caller ensures that no node gets more than its allocatable. Inter-pod
        rules ignore the pods in `evicted`.
        """
        self._reserved.append(_FreeChange(rows, amounts, evicted))
        for kind, left, counts in evicted:
            self.pod_counts.add(kind, left, -counts)
        at = _index(rows)
        self.free[:, at] += amounts
        self._touch(at)

    def checkpoint(self) -> int:
        """A point to return to with `rollback`."""
        return len(self._reserved)

    def rollback(self, checkpoint: int) -> None:
        """Revert everything since the checkpoint."""
        changes = self._reserved[checkpoint:]
        if not changes:
            return
        del self._reserved[checkpoint:]
        for change in changes:
            if isinstance(change, _FreeChange):
                at = _index(change.rows)
                self.free[:, at] -= change.amounts
                for kind, left, counts in change.evicted:
                    self.pod_counts.add(kind, left, counts)
                self._touch(at)
        self._release([seats for seats in changes if isinstance(seats, _Seats)])

    def _release(self, reserved: Sequence[_Seats]) -> None:
        """Revert reservations class by class, since there may be thousands of them."""
        by_class: dict[str, list[_Seats]] = {}
        for seats in reserved:
            by_class.setdefault(seats.of_class.pod_class.id, []).append(seats)
        for same_class in by_class.values():
            of_class = same_class[0].of_class
            rows = np.concatenate([seats.rows for seats in same_class])
            counts = np.concatenate([seats.counts for seats in same_class])
            for column, amount in zip(of_class.columns.tolist(), of_class.amounts.tolist(), strict=True):
                np.add.at(self.free[column], rows, amount * counts)
            self.pod_counts.add(of_class.kind, rows, -counts)
            self._touch(_index(rows))

    def _touch(self, at: Int64 | slice) -> None:
        self.clock += 1
        self.stamp[at] = self.clock
        if self._ties_clock == self.clock - 1 and (isinstance(at, slice) or len(at) <= _EAGER_TIES):
            self._update_ties(at)

    def _update_ties(self, at: Int64 | slice) -> None:
        """Update the tie-breakers of changed rows."""
        shares: Int64 = np.maximum(self.free[:, at], 0) >> self._shifts
        size: Int64 = np.minimum(shares.sum(axis=0), 2**SIZE_BITS - 1)
        self._tie[at] = (size << RANK_BITS) | self.nodes.rank[at]
        self._ties_clock = self.clock

    def _resource_shifts(self) -> Int64:
        """Bits to shift amounts of each resource by, so that nodes compare by their share of the largest node.

        int64[resources, 1]; powers of two, so that shifts are stable while nodes are added and removed.
        """
        largest = self.capacity.allocatable[: self.nodes.rows, : len(self.free)].max(axis=0, initial=0)
        bits = np.array([int(amount).bit_length() for amount in largest], np.int64)
        return np.maximum(bits - _PER_RESOURCE_BITS, 0)[:, None]


def _index(rows: Int64) -> Int64 | slice:
    """A slice for a single row, since NumPy indexes several times faster with it."""
    if len(rows) == 1:
        row = int(rows[0])
        return slice(row, row + 1)
    return rows


@dataclass(frozen=True)
class NominatedAmounts:
    """Amounts withheld from the free capacity, int64[resources, rows]."""

    rows: Int64
    amounts: Int64

    def blocked_nodes(self, of_class: ClassCapacity, left: Int64) -> int:
        """Number of nodes on which one more pod of the class would fit without the nominated capacity.

        `left` is what is free of the class's resources, int64[its resources, all rows].
        """
        if not len(self.rows):
            return 0
        usable = of_class.filters.reason[self.rows] == USABLE
        if of_class.inter_pod is not None:
            usable &= of_class.inter_pod.caps()[self.rows] > 0
        now, needed = left[:, self.rows], of_class.amounts[:, None]
        fits = (now >= needed).all(axis=0)
        would_fit = (now + self.amounts[of_class.columns] >= needed).all(axis=0)
        return int((usable & would_fit & ~fits).sum())


NO_NOMINATIONS: NominatedAmounts = NominatedAmounts(np.zeros(0, np.int64), np.zeros((0, 0), np.int64))


def withhold(state: CapacityState, nominated: Iterable[NominatedCapacity]) -> NominatedAmounts:
    """Withhold nominated capacity until the next rollback; unknown nodes and resources are skipped.

    Free amounts may become negative: victims that have not terminated may still use the capacity.
    """
    by_row: dict[int, dict[int, int]] = {}
    for each in nominated:
        row = state.nodes.row(each.node)
        if row is not None:
            amounts = by_row.setdefault(row, {})
            for name, amount in each.amounts:
                column = state.capacity.resources.get(name)
                if column is not None:
                    amounts[column] = min(amounts.get(column, 0) + amount, MAX_AMOUNT)
    if not by_row:
        return NO_NOMINATIONS
    withheld = NominatedAmounts(np.array(list(by_row), np.int64), np.zeros((len(state.free), len(by_row)), np.int64))
    for index, amounts in enumerate(by_row.values()):
        for column, amount in amounts.items():
            withheld.amounts[column, index] = amount
    state.change_free(withheld.rows, -withheld.amounts)
    return withheld
