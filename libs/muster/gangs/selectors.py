"""Pod selectors and the label sets that they select."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import IntEnum
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct


class Operator(IntEnum):
    """Operator of a requirement; numbers as in the contract."""

    IN = 1
    NOT_IN = 2
    EXISTS = 3
    DOES_NOT_EXIST = 4


_FEW_VALUES: Final = 16
"""Values that are compared one by one."""


class Requirement(Struct, frozen=True, gc=False):
    """A requirement on one label; values are sorted."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.holds_for(labels.get(self.key))

    def holds_for(self, value: str | None) -> bool:
        """Whether a value of the label meets the requirement; None: there is no such label."""
        match self.operator:
            case Operator.IN:
                return self._names(value)
            case Operator.NOT_IN:
                return not self._names(value)
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None

    def _names(self, value: str | None) -> bool:
        values = self.values
        if value is None or len(values) <= _FEW_VALUES:
            return value is not None and value in values
        at = bisect_left(values, value)
        return at < len(values) and values[at] == value


class LabelSelector(Struct, frozen=True, gc=False):
    """Matches labels that meet all requirements; None: matches nothing.

    Requirements are sorted and unique, so that equivalent selectors in another order are equal.
    """

    requirements: tuple[Requirement, ...] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches these labels."""
        if self.requirements is None:
            return False
        for each in self.requirements:  # noqa: SIM110 (all() takes twice as long)
            if not each.matches(labels):
                return False
        return True

    def narrowed(self, more: Iterable[Requirement]) -> "LabelSelector":
        """The selector with additional requirements; one that matches nothing is unchanged."""
        if self.requirements is None:
            return self
        return LabelSelector(tuple(sorted({*self.requirements, *more}, key=_rank)))


NOTHING_SELECTED: Final = LabelSelector()
"""The meaning of a null selector."""
EVERYTHING_SELECTED: Final = LabelSelector(())
"""The meaning of an empty selector."""


def _rank(requirement: Requirement) -> tuple[str, int, tuple[str, ...]]:
    return requirement.key, requirement.operator.value, requirement.values


class PodSelector(Struct, frozen=True, gc=False):
    """Pods with labels that `labels` selects, in `namespaces` and in those whose labels `namespace_labels` selects.

    `id` is a hash of the other fields.
    """

    id: str
    namespaces: tuple[str, ...]
    namespace_labels: LabelSelector
    labels: LabelSelector

    @property
    def reads_namespaces(self) -> bool:
        """The result depends on labels of namespaces."""
        return bool(self.namespace_labels.requirements)

    @property
    def reaches_all_namespaces(self) -> bool:
        """Pods of all namespaces are selected if their labels are."""
        return self.namespace_labels == EVERYTHING_SELECTED

    def selects(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether the selector matches a pod with `labels` in a namespace with `namespace_labels`."""
        if namespace not in self.namespaces and not self.namespace_labels.matches(namespace_labels):
            return False
        return self.labels.matches(labels)


def pod_selector(
    labels: LabelSelector, namespaces: Iterable[str], namespace_labels: LabelSelector = NOTHING_SELECTED
) -> PodSelector:
    """A selector in canonical form."""
    named = () if namespace_labels == EVERYTHING_SELECTED else tuple(sorted(set(namespaces)))
    content = msgspec.json.encode((named, namespace_labels, labels))
    return PodSelector(blake2b(content, digest_size=16).hexdigest(), named, namespace_labels, labels)


class LabelSet(Struct, frozen=True, gc=False):  # up to one per pod
    """Namespace and labels that pods share. `id` is a hash of both; `keys` are sorted, `values` are in their order."""

    id: str
    namespace: str
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return dict(zip(self.keys, self.values, strict=True))


class NamespaceFacts(Struct, frozen=True, gc=False):
    """Labels of a namespace; namespaces without labels are not listed."""

    name: str
    labels: dict[str, str]
