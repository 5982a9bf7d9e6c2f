"""Counts pods per node by the properties that inter-pod rules select: matching labels, anti-affinity, host ports.

Pods are recorded as entries of (class, label set, node, number), and a count adds up the entries of the classes or
label sets that its rule selects. While no selector is in use only pods of classes with host ports or anti-affinity are
recorded, so a cluster without inter-pod rules pays nothing.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import HostPort, PodClass, PodFacts
from muster.gangs.selection import PodSelection
from muster.placement.inter_pod.anti_affinity_terms import AntiAffinityTerms
from muster.placement.state.nodes import Bool, Domains, NodeTable

Kind = tuple[int, int]
"""Class index and label row of pods."""

_MAX_PENDING_MOVES: Final = 100_000
"""Moves recorded by the capacity state before they are taken over."""
_MAX_LOGGED: Final = 20_000
"""Moves that are kept, so that a count that is used again adds only what has changed."""
_MAX_GENERATIONS: Final = 256
_FEW_ROWS: Final = 64
"""New label sets that are compared with selectors one by one."""
_MIN_COMPACTED: Final = 4096

_ANY_IP: Final = "0.0.0.0"  # noqa: S104 - the address of a requested host port; no socket is bound here

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


class PodCount(ABC):
    """Pods of some kinds, up to date whenever it is read; `version` rises with every change.

    `without_deleting`: pods that are being deleted are not counted.
    """

    def __init__(self, pods: "PodCounts", without_deleting: bool) -> None:
        self.without_deleting = without_deleting
        self._pods = pods
        self._per_node: Int64 = np.zeros(0, np.int64)
        self._version = 0
        self._sums: dict[str, tuple[Domains, Int64]] = {}
        self._generation = -1
        self._placed = 0  # entries of `pods.placed` that are part of it

    @property
    def per_node(self) -> Int64:
        """int64[rows]."""
        self._sync()
        return self._per_node

    @property
    def version(self) -> int:
        self._sync()
        return self._version

    def per_domain(self, domains: Domains) -> Int64:
        """Pods in each domain, int64[domains.size]; the first value has no meaning."""
        self._sync()
        known = self._sums.get(domains.key)
        if known is None or known[0] is not domains:
            sums = np.bincount(domains.codes, self._per_node, domains.size).astype(np.int64)
            known = self._sums[domains.key] = domains, sums
        return known[1]

    def counts(self, kind: Kind) -> bool:
        """Pods of the kind are counted."""
        self._sync()
        return self._includes(kind)

    def counts_any(self, kinds: Iterable[Kind]) -> bool:
        """Pods of one of the kinds are counted."""
        self._sync()
        return any(map(self._includes, kinds))

    def counted(self, kinds: Sequence[Kind]) -> Bool:
        """Which of the kinds are counted, bool[kinds]."""
        self._sync()
        classes, labels = np.array(kinds, np.int64).reshape(-1, 2).T
        none = np.zeros(len(kinds), np.int64)
        return self._selected(PodEntries(np.stack((classes, none, labels, none))))

    def settle(self) -> None:
        """Take in all that was placed before it is forgotten."""
        if self._placed:
            self._sync()
            self._placed = 0

    @abstractmethod
    def _includes(self, kind: Kind) -> bool: ...

    @abstractmethod
    def _selected(self, entries: PodEntries) -> Bool:
        """Entries that are counted, bool[size]."""

    @abstractmethod
    def _update(self) -> bool:
        """Take in new classes, selectors and label sets. Returns whether the count so far is still valid."""

    def _sync(self) -> None:
        pods = self._pods
        if self._generation != pods.generation:
            valid = self._update() and len(self._per_node) == pods.node_rows
            missed = pods.moves_since(self._generation) if valid else None
            if missed is None:
                self._recount()
            else:
                for moves, deleting in missed:
                    self._add_entries(moves)
                    if self.without_deleting:
                        self._add_entries(deleting)
            self._generation = pods.generation
            self._placed = 0
        if self._placed < len(pods.placed):
            for kind, rows, counts in pods.placed[self._placed :]:
                if self._includes(kind):
                    self._add(rows, counts)
            self._placed = len(pods.placed)

    def _recount(self) -> None:
        pods, rows = self._pods, self._pods.node_rows
        per_node = self._sum(pods.entries(), rows)
        if self.without_deleting:
            per_node -= self._sum(pods.deleting_entries(), rows)
        self._per_node = per_node
        self._sums.clear()
        self._version += 1

    def _sum(self, entries: PodEntries, rows: int) -> Int64:
        chosen = self._selected(entries) & (entries.rows < rows)
        return np.bincount(entries.rows[chosen], entries.counts[chosen], rows).astype(np.int64)

    def _add_entries(self, entries: PodEntries) -> None:
        chosen = self._selected(entries) & (entries.rows < len(self._per_node))
        if chosen.any():
            self._add(entries.rows[chosen], entries.counts[chosen])

    def _add(self, rows: Int64, counts: Int64) -> None:
        """Add `counts[i]` pods on `rows[i]`; rows may repeat."""
        np.add.at(self._per_node, rows, counts)
        for domains, sums in self._sums.values():
            if len(domains.codes) == len(self._per_node):
                np.add.at(sums, domains.codes[rows], counts)
        self._version += 1


class _Selected(PodCount):
    """Pods whose labels all of some selectors select."""

    def __init__(self, pods: "PodCounts", selectors: Iterable[str], without_deleting: bool) -> None:
        super().__init__(pods, without_deleting)
        self._selectors = tuple(selectors)
        self._known: list[object] = []
        self._seen = -1
        self._by_label: Bool = np.zeros(0, np.bool_)  # by label row

    def _includes(self, kind: Kind) -> bool:
        return bool(self._by_label[kind[1]])

    def _selected(self, entries: PodEntries) -> Bool:
        selected: Bool = self._by_label[entries.labels]
        return selected

    def _update(self) -> bool:
        selection = self._pods.selection
        if self._seen == selection.version:
            return True
        known: list[object] = [selection.selectors.get(each) for each in self._selectors]
        added = selection.rows_added_since(self._seen)
        valid = (
            self._seen >= selection.reset_version
            and len(known) == len(self._known)
            and all(one is other for one, other in zip(known, self._known, strict=True))
        )
        self._seen = selection.version
        if valid and len(added) <= _FEW_ROWS:
            if len(self._by_label) < selection.size:
                new = np.zeros(selection.size - len(self._by_label), np.bool_)
                self._by_label = np.concatenate((self._by_label, new))
            for row in added.tolist():
                self._by_label[row] = all(selection.selects_row(each, row) for each in self._selectors)
            return True
        self._known = known
        first, *others = map(selection.selected_rows, self._selectors)
        for each in others:
            first &= each
        self._by_label = first
        return valid


class _OfClasses(PodCount):
    """Pods of some classes, whatever their labels."""

    def __init__(self, pods: "PodCounts", classes: Callable[[int], Bool]) -> None:
        super().__init__(pods, without_deleting=False)
        self._classes = classes
        self._seen: tuple[int, ...] = ()
        self._reset: tuple[int, int] = (-1, -1)
        self._by_class: Bool = np.zeros(0, np.bool_)

    def _includes(self, kind: Kind) -> bool:
        return bool(self._by_class[kind[0]])

    def _selected(self, entries: PodEntries) -> Bool:
        selected: Bool = self._by_class[entries.classes]
        return selected

    def _update(self) -> bool:
        pods = self._pods
        seen = (pods.terms.version, pods.ports_version, pods.selection.selectors_version, pods.class_rows)
        reset = (pods.classes_reset, pods.selection.reset_version)
        if seen != self._seen or reset != self._reset:
            self._by_class = self._classes(pods.class_rows)
        valid = reset == self._reset
        self._seen, self._reset = seen, reset
        return valid


class PodCounts:
    """All counts of a cluster. They follow the pods in `capacity` and, within a solve, the pods placed so far.

    Counts are kept as long as a caller references them; entries of pods take 32 bytes each and are at most twice as
    many as the recorded pods' kinds on nodes.
    """

    def __init__(self, capacity: Capacity, nodes: NodeTable, selection: PodSelection) -> None:
        self.selection = selection
        self.terms = AntiAffinityTerms(selection)
        self.generation = 0
        """Rises when pods, classes, selectors, label sets or nodes have changed."""
        self.node_rows = 0
        self.ports_version = 0
        self.placed: list[tuple[Kind, Int64, Int64]] = []
        """Pods placed, and with negative counts removed, since the last refresh: kind, rows and counts."""
        self._capacity = capacity
        self._nodes = nodes
        self._ports: dict[int, tuple[HostPort, ...]] = {}  # class index -> host ports
        self._entries: list[Int64] = [np.zeros((4, 0), np.int64)]
        self._entry_count = 0
        self._compacted = 0
        self._deleting: dict[str, tuple[int, int, int]] = {}  # seats of pods that are being deleted, by uid
        self._deleting_moves: _Moves = []
        self._log: deque[tuple[PodEntries, PodEntries]] = deque()  # of the newest generations
        self._logged = 0
        self._seen: tuple[int, ...] = ()
        self._counts: WeakValueDictionary[Hashable, PodCount] = WeakValueDictionary()

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

    # -- changes

    def put_class(self, index: int, pod_class: PodClass) -> None:
        """Record pods of a class if other pods mind them. Call before any of its pods is seated."""
        if not (pod_class.required_pod_anti_affinity or pod_class.host_ports):
            return
        self._capacity.followed.add(index)
        self.terms.put(index, pod_class)
        if pod_class.host_ports:
            self._ports[index] = pod_class.host_ports
            self.ports_version += 1

    def drop_class(self, index: int) -> None:
        """Forget a class that was removed."""
        self.terms.drop(index)
        if self._ports.pop(index, None) is not None:
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
        if len(self._capacity.moves) > _MAX_PENDING_MOVES:
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

    def add(self, kind: Kind, rows: Int64, counts: Int64) -> None:
        """Add pods within a solve; negative counts remove them."""
        if self.follows:
            self.placed.append((kind, rows, counts))

    def kind(self, class_id: str, label_set: str) -> Kind | None:
        """Class index and label row of pods if rules could select them."""
        index = self._capacity.classes[class_id]
        follows = self._capacity.follows_all or index in self._capacity.followed
        return (index, self.selection.row(label_set)) if follows else None

    # -- counts

    def selected(self, selectors: Iterable[str], *, without_deleting: bool = False) -> PodCount:
        """Count of the pods that all of these selectors select."""
        name = frozenset(selectors)
        return self._count(
            ("selected", name, without_deleting), lambda: _Selected(self, sorted(name), without_deleting)
        )

    def holding_ports(self, requested: tuple[HostPort, ...]) -> PodCount:
        """Count of the pods with a host port that conflicts with requested ones."""

        def classes(size: int) -> Bool:
            found: Bool = np.zeros(size, np.bool_)
            found[[index for index, held in self._ports.items() if ports_conflict(held, requested)]] = True
            return found

        return self._count(("ports", requested), lambda: _OfClasses(self, classes))

    def repelling(self, label_set: str, key: str) -> PodCount:
        """Count of the pods with a required anti-affinity term of a topology key that selects a label set."""
        return self._count(
            ("repelling", label_set, key),
            lambda: _OfClasses(self, lambda size: self.terms.classes(label_set, key, size)),
        )

    def _count(self, name: Hashable, build: Callable[[], PodCount]) -> PodCount:
        count = self._counts.get(name)
        if count is None:
            count = self._counts[name] = build()
        return count

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
            for count in self._counts.values():
                count.settle()
            self.placed.clear()

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
        size = moves.shape[1]
        self._log.append((PodEntries(moves), PodEntries(deleting)))
        self._logged += size
        while self._logged > _MAX_LOGGED or len(self._log) > _MAX_GENERATIONS:
            self._logged -= self._log.popleft()[0].size
        if size:
            self._entries.append(moves)
            self._entry_count += size
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


def ports_conflict(held: Sequence[HostPort], requested: Sequence[HostPort]) -> bool:
    """A held host port conflicts with a requested one."""
    return any(
        a.port == b.port and a.protocol == b.protocol and (a.ip == b.ip or _ANY_IP in (a.ip, b.ip))
        for a in held
        for b in requested
    )


def _table(moves: _Moves) -> Int64:
    """int64[4, moves]."""
    if not moves:
        return np.zeros((4, 0), np.int64)
    return np.ascontiguousarray(np.array(moves, np.int64).T)
