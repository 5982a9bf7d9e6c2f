"""Amounts of resources that definitions ask for ("cpu: 500m"), as the rest of Muster counts them."""

from collections.abc import Mapping
from typing import Any, Final

from muster.dialects.values import BadValue, shown
from muster.gangs.facts import Amounts
from muster.gangs.quantity import BadQuantity, amount_of, parse_quantity
from muster.gangs.quoting import quoted

MOST_RESOURCES: Final = 64
"""Resources of one list; nodes have a dozen."""


def amounts(value: Any) -> Amounts:
    """A resource list, rounded up; without zeros, sorted by name. Raises BadValue."""
    if not isinstance(value, Mapping):
        raise BadValue(f"{shown(value)}, which is not a list of resources such as {{cpu: 8, memory: 32Gi}}")
    if len(value) > MOST_RESOURCES:
        raise BadValue(f"a list of {len(value)} resources, but it may have at most {MOST_RESOURCES}")
    found = {name: _amount(name, each) for name, each in value.items()}
    return tuple(sorted((name, amount) for name, amount in found.items() if amount))


def _amount(resource: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        no_quantity = f"{shown(value)} of {quoted(resource)} in it, which is not a quantity such as 2 or 1.5Gi"
        raise BadValue(f"a list with {no_quantity}")
    try:
        nanos = parse_quantity(str(value))
    except BadQuantity as error:
        raise BadValue(f"a list with {quoted(resource)} in it, of which {error}") from error
    if nanos < 0:
        raise BadValue(f"a list with {shown(value)} of {quoted(resource)} in it, which must not be below zero")
    return amount_of(resource, nanos, round_up=True)
