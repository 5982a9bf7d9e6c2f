"""Pods that may be removed, as arrays: what is free where when some of them are gone."""

from collections.abc import Sequence

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.placing import PodsOnNode, Removable, Removed
from muster.placement.kept import Kept
from muster.placement.room import Room


class Candidates:
    """Entries are pods of one class of one gang on one node, sorted by node and, on each, in the order of the request.

    `gang`, `at` and `count` are int64[entries]: index of the gang, index into `rows`, pods. `turn` is the place of each
    entry in the order of the request. `rows` are the distinct rows, int64[nodes], `starts` their first entries;
    `amounts` is what one pod of each entry holds, int64[resources, entries]. Pods on nodes that are not known are left
    out, and no node gives back more than is used there, whatever the caller says.
    """

    def __init__(self, room: Room, removable: Sequence[Removable], kept: Kept) -> None:
        self.removable = removable
        self.level = np.array([gang.level for gang in removable], np.int64)
        self.spare = np.array([gang.spare for gang in removable], np.int64)
        listed = [(index, pods) for index, gang in enumerate(removable) for pods in gang.pods if pods.count]
        row_of = {name: room.nodes.row(name) for name in {pods.node for _, pods in listed}}
        self._listed = [pods for _, pods in listed]
        rows = np.array([-1 if (row := row_of[pods.node]) is None else row for _, pods in listed], np.int64)
        turn = np.flatnonzero(rows >= 0)
        turn = turn[np.argsort(rows[turn], kind="stable")]
        class_ids = list(dict.fromkeys(pods.class_id for pods in self._listed))
        class_of = {class_id: index for index, class_id in enumerate(class_ids)}
        vectors = np.zeros((len(room.free), len(class_ids)), np.int64)
        for class_id, index in class_of.items():
            vectors[:, index] = room.of(class_id).vector(len(room.free))
        self.turn: Int64 = turn
        self.gang: Int64 = np.array([index for index, _ in listed], np.int64)[turn]
        self.count: Int64 = np.array([pods.count for pods in self._listed], np.int64)[turn]
        self.amounts: Int64 = vectors[:, np.array([class_of[pods.class_id] for pods in self._listed], np.int64)[turn]]
        self.rows, self.starts, self.at = np.unique(rows[turn], return_index=True, return_inverse=True)
        self._clip(_in_use(room, self.rows, kept))

    def __len__(self) -> int:
        return len(self.gang)

    def freed(self, removed: Int64) -> Int64:
        """What is given back by so many pods of each entry: int64[resources, nodes]."""
        if not len(self.rows):
            return np.zeros((len(self.amounts), 0), np.int64)
        freed: Int64 = np.add.reduceat(self.amounts * removed, self.starts, axis=1)
        return freed

    def answer(self, removed: Int64) -> tuple[Removed, ...]:
        """In the words of the answer: gangs and their pods in the order of the request. Of a gang of which all that
        can be found goes, everything that was listed goes.
        """
        by_gang: dict[int, list[tuple[int, int]]] = {}
        for entry in np.flatnonzero(removed).tolist():
            by_gang.setdefault(int(self.gang[entry]), []).append((int(self.turn[entry]), int(removed[entry])))
        return tuple(self._of_gang(index, taken) for index, taken in sorted(by_gang.items()))

    def _of_gang(self, index: int, taken: list[tuple[int, int]]) -> Removed:
        gang = self.removable[index]
        if sum(count for _, count in taken) == int(self.count[self.gang == index].sum()):
            return Removed(gang.id, True, tuple(pods for pods in gang.pods if pods.count))
        pods = ((self._listed[turn], count) for turn, count in sorted(taken))
        return Removed(gang.id, False, tuple(PodsOnNode(each.node, each.class_id, count) for each, count in pods))

    def _clip(self, in_use: Int64) -> None:
        """Let no node give back more than is used there: `in_use` is int64[resources, nodes]."""
        if not len(self):
            return
        most = np.where(self.amounts > 0, in_use[:, self.at] // np.maximum(self.amounts, 1), np.iinfo(np.int64).max)
        self.count = np.minimum(self.count, np.maximum(most.min(axis=0), 0))
        given = np.add.reduceat(self.amounts * self.count.astype(np.float64), self.starts, axis=1)
        for node in np.flatnonzero((given > in_use).any(axis=0)).tolist():
            left = in_use[:, node].copy()
            for entry in range(self.starts[node], len(self) if node + 1 == len(self.rows) else self.starts[node + 1]):
                asked = np.flatnonzero(self.amounts[:, entry])
                fits = int((left[asked] // self.amounts[asked, entry]).min(initial=int(self.count[entry])))
                self.count[entry] = max(0, min(int(self.count[entry]), fits))
                left -= self.amounts[:, entry] * self.count[entry]


def _in_use(room: Room, rows: Int64, kept: Kept) -> Int64:
    """What pods hold on nodes, seated or reserved: int64[resources, rows]."""
    free = room.free[:, rows]
    if len(kept.rows):
        withheld = np.zeros((len(room.free), room.nodes.rows), np.int64)
        withheld[:, kept.rows] = kept.amounts
        free += withheld[:, rows]
    in_use: Int64 = room.capacity.allocatable[rows, : len(room.free)].T - free
    return in_use
