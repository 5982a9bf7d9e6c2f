"""Allocatable and used amounts of nodes as arrays; pods are seated by uid, so that none counts twice."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.gangs.facts import NodeFacts, PodClass

Int64 = NDArray[np.int64]

MAX_AMOUNT: Final = 2**53
"""Larger amounts are cut to this on nodes, and to one more in requests, so that they fit no node. So the sums over a
node's pods stay far from the end of int64 whatever users write."""


class Capacity:
    """Allocatable and used amounts of every node.

    `allocatable` and `used` are int64[nodes, resources]; `vectors` is int64[classes, resources]. Rows of removed nodes
    are reused. Pods may be seated on nodes that are not known yet; their allocatable is 0 until they are added. Changes
    of pods of `followed` classes (indexes) are appended to `moves` as (class index, row, 1 or -1); the consumer clears
    the list.
    """

    def __init__(self) -> None:
        self.resources: dict[str, int] = {}
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.allocatable: Int64 = np.zeros((0, 0), np.int64)
        self.used: Int64 = np.zeros((0, 0), np.int64)
        self.version = 0
        self.touched: Int64 = np.zeros(0, np.int64)
        self.classes: dict[str, int] = {}
        self.vectors: Int64 = np.zeros((0, 0), np.int64)
        self.followed: set[int] = set()
        self.moves: list[tuple[int, int, int]] = []
        self._class_ids: list[str] = []
        self._seats: dict[str, tuple[int, int]] = {}  # pod uid -> (class index, node row)
        self._known: set[str] = set()
        self._free_rows: list[int] = []

    # -- nodes and classes

    def put_node(self, node: NodeFacts) -> int:
        """Add or change a node; returns its row."""
        row = self._row(node.name)
        self._known.add(node.name)
        columns = [self._column(name) for name, _ in node.allocatable]
        self.allocatable[row] = 0
        self.allocatable[row, columns] = [min(amount, MAX_AMOUNT) for _, amount in node.allocatable]
        self._touch(row)
        return row

    def drop_node(self, name: str) -> None:
        """Remove a node. Pods still seated there count as used until they are released."""
        if name in self._known:
            self._known.discard(name)
            self.allocatable[self.rows[name]] = 0
            self._touch(self.rows[name])
            self._recycle(name)

    def put_class(self, pod_class: PodClass) -> int:
        """Add a class; returns its index. A class never changes, because its id is a hash of its content."""
        index = self.classes.get(pod_class.id)
        if index is None:
            index = self.classes[pod_class.id] = len(self.classes)
            self._class_ids.append(pod_class.id)
            columns = [self._column(name) for name, _ in pod_class.requests]
            if index >= len(self.vectors):
                self.vectors = _grown(self.vectors, rows=max(16, 2 * index))
            self.vectors[index, columns] = [min(amount, MAX_AMOUNT + 1) for _, amount in pod_class.requests]
        return index

    def __contains__(self, node: str) -> bool:
        return node in self._known

    # -- seats

    def seat(self, pods: Iterable[tuple[str, str, str]]) -> list[str]:
        """Seat pods, given as (uid, class id, node); a pod that is seated already moves. Returns the nodes that moved
        pods have left.

        Raises KeyError for an unknown class; the pods before it are seated.
        """
        taken: list[tuple[int, int]] = []
        left: list[tuple[int, int]] = []
        try:
            for uid, class_id, node in pods:
                at = (self.classes[class_id], self._row(node))
                before = self._seats.get(uid)
                if before != at:
                    self._seats[uid] = at
                    taken.append(at)
                    if before is not None:
                        left.append(before)
        finally:
            self._use(taken, 1)
            self._use(left, -1)
            gained = self._recycle_all(left)
        return gained

    def release(self, uids: Iterable[str]) -> list[str]:
        """Release pods; unknown ones are ignored. Returns the nodes on which capacity became free."""
        left = [at for uid in uids if (at := self._seats.pop(uid, None)) is not None]
        self._use(left, -1)
        return self._recycle_all(left)

    def seated_on(self, uid: str) -> str | None:
        """Node on which the pod is seated."""
        at = self._seats.get(uid)
        return None if at is None else self.names[at[1]]

    def class_of(self, uid: str) -> str:
        """Class id of a seated pod."""
        return self._class_ids[self._seats[uid][0]]

    def used_by(self, uids: Iterable[str]) -> tuple[Int64, Int64]:
        """Amounts that pods use, by node: rows int64[n] without duplicates, and amounts int64[n, resources]. Pods that
        are not seated are ignored.
        """
        seats = [at for uid in uids if (at := self._seats.get(uid)) is not None]
        if not seats:
            return np.zeros(0, np.int64), np.zeros((0, self.vectors.shape[1]), np.int64)
        indexes, rows = np.array(seats).T
        rows, where = np.unique(rows, return_inverse=True)
        amounts = np.zeros((len(rows), self.vectors.shape[1]), np.int64)
        np.add.at(amounts, where, self.vectors[indexes])
        return rows, amounts

    @property
    def seats(self) -> int:
        """Number of pods seated."""
        return len(self._seats)

    def seated_uids(self) -> Iterable[str]:
        """Uids of all pods seated."""
        return self._seats.keys()

    def free(self, node: str) -> Int64:
        """Free amounts of a node, int64[resources]; negative where it is oversubscribed."""
        row = self.rows[node]
        free: Int64 = self.allocatable[row] - self.used[row]
        return free

    # -- growth

    def _use(self, seats: list[tuple[int, int]], sign: int) -> None:
        if self.followed:
            self.moves.extend((index, row, sign) for index, row in seats if index in self.followed)
        if len(seats) == 1:
            index, row = seats[0]
            self.used[row] += sign * self.vectors[index]
            self._touch(row)
        elif seats:
            indexes, rows = np.array(seats).T
            np.add.at(self.used, rows, sign * self.vectors[indexes])
            self._touch(rows)

    def _touch(self, rows: int | Int64) -> None:
        self.version += 1
        self.touched[rows] = self.version

    def _recycle_all(self, seats: list[tuple[int, int]]) -> list[str]:
        names = [self.names[row] for row in dict.fromkeys(row for _, row in seats)]
        for name in names:
            self._recycle(name)
        return names

    def _row(self, name: str) -> int:
        row = self.rows.get(name)
        if row is None:
            if self._free_rows:
                row = self._free_rows.pop()
                self.names[row] = name
            else:
                row = len(self.names)
                self.names.append(name)
                if row >= len(self.used):
                    self.allocatable = _grown(self.allocatable, rows=max(16, 2 * row))
                    self.used = _grown(self.used, rows=max(16, 2 * row))
                    self.touched = np.concatenate(
                        (self.touched, np.zeros(len(self.used) - len(self.touched), np.int64))
                    )
            self.rows[name] = row
        return row

    def _recycle(self, name: str) -> None:
        row = self.rows[name]
        if name not in self._known and not self.used[row].any():
            del self.rows[name]
            self.names[row] = ""
            self._free_rows.append(row)

    def _column(self, resource: str) -> int:
        column = self.resources.get(resource)
        if column is None:
            column = self.resources[resource] = len(self.resources)
            if column >= self.used.shape[1]:
                columns = max(8, 2 * column)
                self.allocatable = _grown(self.allocatable, columns=columns)
                self.used = _grown(self.used, columns=columns)
                self.vectors = _grown(self.vectors, columns=columns)
        return column


def _grown(array: Int64, rows: int = 0, columns: int = 0) -> Int64:
    grown = np.zeros((max(rows, array.shape[0]), max(columns, array.shape[1])), np.int64)
    grown[: array.shape[0], : array.shape[1]] = array
    return grown
