"""Which pod selectors select which label sets: evaluated when asked, through indexes that follow every change.

Label sets and selectors are rows of arrays. No matrix of matches is kept: a selector's label sets are found by the
labels that it names, a label set's selectors by counting, for all selectors at once, the requirements that its labels
do not meet. Adding or removing either costs as much as its own labels and requirements.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from muster.gangs.facts import Batch
from muster.gangs.free_rows import FreeRows
from muster.gangs.selector_index import NO_LABELS, Bool, Int64, LabelIndex, SelectorIndex, as_array
from muster.gangs.selectors import LabelSet, NamespaceFacts, Operator, PodSelector, Requirement

UNKNOWN_ROW: Final = 0
"""Row of label sets that are not known: no selector selects them."""

_MAX_REPRESENTATIVES: Final = 4096
_WORK: Final = 5000
"""Labels, values and requirements that are taken in between two yields, about 5 ms."""

_Projection = tuple[object, ...]


class PodSelection:
    """Selectors, label sets and namespaces of a cluster; as many as the stream has."""

    def __init__(self) -> None:
        self.selectors: dict[str, PodSelector] = {}
        self.rows: dict[str, int] = {}
        """Row of each label set by id."""
        self.version = 0
        """Rises with every change of selectors, label sets or namespaces."""
        self.reset_version = 0
        """The version at which namespaces changed or rows were used again, so that what is known of rows is void."""
        self.selectors_version = 0
        """The version of the last change of selectors or namespaces."""
        self.representatives_version = 0
        """Rises when label sets may get other representatives, or a representative is removed."""
        self._label_sets: list[LabelSet | None] = [None]
        self._added_at: Int64 = np.zeros(16, np.int64)  # version at which the label set of a row was added
        self._exists: Bool = np.zeros(16, np.bool_)
        self._free = FreeRows()
        self._by_namespace: dict[str, set[int]] = {}
        self._with_key: dict[str, int | set[int]] = {}
        """Rows of the label sets with each key, so that a key that is named first costs as much as these (I12)."""
        self._by_key: dict[str, LabelIndex] = {}  # keys that selectors name
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels by name, of namespaces that have any."""
        self._selector_index = SelectorIndex()
        self._representatives: dict[_Projection, str] = {}
        """By what selectors can tell apart; until `representatives_version` rises, and at most _MAX_REPRESENTATIVES."""
        self._by_signature: dict[bytes, tuple[str, int]] = {}
        """Representatives, and the version of the selectors at which each had the signature: at most
        _MAX_REPRESENTATIVES, and none without selectors.
        """
        self._signatures: dict[str, bytes] = {}
        """The last signature of each representative; both end with its label set."""

    @property
    def size(self) -> int:
        """Length of arrays indexed by row."""
        return len(self._label_sets)

    # -- changes; in slices, they yield after some work, and are complete at the end (I12)

    def apply(self, batch: Batch) -> None:
        """Take in what a batch adds or changes."""
        for _ in self.apply_in_slices(batch):
            pass

    def apply_in_slices(self, batch: Batch) -> Iterator[None]:
        """As `apply`."""
        if batch.namespaces:
            self.put_namespaces(batch.namespaces)
        done = 0
        for selector in batch.selectors:
            if selector.id in self.selectors:
                continue
            for _ in self._index_keys(selector):
                done += 1
                if done % _WORK == 0:
                    yield
            self.put_selector(selector)
            if (done := done + _weight(selector)) >= _WORK:
                yield
                done = 0
        for label_set in batch.label_sets:
            self.put_label_set(label_set)
            if (done := done + 1 + len(label_set.keys)) >= _WORK:
                yield
                done = 0

    def forget(self, batch: Batch) -> None:
        """Forget what a batch removes."""
        for _ in self.forget_in_slices(batch):
            pass

    def forget_in_slices(self, batch: Batch) -> Iterator[None]:
        """As `forget`."""
        done = 0
        for id_ in batch.removed_selectors:
            if (selector := self.selectors.get(id_)) is not None:
                self.drop_selector(id_)
                if (done := done + _weight(selector)) >= _WORK:
                    yield
                    done = 0
        for id_ in batch.removed_label_sets:
            label_set = self._label_sets[self.rows.get(id_, UNKNOWN_ROW)]
            if label_set is not None:
                self.drop_label_set(id_)
                if (done := done + 1 + len(label_set.keys)) >= _WORK:
                    yield
                    done = 0
        if batch.removed_namespaces:
            self.put_namespaces([NamespaceFacts(name, {}) for name in batch.removed_namespaces])

    def put_selector(self, selector: PodSelector) -> None:
        """Add a selector; a known one is passed over, because its id is a hash of its content."""
        if selector.id in self.selectors:
            return
        for _ in self._index_keys(selector):
            pass
        self.selectors[selector.id] = selector
        self._raise_version()
        self._selector_index.add(selector)
        for each in selector.labels.requirements or ():
            self._by_key[each.key].name(each)

    def drop_selector(self, id_: str) -> None:
        """Remove a selector."""
        selector = self.selectors.pop(id_, None)
        if selector is None:
            return
        self._raise_version()
        self._selector_index.drop(selector)
        for each in selector.labels.requirements or ():
            if not self._by_key[each.key].unname(each):
                del self._by_key[each.key]
        if not self.selectors:
            self._forget_representatives()

    def put_label_set(self, label_set: LabelSet) -> None:
        """Add a label set; a known one is passed over."""
        if label_set.id in self.rows:
            return
        self.version += 1
        row = self._free.take()
        if row is None:
            row = len(self._label_sets)
            self._label_sets.append(label_set)
            if row >= len(self._exists):
                self._added_at = np.concatenate((self._added_at, np.zeros(row, np.int64)))
                self._exists = np.concatenate((self._exists, np.zeros(row, np.bool_)))
        else:
            self._label_sets[row] = label_set
            if self._free.began_lot:
                self.reset_version = self.version
        self.rows[label_set.id] = row
        self._exists[row] = True
        self._added_at[row] = self.version
        self._by_namespace.setdefault(label_set.namespace, set()).add(row)
        for key, value in zip(label_set.keys, label_set.values, strict=True):
            self._note_key(key, row)
            if (index := self._by_key.get(key)) is not None:
                index.add(value, row)

    def drop_label_set(self, id_: str) -> None:
        """Remove a label set, which no pod has any more."""
        row = self.rows.pop(id_, None)
        if row is None:
            return
        self.version += 1
        label_set = self._label_sets[row]
        assert label_set is not None, f"row {row} has no label set"
        self._label_sets[row] = None
        self._exists[row] = False
        there = self._by_namespace[label_set.namespace]
        there.discard(row)
        if not there:
            del self._by_namespace[label_set.namespace]
        for key, value in zip(label_set.keys, label_set.values, strict=True):
            self._forget_key(key, row)
            if (index := self._by_key.get(key)) is not None:
                index.drop(value, row)
        self._free.give(row, self.size)
        self._forget_representative(id_)

    def put_namespaces(self, namespaces: Iterable[NamespaceFacts]) -> None:
        """Set the labels of namespaces."""
        for each in namespaces:
            if each.labels:
                self.namespaces[each.name] = each.labels
            else:
                self.namespaces.pop(each.name, None)
        self._raise_version()
        if self._selector_index.read_namespaces:
            self.reset_version = self.version

    # -- queries

    def row(self, label_set: str) -> int:
        """The row of a label set."""
        return self.rows.get(label_set, UNKNOWN_ROW)

    def labels(self, label_set: str) -> Mapping[str, str]:
        """The labels of a label set; none if it is not known."""
        known = self._label_sets[self.rows.get(label_set, UNKNOWN_ROW)]
        return known.labels if known is not None else NO_LABELS

    def selects(self, selector: str, label_set: str) -> bool:
        """Whether the selector selects pods with the label set; False if either is not known."""
        return self.selects_row(selector, self.rows.get(label_set, UNKNOWN_ROW))

    def selects_row(self, selector: str, row: int) -> bool:
        """As `selects`."""
        known, label_set = self.selectors.get(selector), self._label_sets[row]
        if known is None or label_set is None:
            return False
        namespace = label_set.namespace
        return known.selects(namespace, self.namespaces.get(namespace, NO_LABELS), label_set.labels)

    def selected_rows(self, selector: str) -> Bool:
        """Rows of the label sets that a selector selects, bool[size]."""
        known = self.selectors.get(selector)
        rows: Bool = np.zeros(self.size, np.bool_)
        if known is None or known.labels.requirements is None:
            return rows
        few = self._few_candidates(known.labels.requirements)
        if few is not None:
            for row in few:
                rows[row] = self.selects_row(selector, row)
            return rows
        if known.reaches_all_namespaces:
            rows[:] = self._exists[: self.size]
        else:
            for namespace in self._reached_namespaces(known):
                rows[as_array(self._by_namespace[namespace])] = True
        for each in known.labels.requirements:
            self._by_key[each.key].restrict(each, rows)
        return rows

    def rows_added_since(self, version: int) -> Int64:
        """Rows of label sets that were added after a version."""
        return np.flatnonzero(self._added_at[: self.size] > version)

    def selecting(self, label_set: str) -> Bool:
        """The selectors that select a label set, as bool by `selector_row`."""
        known = self._label_sets[self.rows.get(label_set, UNKNOWN_ROW)]
        if known is None:
            return np.zeros(self._selector_index.size, np.bool_)
        return self._selector_index.met_by(known, self.namespaces)

    @property
    def selector_rows(self) -> int:
        """Length of `selecting`."""
        return self._selector_index.size

    def selector_row(self, selector: str) -> int:
        """Index of a selector in `selecting`; -1 if it is not known."""
        return self._selector_index.rows.get(selector, -1)

    def representative(self, label_set: str) -> str:
        """A label set that the same selectors select; empty if none selects it.

        The same for all label sets that the same selectors select, until `representatives_version` rises.
        """
        if not self.selectors:
            return ""
        known = self._label_sets[self.rows.get(label_set, UNKNOWN_ROW)]
        if known is None:
            return ""
        projection = self._projection(known)
        found = self._representatives.get(projection)
        if found is None:
            found = self._representative(known)
            if len(self._representatives) >= _MAX_REPRESENTATIVES:
                self._representatives.clear()
            self._representatives[projection] = found
        return found

    def _representative(self, label_set: LabelSet) -> str:
        signature = self._signature(label_set)
        if not signature:
            return ""
        found, version = self._by_signature.get(signature, ("", -1))
        if version != self.selectors_version:
            if len(self._by_signature) >= _MAX_REPRESENTATIVES:
                self._forget_representatives()
            if not self._has_signature(found, signature):
                found = label_set.id
            self._by_signature[signature] = found, self.selectors_version
            self._signatures[found] = signature
        return found

    def _has_signature(self, id_: str, signature: bytes) -> bool:
        known = self._label_sets[self.rows.get(id_, UNKNOWN_ROW)]
        return known is not None and self._signature(known) == signature

    def _signature(self, label_set: LabelSet) -> bytes:
        """The selectors that select the label set, as bits by row; empty if none does. Another selector may have the
        row later.
        """
        selecting = self._selector_index.met_by(label_set, self.namespaces)
        return np.packbits(selecting).tobytes().rstrip(b"\0") if selecting.any() else b""

    def _forget_representative(self, id_: str) -> None:
        signature = self._signatures.pop(id_, None)
        if signature is not None:
            self._by_signature.pop(signature, None)
            self._representatives.clear()
            self.representatives_version += 1

    def _forget_representatives(self) -> None:
        self._representatives.clear()
        self._by_signature.clear()
        self._signatures.clear()
        self.representatives_version += 1

    def _projection(self, label_set: LabelSet) -> _Projection:
        """The part of a label set that selectors can tell apart: named labels, with the values that are named."""
        by_key = self._by_key
        parts: list[object] = [label_set.namespace]
        for key, value in zip(label_set.keys, label_set.values, strict=True):
            index = by_key.get(key)
            if index is not None:
                parts.append(key)
                parts.append(value if value in index.named_values else None)
        return tuple(parts)

    # -- indexes

    def _raise_version(self) -> None:
        self.version += 1
        self.selectors_version = self.version
        self.representatives_version += 1
        self._representatives.clear()

    def _index_keys(self, selector: PodSelector) -> Iterator[None]:
        """Index the keys that the selector is the first to name; yields with each label set that has one."""
        for each in selector.labels.requirements or ():
            if each.key in self._by_key:
                continue
            index, rows = LabelIndex(), self._with_key.get(each.key, ())
            for row in (rows,) if isinstance(rows, int) else rows:
                label_set = self._label_sets[row]
                assert label_set is not None, f"row {row} has no label set"
                index.add(label_set.values[bisect_left(label_set.keys, each.key)], row)
                yield
            self._by_key[each.key] = index

    def _note_key(self, key: str, row: int) -> None:
        there = self._with_key.get(key)
        if there is None:
            self._with_key[key] = row
        elif isinstance(there, int):
            self._with_key[key] = {there, row}
        else:
            there.add(row)

    def _forget_key(self, key: str, row: int) -> None:
        there = self._with_key[key]
        if isinstance(there, int):
            del self._with_key[key]
            return
        there.discard(row)
        if not there:
            del self._with_key[key]

    def _few_candidates(self, requirements: Iterable[Requirement]) -> list[int] | None:
        """Rows among which all selected ones are; None if they are not few."""
        best: list[int] | None = None
        for each in requirements:
            if each.operator is Operator.IN:
                rows = self._by_key[each.key].few(each.values)
                if rows is not None and (best is None or len(rows) < len(best)):
                    best = rows
        return best

    def _reached_namespaces(self, selector: PodSelector) -> Iterator[str]:
        for name in selector.namespaces:
            if name in self._by_namespace:
                yield name
        if selector.reads_namespaces:
            for name in self._by_namespace:
                if name not in selector.namespaces and selector.namespace_labels.matches(
                    self.namespaces.get(name, NO_LABELS)
                ):
                    yield name


def _weight(selector: PodSelector) -> int:
    """Work that adding or removing a selector takes."""
    scope = selector.namespace_labels.requirements or ()
    of_labels = sum(1 + len(each.values) for each in (*(selector.labels.requirements or ()), *scope))
    return 1 + of_labels + len(selector.namespaces)
