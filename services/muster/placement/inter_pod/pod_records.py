"""Records that inter-pod rules are evaluated on: pods, and the required anti-affinity terms of their classes.

Pods are entries of (class, label set, node, number), with a log of their newest changes.

While no selector is in use only pods of classes with host ports or anti-affinity are recorded, so a cluster without
inter-pod rules pays nothing.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import HostPort, PodClass, PodFacts
from muster.gangs.selection import PodSelection
from muster.placement.state.nodes import Bool, NodeTable


class AntiAffinityTerms:
    """The terms of the classes that are known; `version` rises when they change.

    `_table` is int64[3, terms]: selector row, topology key code, class index, which is _DEAD for removed classes. Dead
    terms, and the keys that only they name, are at most half of all.

    A term keeps no pod away from nodes without its topology label. So terms whose label no node has are left out of
    what is computed for a class: pods may name as many labels as they like, and select those of all namespaces.
    """

    def __init__(self, selection: PodSelection, nodes: NodeTable) -> None:
        self.version = 0
        self._selection, self._nodes = selection, nodes
        self._keys: dict[str, int] = {}
        self._table: Int64 = np.zeros((3, 16), np.int64)
        self._size = 0
        self._dead = 0
        self._of_class: dict[int, list[int]] = {}
        self._effective_seen = (-1, -1)
        self._effective: Int64 = np.zeros((2, 0), np.int64)
        """Selector rows and topology key codes of the terms that may keep pods away, each pair once."""
        self._names: dict[int, str] = {}
        """Topology keys of these terms by code; no more than labels of nodes."""
        self._on_nodes: Bool = np.zeros(0, np.bool_)
        """Whether some node has the topology key, by code, as far as it is known."""
        self._labels_seen = -1

    def __bool__(self) -> bool:
        return bool(self._of_class)

    def put(self, index: int, pod_class: PodClass) -> None:
        """Add the terms of a class; its selectors are known."""
        if not pod_class.required_pod_anti_affinity:
            return
        self.version += 1
        positions = self._of_class[index] = []
        for term in pod_class.required_pod_anti_affinity:
            row = self._selection.selector_row(term.selector)
            if row < 0:
                continue
            if self._size == self._table.shape[1]:
                self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
            key = self._keys.setdefault(term.topology_key, len(self._keys))
            self._table[:, self._size] = row, key, index
            positions.append(self._size)
            self._size += 1

    def drop(self, index: int) -> None:
        """Remove the terms of a class."""
        positions = self._of_class.pop(index, None)
        if positions is None:
            return
        self.version += 1
        self._table[2, positions] = _DEAD
        self._dead += len(positions)
        if self._dead > max(16, self._size // 2):
            self._compact()

    def keys(self, label_set: str) -> list[str]:
        """Labels of nodes that are topology keys of terms that keep pods with a label set away, sorted."""
        if self._effective_seen != (seen := (self.version, self._nodes.label_keys_version)):
            self._effective_seen = seen
            self._update_effective()
        selectors, codes = self._effective
        selecting = self._selection.selecting(label_set)[selectors]
        return sorted([self._names[code] for code in np.unique(codes[selecting]).tolist()])

    def _update_effective(self) -> None:
        if self._labels_seen != self._nodes.label_keys_version:
            self._labels_seen = self._nodes.label_keys_version
            self._on_nodes = np.zeros(0, np.bool_)
        names = list(self._keys)
        if new := [self._nodes.has_label(key) for key in names[len(self._on_nodes) :]]:
            self._on_nodes = np.concatenate((self._on_nodes, np.array(new, np.bool_)))
        self._names = {code: names[code] for code in np.flatnonzero(self._on_nodes).tolist()}
        table = self._table[:, : self._size]
        selectors, codes, _ = table[:, (table[2] != _DEAD) & self._on_nodes[table[1]]]
        pairs = np.unique(selectors * max(1, len(names)) + codes)
        self._effective = np.stack(np.divmod(pairs, max(1, len(names))))

    def classes(self, label_set: str, key: str, size: int) -> Bool:
        """Classes with a term of a topology key that selects pods with a label set, bool[size]."""
        found: Bool = np.zeros(size, np.bool_)
        code = self._keys.get(key)
        if code is not None:
            table = self._table[:, : self._size]
            found[table[2][self._selecting(label_set) & (table[1] == code)]] = True
        return found

    def _selecting(self, label_set: str) -> Bool:
        table = self._table[:, : self._size]
        selecting: Bool = self._selection.selecting(label_set)[table[0]] & (table[2] != _DEAD)
        return selecting

    def _compact(self) -> None:
        alive = self._table[:, : self._size]
        alive = alive[:, alive[2] != _DEAD]
        names = list(self._keys)
        used, alive[1] = np.unique(alive[1], return_inverse=True)
        self._keys = {names[code]: index for index, code in enumerate(used.tolist())}
        self._on_nodes = np.zeros(0, np.bool_)
        self._size, self._dead = alive.shape[1], 0
        self._table = np.zeros((3, max(16, 2 * self._size)), np.int64)
        self._table[:, : self._size] = alive
        self._of_class = {index: [] for index in self._of_class}
        for position, index in enumerate(alive[2].tolist()):
            self._of_class[index].append(position)


Kind = tuple[int, int]
"""Class index and label row of pods."""

_DEAD: Final = -1
"""Instead of a class index: the class of a term was removed."""

MAX_PENDING_MOVES: Final = 100_000
"""Moves of pods, and of pods that are being deleted, that wait for the next solve; more are taken over at once."""
_MAX_LOGGED: Final = 20_000
"""Moves that are kept, so that a count that is used again adds only what has changed."""
_MAX_GENERATIONS: Final = 256
_MIN_COMPACTED: Final = 4096

_Moves = list[tuple[int, int, int, int]]
"""(class index, node row, label row, change of the number of pods)."""


class PodEntries:
    """Numbers of pods as arrays: `classes`, `rows`, `labels` and `counts` are int64[size]. Entries may cancel out."""

    def __init__(self, table: Int64) -> None:
        """`table` is int64[4, size]."""
        self.classes, self.rows, self.labels, self.counts = table

    @property
    def size(self) -> int:
        return len(self.rows)


class PodRecords(ABC):
    """The pods in `capacity` and, within a solve, the pods placed so far, in terms that inter-pod rules can select.

    Entries of pods take 32 bytes each and are at most twice as many as the recorded pods' kinds on nodes. The log of
    changes keeps _MAX_LOGGED moves and _MAX_GENERATIONS generations at most. Moves end when they are taken over, which
    the next solve does, or MAX_PENDING_MOVES of them; entries of `placed` end with the next solve. Ports, and pods that
    are being deleted, end with their class and pod.
    """

    def __init__(self, capacity: Capacity, nodes: NodeTable, selection: PodSelection) -> None:
        self.selection = selection
        self.terms = AntiAffinityTerms(selection, nodes)
        self.generation = 0
        """Rises when pods, classes, selectors, label sets or nodes have changed."""
        self.node_rows = 0
        self.ports_version = 0
        self.placed: list[tuple[Kind, Int64, Int64]] = []
        """Pods placed, and with negative counts removed, since the last refresh: kind, rows and counts."""
        self._capacity = capacity
        self._nodes = nodes
        self.ports: dict[int, tuple[HostPort, ...]] = {}
        """Host ports of classes that have any, by class index."""
        self._entries: list[Int64] = [np.zeros((4, 0), np.int64)]
        self._entry_count = 0
        self._compacted = 0
        self._deleting: dict[str, tuple[int, int, int]] = {}  # seats of pods that are being deleted, by uid
        self._deleting_moves: _Moves = []  # their changes since the last refresh
        self._log: deque[tuple[PodEntries, PodEntries]] = deque()  # moves of the newest generations, see `moves_since`
        self._logged = 0
        self._seen: tuple[int, ...] = ()

    @property
    def class_rows(self) -> int:
        """Length of arrays indexed by class."""
        return len(self._capacity.vectors)

    @property
    def classes_reset(self) -> int:
        return self._capacity.classes_reset

    @property
    def follows(self) -> bool:
        """Pods of some class are recorded."""
        return self._capacity.follows_all or bool(self._capacity.followed)

    @property
    def pending_moves(self) -> int:
        """Moves that wait for the next solve."""
        return len(self._capacity.moves) + len(self._deleting_moves)

    # -- changes

    def put_class(self, index: int, pod_class: PodClass) -> None:
        """Record pods of a class that has rules or host ports of its own. Call before any of its pods is seated."""
        if not (pod_class.required_pod_anti_affinity or pod_class.host_ports):
            return
        self._capacity.followed.add(index)
        self.terms.put(index, pod_class)
        if pod_class.host_ports:
            self.ports[index] = pod_class.host_ports
            self.ports_version += 1

    def drop_class(self, index: int) -> None:
        """Forget a class that was removed."""
        self.terms.drop(index)
        if self.ports.pop(index, None) is not None:
            self.ports_version += 1

    def put_pods(self, pods: Iterable[PodFacts], removed: Iterable[str]) -> None:
        """Record which pods are being deleted, after the capacity state has seated them."""
        if self._deleting:
            for uid in removed:
                self._end_deletion(uid)
        for pod in pods:
            if self._deleting:
                self._end_deletion(pod.uid)
            if pod.deleting and pod.seated:
                at = self._deleting[pod.uid] = self._capacity.seat_of(pod.uid)
                self._deleting_moves.append((*at, -1))
        if self.pending_moves > MAX_PENDING_MOVES:
            self._take_moves()

    def refresh(self) -> None:
        """Take over the changes since the last call. No solve may be in progress."""
        capacity, selection = self._capacity, self.selection
        if capacity.follows_all != bool(selection.selectors):
            capacity.follows_all = bool(selection.selectors)
            self._record_anew()
        seen = (
            self._nodes.rows,
            selection.version,
            self.terms.version,
            self.ports_version,
            self.classes_reset,
            self.class_rows,
        )
        if capacity.moves or self._deleting_moves or seen != self._seen:
            self._seen = seen
            self.node_rows = self._nodes.rows
            self._take_moves()
        else:
            self._forget_placed()

    def add(self, kind: Kind, rows: Int64, counts: Int64) -> None:
        """Add pods within a solve; negative counts remove them."""
        if self.follows:
            self.placed.append((kind, rows, counts))

    def kind(self, class_id: str, label_set: str) -> Kind | None:
        """Class index and label row of pods if rules could select them."""
        index = self._capacity.classes[class_id]
        follows = self._capacity.follows_all or index in self._capacity.followed
        return (index, self.selection.row(label_set)) if follows else None

    # -- entries

    def entries(self) -> PodEntries:
        """All recorded pods."""
        if len(self._entries) > 1:
            self._entries = [np.concatenate(self._entries, axis=1)]
        return PodEntries(self._entries[0])

    def deleting_entries(self) -> PodEntries:
        """Seated pods that are being deleted."""
        return PodEntries(_table([(*at, 1) for at in self._deleting.values()]))

    def moves_since(self, generation: int) -> Sequence[tuple[PodEntries, PodEntries]] | None:
        """Changes since a generation, of all pods and of those that are being deleted; None if they are not kept."""
        missed = self.generation - generation
        if missed > len(self._log):
            return None
        return list(self._log)[len(self._log) - missed :]

    def _forget_placed(self) -> None:
        """Forget what was placed in the last solve, which has been taken back."""
        if self.placed:
            self._settle_counts()
            self.placed.clear()

    @abstractmethod
    def _settle_counts(self) -> None:
        """Have all counts take in what was placed, before it is forgotten."""

    def _record_anew(self) -> None:
        """Record the pods that are seated now: all if selectors are in use, else those of followed classes."""
        self._forget_placed()
        seats = self._capacity.seat_table()
        if not self._capacity.follows_all:
            followed = np.zeros(self.class_rows, np.bool_)
            followed[list(self._capacity.followed)] = True
            seats = seats[:, followed[seats[0]]]
        self._entries = [np.concatenate((seats, np.ones((1, seats.shape[1]), np.int64)))]
        self._entry_count = seats.shape[1]
        self._capacity.moves = []
        self._deleting_moves = []
        self._forget_log()
        self._compact()

    def _take_moves(self) -> None:
        self._forget_placed()
        moves, self._capacity.moves = _table(self._capacity.moves), []
        deleting, self._deleting_moves = _table(self._deleting_moves), []
        self.generation += 1
        self._log.append((PodEntries(moves), PodEntries(deleting)))
        self._logged += moves.shape[1] + deleting.shape[1]
        while self._logged > _MAX_LOGGED or len(self._log) > _MAX_GENERATIONS:
            self._logged -= sum(each.size for each in self._log.popleft())
        if moves.shape[1]:
            self._entries.append(moves)
            self._entry_count += moves.shape[1]
            if self._entry_count > max(_MIN_COMPACTED, 2 * self._compacted):
                self._compact()

    def _compact(self) -> None:
        """Add up the entries of equal class, label set and node."""
        entries = self.entries()
        order = np.lexsort((entries.rows, entries.labels, entries.classes))
        table = self._entries[0][:, order]
        if table.shape[1]:
            new = np.concatenate(([True], (table[:3, 1:] != table[:3, :-1]).any(axis=0)))
            sums = np.add.reduceat(table[3], np.flatnonzero(new))
            table = np.concatenate((table[:3, new], sums[None, :]))[:, sums != 0]
        self._entries = [np.ascontiguousarray(table)]
        self._entry_count = self._compacted = table.shape[1]

    def _forget_log(self) -> None:
        self.generation += 1
        self._log.clear()
        self._logged = 0

    def _end_deletion(self, uid: str) -> None:
        at = self._deleting.pop(uid, None)
        if at is not None:
            self._deleting_moves.append((*at, 1))


def _table(moves: _Moves) -> Int64:
    """int64[4, moves]."""
    if not moves:
        return np.zeros((4, 0), np.int64)
    return np.ascontiguousarray(np.array(moves, np.int64).T)
