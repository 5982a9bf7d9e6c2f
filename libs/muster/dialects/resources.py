"""Parses resource lists of definitions ("cpu: 500m") into amounts in Muster's units."""

from collections.abc import Mapping
from typing import Any, Final

from muster.dialects.values import BadValue, quoted_value
from muster.gangs.facts import Amounts
from muster.gangs.quantity import BadQuantity, amount_of, parse_quantity
from muster.gangs.quoting import quoted

MAX_RESOURCES: Final = 64
"""Entries of one resource list. Nodes have a dozen."""


def parse_amounts(value: Any) -> Amounts:
    """Parses a resource list, rounding up; drops zeros and sorts by name. Raises BadValue."""
    if not isinstance(value, Mapping):
        raise BadValue(f"{quoted_value(value)}, which is not a list of resources such as {{cpu: 8, memory: 32Gi}}")
    if len(value) > MAX_RESOURCES:
        raise BadValue(f"a list of {len(value)} resources, but it may have at most {MAX_RESOURCES}")
    found = {name: _amount(name, each) for name, each in value.items()}
    return tuple(sorted((name, amount) for name, amount in found.items() if amount))


def _amount(resource: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        not_a_quantity = (
            f"{quoted_value(value)} of {quoted(resource)} in it, which is not a quantity such as 2 or 1.5Gi"
        )
        raise BadValue(f"a list with {not_a_quantity}")
    try:
        nanos = parse_quantity(str(value))
    except BadQuantity as error:
        raise BadValue(f"a list with {quoted(resource)} in it, of which {error}") from error
    if nanos < 0:
        raise BadValue(f"a list with {quoted_value(value)} of {quoted(resource)} in it, which must not be below zero")
    return amount_of(resource, nanos, round_up=True)
