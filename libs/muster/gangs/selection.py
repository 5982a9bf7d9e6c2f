"""Which pod selectors select which label sets: evaluated when asked, through indexes that follow every change.

Label sets and selectors are rows of arrays. No matrix of matches is kept: a selector's label sets are found by the
labels that it names, a label set's selectors by counting, for all selectors at once, the requirements that its labels
do not meet. Adding or removing either costs as much as its own labels and requirements.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.gangs.facts import Batch
from muster.gangs.free_rows import FreeRows
from muster.gangs.selectors import LabelSelector, LabelSet, NamespaceFacts, Operator, PodSelector, Requirement

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]

UNKNOWN_ROW: Final = 0
"""Row of label sets that are not known: no selector selects them."""

_NO_LABELS: Final[Mapping[str, str]] = {}
_FEW_ROWS: Final = 64
"""Label sets that are compared one by one instead of as arrays."""
_MAX_REPRESENTATIVES: Final = 4096
_UNSELECTED: Final = 2**20
"""Count of unmet requirements of rows without a selector, and of selectors that select nothing."""

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
        self._label_sets: list[LabelSet | None] = [None]
        self._added_at: Int64 = np.zeros(16, np.int64)  # version at which the label set of a row was added
        self._exists: Bool = np.zeros(16, np.bool_)
        self._free = FreeRows()
        self._by_namespace: dict[str, set[int]] = {}
        self._by_key: dict[str, _Key] = {}  # keys that selectors name
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels by name, of namespaces that have any."""
        self._requirements = _Requirements()
        self._representatives: dict[_Projection, str] = {}  # as of _representatives_version
        self._representatives_version = -1
        self._by_signature: dict[bytes, str] = {}
        self._signatures: dict[str, bytes] = {}  # of representatives

    @property
    def size(self) -> int:
        """Length of arrays indexed by row."""
        return len(self._label_sets)

    # -- changes

    def apply(self, batch: Batch) -> None:
        """Take in what a batch adds or changes."""
        if batch.namespaces:
            self.put_namespaces(batch.namespaces)
        for selector in batch.selectors:
            self.put_selector(selector)
        for label_set in batch.label_sets:
            self.put_label_set(label_set)

    def forget(self, batch: Batch) -> None:
        """Forget what a batch removes."""
        for id_ in batch.removed_selectors:
            self.drop_selector(id_)
        for id_ in batch.removed_label_sets:
            self.drop_label_set(id_)
        if batch.removed_namespaces:
            self.put_namespaces([NamespaceFacts(name, {}) for name in batch.removed_namespaces])

    def put_selector(self, selector: PodSelector) -> None:
        """Add a selector; a known one is passed over, because its id is a hash of its content."""
        if selector.id in self.selectors:
            return
        self.selectors[selector.id] = selector
        self._raise_version()
        self._requirements.add(selector)
        for each in selector.labels.requirements or ():
            key = self._by_key.get(each.key)
            if key is None:
                key = self._by_key[each.key] = self._index(each.key)
            key.name(each)

    def drop_selector(self, id_: str) -> None:
        """Remove a selector."""
        selector = self.selectors.pop(id_, None)
        if selector is None:
            return
        self._raise_version()
        self._requirements.drop(selector)
        for each in selector.labels.requirements or ():
            if not self._by_key[each.key].unname(each):
                del self._by_key[each.key]
        if not self.selectors:
            self._representatives.clear()
            self._by_signature.clear()
            self._signatures.clear()

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
        if self._by_key:
            for key, value in zip(label_set.keys, label_set.values, strict=True):
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
        if self._requirements.read_namespaces:
            self.reset_version = self.version
            self._requirements.namespaces_changed()

    # -- questions

    def row(self, label_set: str) -> int:
        """The row of a label set."""
        return self.rows.get(label_set, UNKNOWN_ROW)

    def selects(self, selector: str, label_set: str) -> bool:
        """Whether the selector selects pods with the label set; False if either is not known."""
        return self.selects_row(selector, self.rows.get(label_set, UNKNOWN_ROW))

    def selects_row(self, selector: str, row: int) -> bool:
        """As `selects`."""
        known, label_set = self.selectors.get(selector), self._label_sets[row]
        if known is None or label_set is None:
            return False
        namespace = label_set.namespace
        return known.selects(namespace, self.namespaces.get(namespace, _NO_LABELS), label_set.labels)

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
                rows[_array(self._by_namespace[namespace])] = True
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
            return np.zeros(self._requirements.size, np.bool_)
        return self._requirements.met_by(known, self.namespaces)

    @property
    def selector_rows(self) -> int:
        """Length of `selecting`."""
        return self._requirements.size

    def selector_row(self, selector: str) -> int:
        """Index of a selector in `selecting`; -1 if it is not known."""
        return self._requirements.rows.get(selector, -1)

    def representative(self, label_set: str) -> str:
        """A label set that the same selectors select; empty if none selects it.

        The same for all label sets that the same selectors select, until selectors change.
        """
        if not self.selectors:
            return ""
        if self._representatives_version != self.selectors_version:
            self._representatives.clear()
            self._representatives_version = self.selectors_version
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
        selecting = self._requirements.met_by(label_set, self.namespaces)
        if not selecting.any():
            return ""
        signature = np.packbits(selecting).tobytes().rstrip(b"\0")
        found = self._by_signature.get(signature)
        if found is None:
            if len(self._by_signature) >= _MAX_REPRESENTATIVES:
                self._by_signature.clear()
                self._signatures.clear()
            found = self._by_signature[signature] = label_set.id
            self._signatures[found] = signature
        return found

    def _forget_representative(self, id_: str) -> None:
        signature = self._signatures.pop(id_, None)
        if signature is not None:
            self._by_signature.pop(signature, None)
            self._representatives.clear()

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

    def _index(self, key: str) -> "_Key":
        index = _Key()
        for row, each in enumerate(self._label_sets):
            if each is not None and key in each.keys:
                index.add(each.values[each.keys.index(key)], row)
        return index

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
                    self.namespaces.get(name, _NO_LABELS)
                ):
                    yield name


class _Key:
    """Label sets by the value of a label that selectors name; ended with the last selector that names it."""

    def __init__(self) -> None:
        self.named_values: Counter[str] = Counter()
        self._namers = 0
        self._rows: set[int] = set()
        self._by_value: dict[str, int | set[int]] = {}

    def name(self, requirement: Requirement) -> None:
        """Count one more requirement that names the key."""
        self._namers += 1
        self.named_values.update(requirement.values)

    def unname(self, requirement: Requirement) -> int:
        """Count a requirement less; returns how many are left."""
        self._namers -= 1
        for value in requirement.values:
            self.named_values[value] -= 1
            if not self.named_values[value]:
                del self.named_values[value]
        return self._namers

    def add(self, value: str, row: int) -> None:
        self._rows.add(row)
        there = self._by_value.get(value)
        if there is None:
            self._by_value[value] = row
        elif isinstance(there, int):
            self._by_value[value] = {there, row}
        else:
            there.add(row)

    def drop(self, value: str, row: int) -> None:
        self._rows.discard(row)
        there = self._by_value[value]
        if isinstance(there, int):
            del self._by_value[value]
        else:
            there.discard(row)
            if not there:
                del self._by_value[value]

    def few(self, values: Iterable[str]) -> list[int] | None:
        """Rows with one of the values; None if they are not few."""
        found: list[int] = []
        for value in values:
            there = self._by_value.get(value)
            if isinstance(there, int):
                found.append(there)
            elif there is not None:
                if len(there) > _FEW_ROWS:
                    return None
                found.extend(there)
            if len(found) > _FEW_ROWS:
                return None
        return found

    def restrict(self, requirement: Requirement, rows: Bool) -> None:
        """Exclude rows that do not meet the requirement."""
        match requirement.operator:
            case Operator.IN:
                met = np.zeros_like(rows)
                for value in requirement.values:
                    met[self._with_value(value)] = True
                rows &= met
            case Operator.NOT_IN:
                for value in requirement.values:
                    rows[self._with_value(value)] = False
            case Operator.EXISTS:
                met = np.zeros_like(rows)
                met[_array(self._rows)] = True
                rows &= met
            case Operator.DOES_NOT_EXIST:
                rows[_array(self._rows)] = False

    def _with_value(self, value: str) -> Int64 | int:
        there = self._by_value.get(value, ())
        return there if isinstance(there, int) else _array(there)


class _Posting:
    """Selectors with one requirement in common, and how often each has it."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._arrays: tuple[Int64, Int64] | None = None

    def add(self, row: int) -> None:
        self._rows[row] = self._rows.get(row, 0) + 1
        self._arrays = None

    def drop(self, row: int) -> bool:
        """Remove a selector; returns whether others are left."""
        self._rows[row] -= 1
        if not self._rows[row]:
            del self._rows[row]
        self._arrays = None
        return bool(self._rows)

    @property
    def arrays(self) -> tuple[Int64, Int64]:
        """Rows without duplicates, and how often each has the requirement."""
        if self._arrays is None:
            self._arrays = _array(self._rows), np.fromiter(self._rows.values(), np.int64, len(self._rows))
        return self._arrays


class _Requirements:
    """The requirements of all selectors, by label and by namespace, to find the selectors that a label set meets.

    `unmet` is int32[size]: requirements of each selector that a label set without labels, in no namespace, does not
    meet.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._unmet = np.full(16, _UNSELECTED, np.int32)
        self._size = 0
        self._free: list[int] = []
        self._in: dict[tuple[str, str], _Posting] = {}
        self._not_in: dict[tuple[str, str], _Posting] = {}
        self._exists: dict[str, _Posting] = {}
        self._absent: dict[str, _Posting] = {}
        self._named: dict[str, _Posting] = {}  # by namespace
        self._scopes: dict[LabelSelector, dict[int, PodSelector]] = {}  # selectors by their namespace selector
        self._in_scope: dict[str, Int64] = {}  # namespace -> rows that select by its labels and do not name it

    @property
    def size(self) -> int:
        return self._size

    @property
    def read_namespaces(self) -> bool:
        """A selector depends on labels of namespaces."""
        return bool(self._scopes)

    def namespaces_changed(self) -> None:
        self._in_scope.clear()

    def add(self, selector: PodSelector) -> None:
        if self._free:
            row = self._free.pop()
        else:
            row, self._size = self._size, self._size + 1
            if row >= len(self._unmet):
                self._unmet = np.concatenate((self._unmet, np.full(row, _UNSELECTED, np.int32)))
        self.rows[selector.id] = row
        unmet = 0 if selector.reaches_all_namespaces else 1
        for each in selector.labels.requirements or ():
            unmet += each.operator in (Operator.IN, Operator.EXISTS)
        self._unmet[row] = _UNSELECTED if selector.labels.requirements is None else unmet
        for postings, name in self._places(selector):
            posting = postings.get(name)
            if posting is None:
                posting = postings[name] = _Posting()
            posting.add(row)
        if selector.reads_namespaces:
            self._scopes.setdefault(selector.namespace_labels, {})[row] = selector
            self._in_scope.clear()

    def drop(self, selector: PodSelector) -> None:
        row = self.rows.pop(selector.id)
        self._unmet[row] = _UNSELECTED
        self._free.append(row)
        for postings, name in self._places(selector):
            if not postings[name].drop(row):
                del postings[name]
        if selector.reads_namespaces:
            scope = self._scopes[selector.namespace_labels]
            del scope[row]
            if not scope:
                del self._scopes[selector.namespace_labels]
            self._in_scope.clear()

    def met_by(self, label_set: LabelSet, namespaces: Mapping[str, Mapping[str, str]]) -> Bool:
        """Selectors all of whose requirements a label set meets, bool[size]."""
        unmet = self._unmet[: self._size].copy()
        namespace = label_set.namespace
        _change(unmet, self._named.get(namespace), -1)
        if self._scopes:
            unmet[self._scoped(namespace, namespaces)] -= 1
        for key, value in zip(label_set.keys, label_set.values, strict=True):
            _change(unmet, self._in.get((key, value)), -1)
            _change(unmet, self._not_in.get((key, value)), 1)
            _change(unmet, self._exists.get(key), -1)
            _change(unmet, self._absent.get(key), 1)
        met: Bool = unmet == 0
        return met

    def _scoped(self, namespace: str, namespaces: Mapping[str, Mapping[str, str]]) -> Int64:
        found = self._in_scope.get(namespace)
        if found is None:
            labels = namespaces.get(namespace, _NO_LABELS)
            rows = [
                row
                for scope, selectors in self._scopes.items()
                if scope.matches(labels)
                for row, selector in selectors.items()
                if namespace not in selector.namespaces
            ]
            found = self._in_scope[namespace] = np.array(rows, np.int64)
        return found

    def _places(self, selector: PodSelector) -> Iterator[tuple[dict, object]]:  # type: ignore[type-arg]
        """The postings that list a selector, one for each way of meeting, or failing, a requirement."""
        for namespace in selector.namespaces:
            yield self._named, namespace
        for each in selector.labels.requirements or ():
            match each.operator:
                case Operator.IN:
                    yield from ((self._in, (each.key, value)) for value in each.values)
                case Operator.NOT_IN:
                    yield from ((self._not_in, (each.key, value)) for value in each.values)
                case Operator.EXISTS:
                    yield self._exists, each.key
                case Operator.DOES_NOT_EXIST:
                    yield self._absent, each.key


def _change(unmet: NDArray[np.int32], posting: _Posting | None, sign: int) -> None:
    if posting is not None:
        rows, counts = posting.arrays
        unmet[rows] += (sign * counts).astype(np.int32)


def _array(rows: Iterable[int]) -> Int64:
    return np.fromiter(rows, np.int64)
