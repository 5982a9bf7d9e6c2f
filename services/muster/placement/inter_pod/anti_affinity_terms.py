"""Required anti-affinity terms of all classes, as arrays: which classes keep pods with a label set away."""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import PodClass
from muster.gangs.selection import PodSelection
from muster.placement.state.nodes import Bool

_DEAD: Final = -1


class AntiAffinityTerms:
    """The terms of the classes that are known; `version` rises when they change.

    `_table` is int64[3, terms]: selector row, topology key code, class index, which is _DEAD for removed classes. Dead
    terms are at most half of all.
    """

    def __init__(self, selection: PodSelection) -> None:
        self.version = 0
        self._selection = selection
        self._keys: dict[str, int] = {}
        self._table: Int64 = np.zeros((3, 16), np.int64)
        self._size = 0
        self._dead = 0
        self._of_class: dict[int, list[int]] = {}

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
        """Topology keys of the terms that keep pods with a label set away, sorted."""
        codes = np.unique(self._table[1, : self._size][self._selecting(label_set)])
        names = list(self._keys)
        return sorted([names[code] for code in codes.tolist()])

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
        self._size, self._dead = alive.shape[1], 0
        self._table = np.zeros((3, max(16, 2 * self._size)), np.int64)
        self._table[:, : self._size] = alive
        self._of_class = {index: [] for index in self._of_class}
        for position, index in enumerate(alive[2].tolist()):
            self._of_class[index].append(position)
