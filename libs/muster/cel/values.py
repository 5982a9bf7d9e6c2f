"""Values of CEL as Python objects, their types, equality and order.

int, float (double), str, bytes, bool, None, list and dict stand for themselves; keys of a dict are those of `map_key`.
"""

from dataclasses import dataclass
from typing import Any, Final

from muster.cel.budget import Budget
from muster.cel.errors import Fault, no_overload
from muster.cel.network import Cidr, Ip
from muster.cel.quantity import Quantity
from muster.cel.semver import Semver

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)
UINT_MAX: Final = 2**64 - 1
_MAX_DEPTH: Final = 64
"""Levels of lists and maps that are compared."""


class Uint(int):
    """An unsigned integer of 64 bits."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    value: Any = None
    exists: bool = True


NONE: Final = Optional(None, False)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, such as `int` or type(1)."""

    name: str


class Domains(dict[str, dict[str, Any]]):
    """Attributes or capacities by domain and name; an unknown domain is an empty map."""

    def __missing__(self, domain: str) -> dict[str, Any]:
        return _EMPTY


_EMPTY: Final[dict[str, Any]] = {}


class _BoolKey:
    """A bool as a key: in a dict, True would be equal to 1."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value).lower()


_BOOL_KEYS: Final = {False: _BoolKey(False), True: _BoolKey(True)}
_NAMES: Final[dict[type, str]] = {
    int: "int",
    Uint: "uint",
    float: "double",
    bool: "bool",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    Domains: "map",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    Ip: "net.IP",
    Cidr: "net.CIDR",
    Optional: "optional_type",
    TypeValue: "type",
}
TYPES: Final = frozenset(_NAMES.values())
_NUMBERS: Final = frozenset((int, Uint, float))
_SCALARS: Final = frozenset((int, Uint, float, bool, type(None), Quantity, Semver, Ip, Cidr, TypeValue))
OBJECTS: Final = frozenset((Quantity, Semver, Ip, Cidr))
"""Types of Kubernetes, whose comparison by == with a value of another type is an error."""
_ORDERED: Final = frozenset((str, bytes, bool))
STRING_UNIT: Final = 10
"""Characters of a string, or bytes, that cost one unit."""


def type_name(value: Any) -> str:
    """The name of the value's type in CEL."""
    return _NAMES.get(type(value), "kubernetes.DRADevice")


def map_key(key: Any) -> Any:
    """The key of a dict for a key of a map; a double counts as the integer that it equals. Raises Fault."""
    kind = type(key)
    if kind is str or kind is int or kind is Uint:
        return key
    if kind is bool:
        return _BOOL_KEYS[key]
    if kind is float:
        return int(key) if key.is_integer() and INT_MIN <= key <= UINT_MAX else key
    raise Fault(f"unsupported key type: {type_name(key)}")


def keys_of(values: dict[Any, Any]) -> list[Any]:
    """The keys of a map as values."""
    return [key.value if type(key) is _BoolKey else key for key in values]


def items_of(value: Any) -> list[Any]:
    """Values that a comprehension visits: the items of a list, or the keys of a map. Raises Fault."""
    if type(value) is list:
        return value
    if isinstance(value, dict):
        return keys_of(value)
    raise Fault(f"{type_name(value)} is neither a list nor a map")


def entries_of(value: Any) -> list[tuple[Any, Any]]:
    """Pairs that a comprehension of two variables visits: indexes and items, or keys and values. Raises Fault."""
    if type(value) is list:
        return list(enumerate(value))
    if isinstance(value, dict):
        return list(zip(keys_of(value), value.values(), strict=True))
    raise Fault(f"{type_name(value)} is neither a list nor a map")


def equal(budget: Budget, left: Any, right: Any, depth: int = 0) -> bool:
    """Equality: numbers are compared as numbers, values of other different types are unequal. Raises Fault."""
    kind, other = type(left), type(right)
    if kind is not other:
        if kind in _NUMBERS and other in _NUMBERS:
            return bool(left == right)
        if not (isinstance(left, dict) and isinstance(right, dict)):
            return False
    elif kind in _SCALARS:
        return bool(left == right)
    elif kind is str or kind is bytes:
        budget.charge(min(len(left), len(right)) // STRING_UNIT)
        return bool(left == right)
    if depth == _MAX_DEPTH:
        raise Fault(f"values of more than {_MAX_DEPTH} levels cannot be compared")
    if kind is list:
        if len(left) != len(right):
            return False
        budget.charge(1 + len(left))
        for item, counterpart in zip(left, right, strict=True):  # noqa: SIM110 a generator would be a second frame a level
            if not equal(budget, item, counterpart, depth + 1):
                return False
        return True
    if isinstance(left, dict):
        if len(left) != len(right):
            return False
        budget.charge(1 + len(left))
        for key, item in left.items():
            if key not in right or not equal(budget, item, right[key], depth + 1):
                return False
        return True
    if kind is Optional:
        return left.exists == right.exists and equal(budget, left.value, right.value, depth + 1)
    return left is right


def compare(budget: Budget, operator: str, left: Any, right: Any) -> int:
    """-1, 0 or 1: the order of two numbers, strings, bytes or bools. Raises Fault."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:
            raise Fault("NaN values cannot be ordered")
    elif kind is other and kind in _ORDERED:
        if kind is not bool:
            budget.charge(min(len(left), len(right)) // STRING_UNIT)
    else:
        raise no_overload(operator, type_name(left), type_name(right))
    return bool(left > right) - bool(left < right)


def size(value: Any) -> int:
    """The number of characters, bytes, items or entries. Raises Fault."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_overload("size", type_name(value))
