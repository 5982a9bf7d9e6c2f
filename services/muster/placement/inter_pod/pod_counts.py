"""Counts pods per node by the properties that inter-pod rules select: matching labels, anti-affinity, host ports.

A count adds up the records (`inter_pod/pod_records`) of the classes or label sets that its rule selects, and follows
their changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import HostPort
from muster.gangs.selection import PodSelection
from muster.placement.inter_pod.pod_records import Kind, PodEntries, PodRecords
from muster.placement.state.nodes import Bool, Domains, NodeTable

MAX_SUMS: Final = 64
"""Topology labels by whose domains one count is summed up; the oldest sums end when there are more."""
_FEW_ROWS: Final = 64
"""New label sets that are compared with selectors one by one."""

_ANY_IP: Final = "0.0.0.0"  # noqa: S104 - the address of a requested host port; no socket is bound here


class PodCount(ABC):
    """Pods of some kinds, up to date whenever it is read; `version` rises with every change.

    `without_deleting`: pods that are being deleted are not counted.
    """

    def __init__(self, pods: PodRecords, without_deleting: bool) -> None:
        self.without_deleting = without_deleting
        self._pods = pods
        self._per_node: Int64 = np.zeros(0, np.int64)
        self._version = 0
        self._sums: dict[str, tuple[Domains, Int64]] = {}  # by topology label, at most MAX_SUMS
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
            if known is None and len(self._sums) >= MAX_SUMS:
                del self._sums[next(iter(self._sums))]
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
        """Kinds that are counted, bool[kinds]."""
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
            chosen = [(rows, counts) for kind, rows, counts in pods.placed[self._placed :] if self._includes(kind)]
            if len(chosen) == 1:
                self._add(*chosen[0])
            elif chosen:  # at once, since a group of many classes has as many entries for each of their counts
                self._add(np.concatenate([rows for rows, _ in chosen]), np.concatenate([each for _, each in chosen]))
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

    def __init__(self, pods: PodRecords, selectors: Iterable[str], without_deleting: bool) -> None:
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

    def __init__(self, pods: PodRecords, classes: Callable[[int], Bool]) -> None:
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


class PodCounts(PodRecords):
    """All counts of a cluster. A count ends with the last class of the capacity state whose rules refer to it."""

    def __init__(self, capacity: Capacity, nodes: NodeTable, selection: PodSelection) -> None:
        super().__init__(capacity, nodes, selection)
        self._counts: WeakValueDictionary[Hashable, PodCount] = WeakValueDictionary()

    @property
    def in_use(self) -> int:
        """Number of counts to which a rule refers."""
        return len(self._counts)

    def selected(self, selectors: Iterable[str], *, without_deleting: bool = False) -> PodCount:
        """Count of the pods that all of these selectors select."""
        name = frozenset(selectors)
        return self._count(
            ("selected", name, without_deleting), lambda: _Selected(self, sorted(name), without_deleting)
        )

    def holding_ports(self, requested: tuple[HostPort, ...]) -> PodCount:
        """Count of the pods with a host port that conflicts with requested ones."""
        addresses = _addresses_by_port(requested)

        def classes(size: int) -> Bool:
            found: Bool = np.zeros(size, np.bool_)
            found[[index for index, held in self.ports.items() if _conflicts(held, addresses)]] = True
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

    def _settle_counts(self) -> None:
        for reference in self._counts.valuerefs():
            count = reference()
            if count is not None:
                count.settle()


def _addresses_by_port(ports: Iterable[HostPort]) -> dict[tuple[int, str], set[str]]:
    found: dict[tuple[int, str], set[str]] = {}
    for each in ports:
        found.setdefault((each.port, each.protocol), set()).add(each.ip)
    return found


def _conflicts(held: Iterable[HostPort], requested: Mapping[tuple[int, str], set[str]]) -> bool:
    """A held host port conflicts with a requested one."""
    for each in held:
        addresses = requested.get((each.port, each.protocol))
        if addresses is not None and (each.ip == _ANY_IP or each.ip in addresses or _ANY_IP in addresses):
            return True
    return False
