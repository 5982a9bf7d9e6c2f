"""Label selectors (metav1.LabelSelector), decoded from raw JSON into a canonical form."""

from typing import Final

import msgspec
from msgspec import Struct

from muster.gangs.quoting import quoted
from muster.gangs.selectors import EVERYTHING_SELECTED, NOTHING_SELECTED, LabelSelector, Operator, Requirement
from muster.kube.objects import UNREADABLE

_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}


class BadSelector(ValueError):
    """A malformed label selector. The message quotes the invalid value."""


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
    operator = _OPERATORS.get(given.operator)
    if operator is None:
        raise BadSelector(f"{where}: it must be one of {', '.join(_OPERATORS)}")
    values = tuple(sorted(set(given.values or ())))
    if bool(values) != (operator in (Operator.IN, Operator.NOT_IN)):
        raise BadSelector(f"{where} and {len(values)} values: In and NotIn need values, the others must have none")
    return Requirement(given.key, operator, values)
