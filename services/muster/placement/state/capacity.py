"""Capacity state: what is free on every node during a batch, with reservations that can be rolled back."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import PodClass, split_kind
from muster.gangs.selection import PodSelection
from muster.placement.inter_pod.class_rules import InterPodRules, inter_pod_rules_of
from muster.placement.inter_pod.pod_counts import PodCounts
from muster.placement.inter_pod.pod_records import Kind
from muster.placement.state.filters import USABLE, NodeFilters
from muster.placement.state.nodes import NodeTable
from muster.placement.state.time_limit import UNLIMITED, TimeLimit
from muster.placement.state.trees import Trees

# A node's key for one class packs, from the high bits down: pods that fit, free capacity as a sum, rank by name.
# Sorting keys sorts nodes by tightness, then size, then name; the low bits identify the node.
SIZE_BITS: Final = 24
RANK_BITS: Final = 19
FITS_SHIFT: Final = SIZE_BITS + RANK_BITS
MAX_FITS: Final = 2**20 - 1
RANK_MASK: Final = 2**RANK_BITS - 1
_PER_RESOURCE_BITS: Final = 20
_SELECTIVE: Final = 4
"""A class that may use less than this part of the nodes is evaluated on those alone at first."""
_EAGER_TIES: Final = 64
"""Rows. Tie-breakers of larger changes are computed lazily, since they are not always needed."""
_CACHED_CELLS: Final = 20_000_000
"""Rows times classes that are cached between solves, at 20 bytes each."""
_MIN_CACHED: Final = 16
"""Classes that are cached in any case."""
_INTER_POD_CELLS: Final = 16
"""Cells that a row of a class with inter-pod rules counts for: caps, and a count and sums by domain for every rule."""


class NotEnoughFree(AssertionError):
    """Bug in the solver: a reservation exceeds what the node has free (I3)."""

    def __init__(self, node: str, class_id: str) -> None:
        super().__init__(f"reservation for class {class_id!r} exceeds what node {node!r} has free (I3)")


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
        self._classes: dict[str, ClassCapacity] = {}  # by kind, the most recently used last
        self._cached_cells = 0
        self._pods_seen = self._columns_seen = -1
        self._reserved: list[_Seats | _FreeChange] = []

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
        """Capacity for one class, or kind of pods, up to date. Raises KeyError for an unknown class, and OutOfTime."""
        self.limit.check()
        of_class = self._classes.pop(kind, None)
        if of_class is None:
            of_class = ClassCapacity(self.pod_class(kind), self.nodes, self.capacity, self.pod_counts)
            self._cached_cells += _cells(of_class)
            while self._cached_cells > _CACHED_CELLS // max(1, self.nodes.rows) and len(self._classes) >= _MIN_CACHED:
                self._cached_cells -= _cells(self._classes.pop(next(iter(self._classes))))
        self._classes[kind] = of_class
        if of_class.seen != self.clock:
            self._update_fits(of_class)
        return of_class

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
                self._cached_cells -= _cells(self._classes.pop(kind))

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
        """How many bits to shift amounts of each resource so that nodes compare by their share of the largest node.

        int64[resources, 1]; powers of two, so that shifts are stable while nodes are added and removed.
        """
        largest = self.capacity.allocatable[: self.nodes.rows, : len(self.free)].max(axis=0, initial=0)
        bits = np.array([int(amount).bit_length() for amount in largest], np.int64)
        return np.maximum(bits - _PER_RESOURCE_BITS, 0)[:, None]

    def _update_fits(self, of_class: ClassCapacity) -> None:
        evaluated = of_class.filters.refresh()
        if evaluated is None or len(of_class.alone) != len(self.stamp):
            of_class.alone = self._fits_alone(of_class, slice(None))
        else:
            rows = np.flatnonzero(self.stamp > of_class.seen)
            if len(evaluated):
                rows = np.union1d(rows, evaluated)
            of_class.alone[rows] = self._fits_alone(of_class, rows)
        of_class.fits = (
            of_class.alone if of_class.inter_pod is None else np.minimum(of_class.alone, of_class.inter_pod.caps())
        )
        of_class.seen = self.clock

    def _fits_alone(self, of_class: ClassCapacity, rows: Int64 | slice) -> Int64:
        """Pods that fit by requests alone. One division per column: NumPy divides fastest by a scalar."""
        usable = of_class.filters.reason[rows] == USABLE
        if isinstance(rows, slice) and np.count_nonzero(usable) * _SELECTIVE < len(usable):
            few = np.flatnonzero(usable)
            sparse: Int64 = np.zeros(len(usable), np.int64)
            if len(few):
                sparse[few] = self._fits_alone(of_class, few)
            return sparse
        fits: Int64 = np.where(usable, MAX_FITS, 0)
        for column, amount in zip(of_class.columns.tolist(), of_class.amounts.tolist(), strict=True):
            np.minimum(fits, self.free[column, rows] // amount, out=fits)
        return np.maximum(fits, 0, out=fits)


def _cells(of_class: ClassCapacity) -> int:
    return 1 if of_class.rules is None else _INTER_POD_CELLS


def _index(rows: Int64) -> Int64 | slice:
    """A slice for a single row, since NumPy indexes several times faster with it."""
    if len(rows) == 1:
        row = int(rows[0])
        return slice(row, row + 1)
    return rows
