"""Label selectors (metav1.LabelSelector) and pod selectors, decoded from raw JSON into a canonical form."""

from collections.abc import Iterable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from muster.gangs.quoting import quoted
from muster.kube.objects import UNREADABLE


class BadSelector(ValueError):
    """A malformed label selector. The message quotes the invalid value."""


class Operator(Enum):
    """Operator of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(Struct, frozen=True):
    """A requirement on one label; values are sorted."""

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
    """Matches labels that meet all requirements; None: matches nothing.

    Requirements are sorted and unique, so that equivalent selectors in another order are equal.
    """

    requirements: tuple[Requirement, ...] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches these labels."""
        return self.requirements is not None and all(each.matches(labels) for each in self.requirements)

    def narrowed(self, more: Iterable[Requirement]) -> "LabelSelector":
        """The selector with additional requirements; one that matches nothing is unchanged."""
        if self.requirements is None:
            return self
        return LabelSelector(tuple(sorted({*self.requirements, *more}, key=_rank)))


NOTHING_SELECTED: Final = LabelSelector()
"""The meaning of a null selector."""
EVERYTHING_SELECTED: Final = LabelSelector(())
"""The meaning of an empty selector."""


class _GivenRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Given(Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_GivenRequirement] | None = None


def label_selector(raw: bytes) -> LabelSelector:
    """Decode a selector; null or no bytes select nothing. Raises BadSelector."""
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
        raise BadSelector(f"{where} and {len(values)} values: In and NotIn need values, the others must have none")
    return Requirement(given.key, operator, values)


def _rank(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return requirement.key, requirement.operator.value, requirement.values


class PodSelector(Struct, frozen=True):
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
        """Pods of any namespace may match."""
        return self.namespace_labels != NOTHING_SELECTED

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
