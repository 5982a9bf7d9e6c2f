"""Selectors of labels (metav1.LabelSelector), read from raw JSON into one canonical form."""

from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from muster.gangs.quoting import quoted
from muster.kube.objects import UNREADABLE


class BadSelector(ValueError):
    """Bytes that are not a selector of labels. The message quotes what is wrong."""


class Operator(Enum):
    """How a requirement compares a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(Struct, frozen=True):
    """Compares one label; values are sorted."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels


class LabelSelector(Struct, frozen=True):
    """Matches labels that meet all requirements; None instead of requirements: no labels at all.

    Requirements are sorted and none is there twice, so that selectors that say the same in another order are equal.
    """

    requirements: tuple[Requirement, ...] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects what has these labels."""
        return self.requirements is not None and all(each.matches(labels) for each in self.requirements)

    def narrowed(self, more: Iterable[Requirement]) -> "LabelSelector":
        """Demands these as well; what selects nothing goes on doing so."""
        if self.requirements is None:
            return self
        return LabelSelector(tuple(sorted({*self.requirements, *more}, key=_rank)))


NOTHING_SELECTED: Final = LabelSelector()
"""What a selector that is null means."""
EVERYTHING_SELECTED: Final = LabelSelector(())
"""What a selector that is empty means."""


class _GivenRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Given(Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_GivenRequirement] | None = None


def label_selector(raw: bytes) -> LabelSelector:
    """The selector that JSON says; null or no bytes at all select nothing. Raises BadSelector."""
    try:
        given = msgspec.json.decode(raw, type=_Given | None) if raw else None
    except UNREADABLE as error:
        raise BadSelector(f"{quoted(raw[:256].decode(errors='replace'))}: {error}") from error
    if given is None:
        return NOTHING_SELECTED
    labels = (given.match_labels or {}).items()
    equal = [Requirement(key, Operator.IN, (value,)) for key, value in labels]
    return EVERYTHING_SELECTED.narrowed([*equal, *map(_requirement, given.match_expressions or ())])


def _requirement(given: _GivenRequirement) -> Requirement:
    where = f"a requirement on {quoted(given.key)} has operator {quoted(given.operator)}"
    try:
        operator = Operator(given.operator)
    except ValueError:
        raise BadSelector(f"{where}: it must be one of {', '.join(each.value for each in Operator)}") from None
    values = tuple(sorted(set(given.values or ())))
    if bool(values) != (operator in (Operator.IN, Operator.NOT_IN)):
        raise BadSelector(f"{where} and {len(values)} values: In and NotIn need some, the others none")
    return Requirement(given.key, operator, values)


def _rank(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return requirement.key, requirement.operator.value, requirement.values


class PodSelector(Struct, frozen=True):
    """Pods with labels that `labels` selects, in `namespaces` and in those whose labels `namespace_labels` selects.

    `id` is a hash of the rest.
    """

    id: str
    namespaces: tuple[str, ...]
    namespace_labels: LabelSelector
    labels: LabelSelector

    @property
    def reads_namespaces(self) -> bool:
        """Labels of namespaces have a say."""
        return bool(self.namespace_labels.requirements)

    @property
    def reaches_all_namespaces(self) -> bool:
        """Pods of any namespace may be meant."""
        return self.namespace_labels != NOTHING_SELECTED

    def selects(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels in a namespace with those."""
        if namespace not in self.namespaces and not self.namespace_labels.matches(namespace_labels):
            return False
        return self.labels.matches(labels)


def pod_selector(
    labels: LabelSelector, namespaces: Iterable[str], namespace_labels: LabelSelector = NOTHING_SELECTED
) -> PodSelector:
    """The selector in its canonical form."""
    named = () if namespace_labels == EVERYTHING_SELECTED else tuple(sorted(set(namespaces)))
    content = msgspec.json.encode((named, namespace_labels, labels))
    return PodSelector(blake2b(content, digest_size=16).hexdigest(), named, namespace_labels, labels)
