"""Pods on nodes, counted by what others ask about them: whom a selector selects, who keeps others away or has ports.

Only pods of classes that somebody could ask about are followed, so that a cluster without any costs nothing.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import PodClass, PodFacts
from muster.placement.state.nodes import Domains, NodeTable

Includes = Callable[[PodClass], bool]
"""Whether pods of a class are counted."""

_MAX_MOVES: Final = 100_000
"""Moves that are kept until they are counted."""

_Moves = list[tuple[int, int, int]]
"""(class index, row, how many more)."""


class PodCount:
    """Pods of some classes by row: `on` is int64[rows]. `classes` are the indexes of the classes; `version` rises when
    something changes. A tally of those who stay leaves out pods that are being deleted.
    """

    def __init__(self, includes: Includes, staying: bool) -> None:
        self.includes = includes
        self.staying = staying
        self.classes: set[int] = set()
        self.on: Int64 = np.zeros(0, np.int64)
        self.version = 0
        self._sums: dict[str, tuple[Domains, Int64]] = {}

    def by_domain(self, domains: Domains) -> Int64:
        """Pods in each domain, int64[domains.size]; the first is of no meaning."""
        known = self._sums.get(domains.key)
        if known is None or known[0] is not domains:
            sums = np.bincount(domains.codes, self.on, domains.size).astype(np.int64)
            known = self._sums[domains.key] = domains, sums
        return known[1]

    def add(self, rows: Int64, counts: Int64) -> None:
        """Count so many more; rows may repeat."""
        np.add.at(self.on, rows, counts)
        for domains, sums in self._sums.values():
            if len(domains.codes) == len(self.on):
                np.add.at(sums, domains.codes[rows], counts)
        self.version += 1

    def set(self, on: Int64) -> None:
        """Count anew."""
        self.on = on
        self._sums.clear()
        self.version += 1


class PodCounts:
    """All pod_counts of a cluster. They follow `capacity`, and within a solve what is taken in the room.

    `keeping_away` are the label keys of required anti-affinity terms by the selector that they name, `terms` how many
    there are.
    """

    def __init__(self, capacity: Capacity, nodes: NodeTable) -> None:
        self.keeping_away: dict[str, set[str]] = {}
        self.terms = 0
        self._capacity = capacity
        self._nodes = nodes
        self._classes: dict[int, PodClass] = {}
        self._held: dict[int, dict[int, int]] = {}  # class index -> row -> pods, seated and taken
        self._leaving: dict[str, tuple[int, int]] = {}  # pod uid -> (class index, row)
        self._left: _Moves = []
        self._tallies: WeakValueDictionary[Hashable, PodCount] = WeakValueDictionary()
        self._by_class: dict[int, WeakSet[PodCount]] = {}
        self._rows = 0

    def put_class(self, index: int, pod_class: PodClass) -> None:
        """Follow pods of a class, if anybody could ask about them; before any of them is seated."""
        if not (pod_class.selected_by or pod_class.required_pod_anti_affinity or pod_class.host_ports):
            return
        self._classes[index] = pod_class
        self._held[index] = {}
        self._by_class[index] = WeakSet()
        self._capacity.followed.add(index)
        for term in pod_class.required_pod_anti_affinity:
            keys = self.keeping_away.setdefault(term.selector, set())
            self.terms += term.topology_key not in keys
            keys.add(term.topology_key)
        for tally in self._tallies.values():
            if tally.includes(pod_class):
                self._include(tally, index)

    def put_pods(self, pods: Iterable[PodFacts], removed: Iterable[str]) -> None:
        """Take over which pods are being deleted, once they are seated as they are now."""
        if not self._classes:
            return
        for uid in removed:
            self._returns(uid)
        for pod in pods:
            self._returns(pod.uid)
            if pod.deleting and pod.seated:
                at = self._capacity.classes[pod.class_id], self._capacity.rows[pod.node]
                if at[0] in self._classes:
                    self._leaving[pod.uid] = at
                    self._left.append((*at, -1))
        if len(self._capacity.moves) > _MAX_MOVES:
            self._follow()

    def refresh(self) -> None:
        """Count what changed since the last time. Nothing may be taken."""
        if not self._classes:
            return
        self._follow()
        if self._rows != self._nodes.rows:
            self._rows = self._nodes.rows
            for tally in self._tallies.values():
                tally.set(self._count(tally))

    def tally(self, name: Hashable, includes: Includes, staying: bool = False) -> PodCount:
        """The tally of this name; it is kept as long as somebody has it."""
        tally = self._tallies.get(name)
        if tally is None:
            self._follow()
            tally = PodCount(includes, staying)
            for index, pod_class in self._classes.items():
                if includes(pod_class):
                    self._include(tally, index)
            tally.set(self._count(tally))
            self._tallies[name] = tally
        return tally

    def follows(self, class_id: str) -> bool:
        """Pods of the class may matter to others."""
        return self._capacity.classes[class_id] in self._classes

    def add(self, class_id: str, rows: Int64, counts: Int64) -> None:
        """Pods of a class come to nodes, or go; within a solve."""
        index = self._capacity.classes[class_id]
        if index in self._classes:
            of_class = self._held[index]
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                of_class[row] = of_class.get(row, 0) + count
            for tally in self._by_class[index]:
                tally.add(rows, counts)

    def _include(self, tally: PodCount, index: int) -> None:
        tally.classes.add(index)
        self._by_class[index].add(tally)

    def _returns(self, uid: str) -> None:
        at = self._leaving.pop(uid, None)
        if at is not None:
            self._left.append((*at, 1))

    def _follow(self) -> None:
        moves, self._capacity.moves = self._capacity.moves, []
        for index, row, more in moves:
            of_class = self._held[index]
            count = of_class.get(row, 0) + more
            if count:
                of_class[row] = count
            else:
                of_class.pop(row, None)
        left, self._left = self._left, []
        for tally in self._tallies.values():
            _apply(tally, moves)
            if tally.staying:
                _apply(tally, left)

    def _count(self, tally: PodCount) -> Int64:
        """What the tally counts now."""
        rows = self._nodes.rows
        on: Int64 = np.zeros(rows, np.int64)
        for index in tally.classes:
            for row, count in self._held[index].items():
                if row < rows:
                    on[row] += count
        if tally.staying:
            for index, row in self._leaving.values():
                if index in tally.classes and row < rows:
                    on[row] -= 1
        return on


def _apply(tally: PodCount, moves: _Moves) -> None:
    ours = [(row, more) for index, row, more in moves if index in tally.classes and row < len(tally.on)]
    if ours:
        rows, more = np.array(ours).T
        tally.add(rows, more)
