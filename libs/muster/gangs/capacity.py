"""Allocatable and used amounts of nodes as arrays; pods are seated by uid, so that none counts twice."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.gangs.facts import NodeFacts, PodClass
from muster.gangs.free_rows import FreeRows
from muster.gangs.quantity import MAX_AMOUNT

Int64 = NDArray[np.int64]

NOT_OFFERED: Final = "(resources that no node has)"
"""One column for all of them: a class that requests any asks for 1 of it, and no node has any."""

_Seat = tuple[int, int, int]
"""Class index, node row and label row of a pod."""


class Capacity:
    """Allocatable and used amounts of every node.

    `allocatable` and `used` are int64[nodes, resources]; `vectors` is int64[classes, resources]. Rows of removed nodes
    are reused. Pods may be seated on nodes that are not known yet; their allocatable is 0 until they are added. Changes
    of pods of `followed` classes (indexes), or of all with `follows_all`, are appended to `moves` as (class index, node
    row, label row, 1 or -1); the consumer clears the list. Label rows are the consumer's, 0 if it has none.
    `classes_reset` rises when class indexes are used again for other classes.

    `resources` are the columns by name: there is one for each resource that some node has, and one for NOT_OFFERED.
    Their indexes are below `width`; columns that end are used again, and `columns_version` rises with each change.
    """

    def __init__(self) -> None:
        self.resources: dict[str, int] = {}
        self.width = 0
        self.columns_version = 0
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.allocatable: Int64 = np.zeros((0, 0), np.int64)
        self.used: Int64 = np.zeros((0, 0), np.int64)
        self.version = 0
        self.touched: Int64 = np.zeros(0, np.int64)
        self.classes: dict[str, int] = {}
        self.vectors: Int64 = np.zeros((0, 0), np.int64)
        self.followed: set[int] = set()
        self.follows_all = False
        self.moves: list[tuple[int, int, int, int]] = []
        self.classes_reset = 0
        self._class_ids: list[str] = []
        self._class_seats: Int64 = np.zeros(0, np.int64)  # seated pods by class index
        self._leaving: set[int] = set()  # indexes of removed classes of which pods are still seated
        self._free_classes = FreeRows()
        self._seats: dict[str, _Seat] = {}  # by pod uid
        self._known: set[str] = set()
        # I11: entries of resources end with the last node that has one, or the last class that requests one.
        self._offered: dict[str, tuple[str, ...]] = {}  # node -> resources that it has
        self._offering: Counter[str] = Counter()  # resource -> nodes that have it
        self._lacking: dict[int, dict[str, int]] = {}  # class index -> what it requests that no node has
        self._wanting: dict[str, set[int]] = {}  # resource that no node has -> indexes of classes that request it
        self._free_columns = array("q")
        self._free_rows = array("q")

    # -- nodes and classes

    def put_node(self, node: NodeFacts) -> int:
        """Add or change a node; returns its row."""
        row = self._row(node.name)
        self._known.add(node.name)
        before = self._offered.get(node.name, ())
        after = self._offered[node.name] = tuple([name for name, _ in node.allocatable])
        if before != after:
            self._offer(after)
        columns = [self.resources[name] for name in after]
        self.allocatable[row] = 0
        self.allocatable[row, columns] = [min(amount, MAX_AMOUNT) for _, amount in node.allocatable]
        self._touch(row)
        if before != after:
            self._withdraw(before)
        return row

    def drop_node(self, name: str) -> None:
        """Remove a node. Pods still seated there count as used until they are released."""
        if name in self._known:
            self._known.discard(name)
            self.allocatable[self.rows[name]] = 0
            self._touch(self.rows[name])
            self._withdraw(self._offered.pop(name))
            self._recycle(name)

    def put_class(self, pod_class: PodClass) -> int:
        """Add a class; returns its index. A class never changes, because its id is a hash of its content."""
        index = self.classes.get(pod_class.id)
        if index is None:
            index = self._free_classes.take()
            if index is None:
                index = len(self._class_ids)
                self._class_ids.append(pod_class.id)
            else:
                self._class_ids[index] = pod_class.id
                self.classes_reset += self._free_classes.began_lot
            self.classes[pod_class.id] = index
            if index >= len(self.vectors):
                self.vectors = _grown(self.vectors, rows=max(16, 2 * index))
                unused = np.zeros(len(self.vectors) - len(self._class_seats), np.int64)
                self._class_seats = np.concatenate((self._class_seats, unused))
            for name, amount in pod_class.requests:
                amount = min(amount, MAX_AMOUNT + 1)
                if name in self.resources:
                    self.vectors[index, self.resources[name]] = amount
                elif amount:
                    self._lack(index, name, amount)
        return index

    def drop_class(self, class_id: str) -> int | None:
        """Remove a class; returns its index. Pods that are still seated keep their amounts until they are released."""
        index = self.classes.pop(class_id, None)
        if index is not None:
            self._leaving.add(index)
            self._end_classes((index,))
        return index

    def lacking(self, class_id: str) -> Mapping[str, int]:
        """Resources that the class requests and no node has, with the amounts."""
        return self._lacking.get(self.classes[class_id], {})

    def __contains__(self, node: str) -> bool:
        return node in self._known

    # -- seats

    def seat(self, pods: Iterable[tuple[str, str, str, int]]) -> list[str]:
        """Seat pods, given as (uid, class id, node, label row); a pod that is seated already moves. Returns the nodes
        that moved pods have left.

        Raises KeyError for an unknown class; the pods before it are seated.
        """
        taken: list[_Seat] = []
        left: list[_Seat] = []
        try:
            for uid, class_id, node, labels in pods:
                at = (self.classes[class_id], self._row(node), labels)
                before = self._seats.get(uid)
                if before != at:
                    self._seats[uid] = at
                    taken.append(at)
                    if before is not None:
                        left.append(before)
        finally:
            self._use(taken, 1)
            gained = []
            if left:
                self._use(left, -1)
                gained = self._recycle_all(left)
        return gained

    def release(self, uids: Iterable[str]) -> list[str]:
        """Release pods; unknown ones are ignored. Returns the nodes on which capacity became free."""
        left = [at for uid in uids if (at := self._seats.pop(uid, None)) is not None]
        if not left:
            return []
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
        indexes, rows, _ = np.array(seats).T
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

    def seat_of(self, uid: str) -> tuple[int, int, int]:
        """Class index, node row and label row of a seated pod."""
        return self._seats[uid]

    def seat_table(self) -> Int64:
        """Class index, node row and label row of all seated pods, int64[3, pods]."""
        if not self._seats:
            return np.zeros((3, 0), np.int64)
        flat = np.fromiter(chain.from_iterable(self._seats.values()), np.int64, 3 * len(self._seats))
        table: Int64 = flat.reshape(-1, 3).T
        return table

    def free(self, node: str) -> Int64:
        """Free amounts of a node, int64[resources]; negative where it is oversubscribed."""
        row = self.rows[node]
        free: Int64 = self.allocatable[row] - self.used[row]
        return free

    # -- growth

    def _use(self, seats: list[_Seat], sign: int) -> None:
        if self.follows_all:
            self.moves.extend([(*seat, sign) for seat in seats])
        elif self.followed:
            self.moves.extend([(*seat, sign) for seat in seats if seat[0] in self.followed])
        if len(seats) == 1:
            index, row, _ = seats[0]
            self.used[row] += sign * self.vectors[index]
            self._class_seats[index] += sign
            self._touch(row)
        elif seats:
            indexes, rows, _ = np.array(seats).T
            np.add.at(self.used, rows, sign * self.vectors[indexes])
            np.add.at(self._class_seats, indexes, sign)
            self._touch(rows)
        if self._leaving and sign < 0:
            self._end_classes({index for index, _, _ in seats} & self._leaving)

    def _end_classes(self, indexes: Iterable[int]) -> None:
        """Free the indexes of removed classes of which no pod is seated any more."""
        for index in indexes:
            if not self._class_seats[index]:
                self._leaving.discard(index)
                self._class_ids[index] = ""
                self.vectors[index] = 0
                for name in self._lacking.pop(index, ()):
                    self._want_no_more(index, name)
                self.followed.discard(index)
                self._free_classes.give(index, len(self._class_ids))

    def _touch(self, rows: int | Int64) -> None:
        self.version += 1
        self.touched[rows] = self.version

    def _recycle_all(self, seats: list[_Seat]) -> list[str]:
        names = [self.names[row] for row in dict.fromkeys([row for _, row, _ in seats])]
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

    # -- resources

    def _offer(self, resources: Iterable[str]) -> None:
        """One more node has these."""
        for name in resources:
            self._offering[name] += 1
            if self._offering[name] == 1:
                self._begin_column(name)

    def _withdraw(self, resources: Iterable[str]) -> None:
        """One node less has these; its amounts are zero already."""
        for name in resources:
            self._offering[name] -= 1
            if not self._offering[name]:
                del self._offering[name]
                self._end_column(name)

    def _begin_column(self, resource: str) -> None:
        column = self._new_column(resource)
        wanting = self._wanting.pop(resource, ())
        for index in wanting:
            lacking = self._lacking[index]
            self.vectors[index, column] = lacking.pop(resource)
            if not lacking:
                del self._lacking[index]
                self.vectors[index, self.resources[NOT_OFFERED]] = 0
        if wanting:
            self._count_used(column, self.resources[NOT_OFFERED])

    def _end_column(self, resource: str) -> None:
        column = self.resources.pop(resource)
        wanting = np.flatnonzero(self.vectors[:, column]).tolist()
        for index in wanting:
            self._lack(index, resource, int(self.vectors[index, column]))
        self.vectors[:, column] = 0
        if wanting:
            self._count_used(column, self.resources[NOT_OFFERED])
        self._free_columns.append(column)
        self.columns_version += 1

    def _lack(self, index: int, resource: str, amount: int) -> None:
        """The class requests a resource that no node has."""
        if NOT_OFFERED not in self.resources:
            self._new_column(NOT_OFFERED)
        self._lacking.setdefault(index, {})[resource] = amount
        self._wanting.setdefault(resource, set()).add(index)
        self.vectors[index, self.resources[NOT_OFFERED]] = 1

    def _want_no_more(self, index: int, resource: str) -> None:
        wanting = self._wanting[resource]
        wanting.discard(index)
        if not wanting:
            del self._wanting[resource]

    def _count_used(self, *columns: int) -> None:
        """Count again what seated pods use of these resources."""
        indexes, rows, _ = self.seat_table()
        for column in columns:
            self.used[:, column] = 0
            amounts = self.vectors[indexes, column]
            asking = np.flatnonzero(amounts)
            np.add.at(self.used[:, column], rows[asking], amounts[asking])
        if len(rows):
            self._touch(np.unique(rows))

    def _new_column(self, resource: str) -> int:
        if self._free_columns:
            column = self._free_columns.pop()
        else:
            column, self.width = self.width, self.width + 1
            if column >= self.used.shape[1]:
                columns = max(8, 2 * column)
                self.allocatable = _grown(self.allocatable, columns=columns)
                self.used = _grown(self.used, columns=columns)
                self.vectors = _grown(self.vectors, columns=columns)
        self.resources[resource] = column
        self.columns_version += 1
        return column


def _grown(array: Int64, rows: int = 0, columns: int = 0) -> Int64:
    grown = np.zeros((max(rows, array.shape[0]), max(columns, array.shape[1])), np.int64)
    grown[: array.shape[0], : array.shape[1]] = array
    return grown
