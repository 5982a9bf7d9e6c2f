"""Arithmetic of CEL: 64-bit integers that do not wrap, doubles, and concatenation."""

import math
from collections.abc import Callable
from typing import Any, Final

from muster.cel.budget import Budget
from muster.cel.errors import Fault, no_overload
from muster.cel.values import INT_MAX, INT_MIN, STRING_UNIT, UINT_MAX, Uint, type_name

Operator = Callable[[Budget, Any, Any], Any]


def _checked(value: int, kind: type) -> int:
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return value
        raise Fault("integer overflow")
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise Fault("unsigned integer overflow")


def add(budget: Budget, left: Any, right: Any) -> Any:
    """Sum, or concatenation of strings, bytes or lists. Raises Fault."""
    kind = type(left)
    if kind is type(right):
        if kind is int or kind is Uint:
            return _checked(int(left) + int(right), kind)
        if kind is float:
            return left + right
        if kind is str or kind is bytes:
            budget.charge((len(left) + len(right)) // STRING_UNIT)
            return left + right
        if kind is list:
            budget.charge(len(left) + len(right))
            return left + right
    raise no_overload("_+_", type_name(left), type_name(right))


def _subtract(budget: Budget, left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int or kind is Uint:
            return _checked(int(left) - int(right), kind)
        if kind is float:
            return left - right
    raise no_overload("_-_", type_name(left), type_name(right))


def _multiply(budget: Budget, left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int or kind is Uint:
            return _checked(int(left) * int(right), kind)
        if kind is float:
            return left * right
    raise no_overload("_*_", type_name(left), type_name(right))


def _divide(budget: Budget, left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int or kind is Uint:
            if right == 0:
                raise Fault("division by zero")
            quotient = abs(int(left)) // abs(int(right))
            return _checked(quotient if (left < 0) == (right < 0) else -quotient, kind)
        if kind is float:
            if right != 0:
                return left / right
            if left == 0 or math.isnan(left):
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1, right)
    raise no_overload("_/_", type_name(left), type_name(right))


def _modulo(budget: Budget, left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right) and (kind is int or kind is Uint):
        if right == 0:
            raise Fault("modulus by zero")
        if kind is int and left == INT_MIN and right == -1:
            raise Fault("integer overflow")
        remainder = abs(int(left)) % abs(int(right))  # the sign is that of the dividend
        return _checked(-remainder if left < 0 else remainder, kind)
    raise no_overload("_%_", type_name(left), type_name(right))


def negate(value: Any) -> Any:
    """The negative of an int or double. Raises Fault."""
    if type(value) is int:
        return _checked(-value, int)
    if type(value) is float:
        return -value
    raise no_overload("-_", type_name(value))


OPERATORS: Final[dict[str, Operator]] = {"+": add, "-": _subtract, "*": _multiply, "/": _divide, "%": _modulo}
