"""Selectors of labels (metav1.LabelSelector), read from raw JSON."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct

from muster.gangs.quoting import quoted
from muster.kube.objects import UNREADABLE


class BadSelector(ValueError):
    """Bytes that are not a selector of labels. The message quotes what is wrong."""


class _Operator(Enum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class _Requirement(Struct, frozen=True):
    key: str
    operator: _Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case _Operator.IN:
                return labels.get(self.key) in self.values
            case _Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case _Operator.EXISTS:
                return self.key in labels
            case _Operator.DOES_NOT_EXIST:
                return self.key not in labels


class LabelSelector(Struct, frozen=True):
    """Matches labels that meet all requirements; None instead of requirements: no labels at all."""

    requirements: tuple[_Requirement, ...] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects what has these labels."""
        return self.requirements is not None and all(each.matches(labels) for each in self.requirements)


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
    labels = sorted((given.match_labels or {}).items())
    equal = [_Requirement(key, _Operator.IN, (value,)) for key, value in labels]
    return LabelSelector((*equal, *map(_requirement, given.match_expressions or ())))


def _requirement(given: _GivenRequirement) -> _Requirement:
    where = f"a requirement on {quoted(given.key)} has operator {quoted(given.operator)}"
    try:
        operator = _Operator(given.operator)
    except ValueError:
        raise BadSelector(f"{where}: it must be one of {', '.join(each.value for each in _Operator)}") from None
    values = tuple(given.values or ())
    if bool(values) != (operator in (_Operator.IN, _Operator.NOT_IN)):
        raise BadSelector(f"{where} and {len(values)} values: In and NotIn need some, the others none")
    return _Requirement(given.key, operator, values)
