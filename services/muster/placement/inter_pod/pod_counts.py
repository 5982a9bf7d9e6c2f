"""Counts pods per node by the properties that inter-pod rules select: matching labels, anti-affinity, host ports.

Only pods of classes that a rule could select are tracked, so a cluster without inter-pod rules pays nothing.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import PodClass, PodFacts
from muster.placement.state.nodes import Domains, NodeTable

Includes = Callable[[PodClass], bool]
"""Whether pods of a class are counted."""

_MAX_PENDING_MOVES: Final = 100_000
"""Moves recorded by the capacity state before they are applied to the counts."""

_Moves = list[tuple[int, int, int]]
"""(class index, row, change of the number of pods)."""


class PodCount:
    """Pods of some classes: `per_node` is int64[rows], `classes` the indexes of the classes.

    `version` rises with every change. `without_deleting`: pods that are being deleted are not counted.
    """

    def __init__(self, includes: Includes, without_deleting: bool) -> None:
        self.includes = includes
        self.without_deleting = without_deleting
        self.classes: set[int] = set()
        self.per_node: Int64 = np.zeros(0, np.int64)
        self.version = 0
        self._sums: dict[str, tuple[Domains, Int64]] = {}

    def per_domain(self, domains: Domains) -> Int64:
        """Pods in each domain, int64[domains.size]; the first value has no meaning."""
        known = self._sums.get(domains.key)
        if known is None or known[0] is not domains:
            sums = np.bincount(domains.codes, self.per_node, domains.size).astype(np.int64)
            known = self._sums[domains.key] = domains, sums
        return known[1]

    def add(self, rows: Int64, counts: Int64) -> None:
        """Add `counts[i]` pods on `rows[i]`; rows may repeat."""
        np.add.at(self.per_node, rows, counts)
        for domains, sums in self._sums.values():
            if len(domains.codes) == len(self.per_node):
                np.add.at(sums, domains.codes[rows], counts)
        self.version += 1

    def set(self, per_node: Int64) -> None:
        """Replace all counts."""
        self.per_node = per_node
        self._sums.clear()
        self.version += 1


class PodCounts:
    """All counts of a cluster. They follow the pods in `capacity` and, within a solve, the pods placed so far."""

    def __init__(self, capacity: Capacity, nodes: NodeTable) -> None:
        self.anti_affinity_terms = 0
        """Distinct required anti-affinity terms (selector and topology key) of all classes."""
        self._anti_affinity_keys: dict[str, set[str]] = {}  # selector -> topology keys
        self._capacity = capacity
        self._nodes = nodes
        self._classes: dict[int, PodClass] = {}
        self._pods: dict[int, dict[int, int]] = {}  # class index -> row -> pods
        self._deleting: dict[str, tuple[int, int]] = {}  # pod uid -> (class index, row)
        self._deleting_moves: _Moves = []
        self._counts: WeakValueDictionary[Hashable, PodCount] = WeakValueDictionary()
        self._by_class: dict[int, WeakSet[PodCount]] = {}
        self._rows = 0

    def put_class(self, index: int, pod_class: PodClass) -> None:
        """Track pods of a class if a rule could select them. Call before any of its pods is seated."""
        if not (pod_class.selected_by or pod_class.required_pod_anti_affinity or pod_class.host_ports):
            return
        self._classes[index] = pod_class
        self._pods[index] = {}
        self._by_class[index] = WeakSet()
        self._capacity.followed.add(index)
        for term in pod_class.required_pod_anti_affinity:
            keys = self._anti_affinity_keys.setdefault(term.selector, set())
            self.anti_affinity_terms += term.topology_key not in keys
            keys.add(term.topology_key)
        for count in self._counts.values():
            if count.includes(pod_class):
                self._include(count, index)

    def put_pods(self, pods: Iterable[PodFacts], removed: Iterable[str]) -> None:
        """Record which pods are being deleted, after the capacity state has seated them."""
        if not self._classes:
            return
        for uid in removed:
            self._end_deletion(uid)
        for pod in pods:
            self._end_deletion(pod.uid)
            if pod.deleting and pod.seated:
                at = self._capacity.classes[pod.class_id], self._capacity.rows[pod.node]
                if at[0] in self._classes:
                    self._deleting[pod.uid] = at
                    self._deleting_moves.append((*at, -1))
        if len(self._capacity.moves) > _MAX_PENDING_MOVES:
            self._apply_moves()

    def refresh(self) -> None:
        """Apply the changes since the last call. No solve may be in progress."""
        if not self._classes:
            return
        self._apply_moves()
        if self._rows != self._nodes.rows:
            self._rows = self._nodes.rows
            for count in self._counts.values():
                count.set(self._recount(count))

    def count(self, name: Hashable, includes: Includes, *, without_deleting: bool = False) -> PodCount:
        """The count of this name; it is maintained as long as a caller references it."""
        count = self._counts.get(name)
        if count is None:
            self._apply_moves()
            count = PodCount(includes, without_deleting)
            for index, pod_class in self._classes.items():
                if includes(pod_class):
                    self._include(count, index)
            count.set(self._recount(count))
            self._counts[name] = count
        return count

    def anti_affinity_keys(self, selector: str) -> Collection[str]:
        """Topology keys of the required anti-affinity terms with this selector."""
        return self._anti_affinity_keys.get(selector, ())

    def tracks(self, class_id: str) -> bool:
        """A rule could select pods of the class."""
        return self._capacity.classes[class_id] in self._classes

    def add(self, class_id: str, rows: Int64, counts: Int64) -> None:
        """Add pods of a class within a solve; negative counts remove them."""
        index = self._capacity.classes[class_id]
        if index in self._classes:
            of_class = self._pods[index]
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                of_class[row] = of_class.get(row, 0) + count
            for each in self._by_class[index]:
                each.add(rows, counts)

    def _include(self, count: PodCount, index: int) -> None:
        count.classes.add(index)
        self._by_class[index].add(count)

    def _end_deletion(self, uid: str) -> None:
        at = self._deleting.pop(uid, None)
        if at is not None:
            self._deleting_moves.append((*at, 1))

    def _apply_moves(self) -> None:
        moves, self._capacity.moves = self._capacity.moves, []
        for index, row, more in moves:
            of_class = self._pods[index]
            count = of_class.get(row, 0) + more
            if count:
                of_class[row] = count
            else:
                of_class.pop(row, None)
        deleting, self._deleting_moves = self._deleting_moves, []
        for each in self._counts.values():
            _apply(each, moves)
            if each.without_deleting:
                _apply(each, deleting)

    def _recount(self, count: PodCount) -> Int64:
        """int64[rows], from the tracked pods."""
        rows = self._nodes.rows
        per_node: Int64 = np.zeros(rows, np.int64)
        for index in count.classes:
            for row, pods in self._pods[index].items():
                if row < rows:
                    per_node[row] += pods
        if count.without_deleting:
            for index, row in self._deleting.values():
                if index in count.classes and row < rows:
                    per_node[row] -= 1
        return per_node


def _apply(count: PodCount, moves: _Moves) -> None:
    relevant = [(row, more) for index, row, more in moves if index in count.classes and row < len(count.per_node)]
    if relevant:
        rows, more = np.array(relevant).T
        count.add(rows, more)
