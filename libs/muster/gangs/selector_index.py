"""Indexes of label selectors: the label sets with a label, and the selectors whose requirements a label set meets.

Each follows every change at the cost of the changed object's own labels and requirements. Entries end with the label
set or the selector that they are of.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.gangs.selectors import LabelSelector, LabelSet, Operator, PodSelector, Requirement

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]

NO_LABELS: Final[Mapping[str, str]] = {}
_FEW_ROWS: Final = 64
"""Label sets that are compared one by one instead of as arrays."""
_UNSELECTED: Final = 2**20
"""Count of unmet requirements of rows without a selector, and of selectors that select nothing."""
_NO_SCOPE: Final = 0
"""Row of a namespace selector that selects nothing."""


class LabelIndex:
    """Label sets by the value of one label that selectors name; ended with the last selector that names it."""

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
                met[as_array(self._rows)] = True
                rows &= met
            case Operator.DOES_NOT_EXIST:
                rows[as_array(self._rows)] = False

    def _with_value(self, value: str) -> Int64 | int:
        there = self._by_value.get(value, ())
        return there if isinstance(there, int) else as_array(there)


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
            self._arrays = as_array(self._rows), np.fromiter(self._rows.values(), np.int64, len(self._rows))
        return self._arrays


class _Requirements:
    """Requirements of rows by label, to count those that given labels do not meet, for all rows at once.

    `_unmet` is int32[size]: requirements of each row that no labels at all would not meet.
    """

    def __init__(self) -> None:
        self._unmet = np.full(16, _UNSELECTED, np.int32)
        self._size = 0
        self._free = array("q")
        self._in: dict[tuple[str, str], _Posting] = {}
        self._not_in: dict[tuple[str, str], _Posting] = {}
        self._exists: dict[str, _Posting] = {}
        self._absent: dict[str, _Posting] = {}

    @property
    def size(self) -> int:
        return self._size

    def add(self, selector: LabelSelector, more: int = 0) -> int:
        """Add a row, with so many further requirements that no labels meet; returns its number."""
        if self._free:
            row = self._free.pop()
        else:
            row, self._size = self._size, self._size + 1
            if row >= len(self._unmet):
                self._unmet = np.concatenate((self._unmet, np.full(row, _UNSELECTED, np.int32)))
        unmet = sum(each.operator in (Operator.IN, Operator.EXISTS) for each in selector.requirements or ())
        self._unmet[row] = _UNSELECTED if selector.requirements is None else unmet + more
        for postings, name in self._places(selector):
            posting = postings.get(name)
            if posting is None:
                posting = postings[name] = _Posting()
            posting.add(row)
        return row

    def drop(self, row: int, selector: LabelSelector) -> None:
        """Remove a row; another one may get its number."""
        self._unmet[row] = _UNSELECTED
        self._free.append(row)
        for postings, name in self._places(selector):
            if not postings[name].drop(row):
                del postings[name]

    def unmet_by(self, labels: Iterable[tuple[str, str]]) -> Int32:
        """How many requirements of each row labels do not meet, int32[size]."""
        unmet = self._unmet[: self._size].copy()
        for key, value in labels:
            _change(unmet, self._in.get((key, value)), -1)
            _change(unmet, self._not_in.get((key, value)), 1)
            _change(unmet, self._exists.get(key), -1)
            _change(unmet, self._absent.get(key), 1)
        return unmet

    def _places(self, selector: LabelSelector) -> Iterator[tuple[dict, object]]:  # type: ignore[type-arg]
        """The postings that list a row, one for each way of meeting, or failing, a requirement."""
        for each in selector.requirements or ():
            match each.operator:
                case Operator.IN:
                    yield from ((self._in, (each.key, value)) for value in each.values)
                case Operator.NOT_IN:
                    yield from ((self._not_in, (each.key, value)) for value in each.values)
                case Operator.EXISTS:
                    yield self._exists, each.key
                case Operator.DOES_NOT_EXIST:
                    yield self._absent, each.key


class SelectorIndex:
    """The requirements of all selectors on labels of pods and of namespaces, to find the selectors that a label set
    meets.

    Namespace selectors that several pod selectors have in common are counted once. Finding the selectors that reach a
    namespace takes as long as its own labels, whatever the number of namespaces and selectors (I12).
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._labels = _Requirements()
        self._named: dict[str, _Posting] = {}  # by namespace
        self._namespace_labels = _Requirements()
        self._scopes: dict[LabelSelector, tuple[int, int]] = {}
        """Rows of namespace selectors, and the number of pod selectors with each."""
        self._scope_of: Int64 = np.zeros(16, np.int64)  # row of the namespace selector by row; _NO_SCOPE: none
        assert self._namespace_labels.add(LabelSelector(), 0) == _NO_SCOPE

    @property
    def size(self) -> int:
        return self._labels.size

    @property
    def read_namespaces(self) -> bool:
        """A selector depends on labels of namespaces."""
        return bool(self._scopes)

    def add(self, selector: PodSelector) -> None:
        row = self.rows[selector.id] = self._labels.add(selector.labels, 0 if selector.reaches_all_namespaces else 1)
        if row >= len(self._scope_of):
            self._scope_of = np.concatenate((self._scope_of, np.zeros(row, np.int64)))
        for namespace in selector.namespaces:
            posting = self._named.get(namespace)
            if posting is None:
                posting = self._named[namespace] = _Posting()
            posting.add(row)
        if selector.reads_namespaces:
            known = self._scopes.get(selector.namespace_labels)
            scope, users = (self._namespace_labels.add(selector.namespace_labels), 0) if known is None else known
            self._scopes[selector.namespace_labels] = scope, users + 1
            self._scope_of[row] = scope

    def drop(self, selector: PodSelector) -> None:
        row = self.rows.pop(selector.id)
        self._labels.drop(row, selector.labels)
        for namespace in selector.namespaces:
            if not self._named[namespace].drop(row):
                del self._named[namespace]
        if selector.reads_namespaces:
            self._scope_of[row] = _NO_SCOPE
            scope, users = self._scopes.pop(selector.namespace_labels)
            if users > 1:
                self._scopes[selector.namespace_labels] = scope, users - 1
            else:
                self._namespace_labels.drop(scope, selector.namespace_labels)

    def met_by(self, label_set: LabelSet, namespaces: Mapping[str, Mapping[str, str]]) -> Bool:
        """Selectors all of whose requirements a label set meets, bool[size]."""
        unmet = self._labels.unmet_by(zip(label_set.keys, label_set.values, strict=True))
        unmet -= self._reaching(label_set.namespace, namespaces)
        met: Bool = unmet == 0
        return met

    def _reaching(self, namespace: str, namespaces: Mapping[str, Mapping[str, str]]) -> Bool:
        """Selectors that reach a namespace by its name or labels, bool[size]; not those that reach all."""
        if self._scopes:
            scopes = self._namespace_labels.unmet_by(namespaces.get(namespace, NO_LABELS).items()) == 0
            reaching: Bool = scopes[self._scope_of[: self.size]]
        else:
            reaching = np.zeros(self.size, np.bool_)
        if (named := self._named.get(namespace)) is not None:
            reaching[named.arrays[0]] = True
        return reaching


def _change(unmet: Int32, posting: _Posting | None, sign: int) -> None:
    if posting is not None:
        rows, counts = posting.arrays
        unmet[rows] += (sign * counts).astype(np.int32)


def as_array(rows: Iterable[int]) -> Int64:
    return np.fromiter(rows, np.int64)
