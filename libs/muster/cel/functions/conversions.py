"""Conversions between the types of CEL, and size."""

import math
import re
from decimal import Decimal
from typing import Any, Final

from muster.cel.budget import Budget
from muster.cel.errors import Fault
from muster.cel.functions.overloads import ANY, Library
from muster.cel.values import INT_MAX, INT_MIN, STRING_UNIT, UINT_MAX, TypeValue, Uint, size, type_name
from muster.gangs.quoting import quoted

CONVERSIONS: Final = Library()
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED: Final = re.compile(r"[0-9]+", re.ASCII)
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_LONGEST_NUMBER: Final = 400
"""Characters of a text that is converted to a number."""
_PLAIN_BELOW: Final = 6
"""Digits before the point above which a double is written with an exponent."""
_SMALL_EXPONENT: Final = 4
"""Zeros behind the point from which a double is written with an exponent."""


@CONVERSIONS.function("size", ANY)
@CONVERSIONS.method("size", ANY)
def _size(budget: Budget, value: Any) -> int:
    budget.charge(1)
    return size(value)


@CONVERSIONS.function("dyn", ANY)
def _dyn(budget: Budget, value: Any) -> Any:
    return value


@CONVERSIONS.function("type", ANY)
def _type(budget: Budget, value: Any) -> TypeValue:
    budget.charge(1)
    return TypeValue(type_name(value))


@CONVERSIONS.function("int", int)
@CONVERSIONS.function("int", Uint)
def _int(budget: Budget, value: int) -> int:
    budget.charge(1)
    return _in_range(int(value))


@CONVERSIONS.function("int", float)
def _int_of_double(budget: Budget, value: float) -> int:
    budget.charge(1)
    if not INT_MIN < value < INT_MAX:
        raise Fault("integer overflow: the double is beyond 64 bits")
    return int(value)


@CONVERSIONS.function("int", str)
def _int_of_string(budget: Budget, text: str) -> int:
    budget.charge(1)
    return _in_range(_number(text, "int", _INTEGER))


@CONVERSIONS.function("uint", int)
@CONVERSIONS.function("uint", Uint)
def _uint(budget: Budget, value: int) -> Uint:
    budget.charge(1)
    return _unsigned(int(value))


@CONVERSIONS.function("uint", float)
def _uint_of_double(budget: Budget, value: float) -> Uint:
    budget.charge(1)
    if not 0 <= value < UINT_MAX:
        raise Fault("unsigned integer overflow: the double is negative or beyond 64 bits")
    return Uint(value)


@CONVERSIONS.function("uint", str)
def _uint_of_string(budget: Budget, text: str) -> Uint:
    budget.charge(1)
    return _unsigned(_number(text, "uint", _UNSIGNED))


@CONVERSIONS.function("double", int)
@CONVERSIONS.function("double", Uint)
@CONVERSIONS.function("double", float)
def _double(budget: Budget, value: float) -> float:
    budget.charge(1)
    return float(value)


@CONVERSIONS.function("double", str)
def _double_of_string(budget: Budget, text: str) -> float:
    budget.charge(1)
    if len(text) > _LONGEST_NUMBER or _DOUBLE.fullmatch(text) is None:
        raise Fault(f"cannot convert {quoted(text)} to double")
    value = float(text)
    if math.isinf(value) and "inf" not in text.lower():
        raise Fault(f"{quoted(text)} is beyond the range of double")
    return value


@CONVERSIONS.function("bool", bool)
def _bool(budget: Budget, value: bool) -> bool:
    return value


@CONVERSIONS.function("bool", str)
def _bool_of_string(budget: Budget, text: str) -> bool:
    budget.charge(1)
    if text not in _BOOLS:
        raise Fault(f"cannot convert {quoted(text)} to bool; write true or false")
    return _BOOLS[text]


@CONVERSIONS.function("string", str)
def _string(budget: Budget, text: str) -> str:
    return text


@CONVERSIONS.function("string", int)
@CONVERSIONS.function("string", Uint)
def _string_of_int(budget: Budget, value: int) -> str:
    budget.charge(1)
    return str(int(value))


@CONVERSIONS.function("string", bool)
def _string_of_bool(budget: Budget, value: bool) -> str:
    budget.charge(1)
    return "true" if value else "false"


@CONVERSIONS.function("string", float)
def _string_of_double(budget: Budget, value: float) -> str:
    """The shortest text that reads as the same double, in Go's form."""
    budget.charge(1)
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, all_digits, power = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, all_digits)).rstrip("0")
    point = len(all_digits) + int(power)  # digits before the point
    minus = "-" if sign else ""
    if -_SMALL_EXPONENT < point <= _PLAIN_BELOW:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{digits}"
        whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
        return f"{minus}{whole}.{fraction}" if fraction else f"{minus}{whole}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{minus}{digits[0]}{fraction}e{point - 1:+03d}"


@CONVERSIONS.function("string", bytes)
def _string_of_bytes(budget: Budget, value: bytes) -> str:
    budget.charge(1 + len(value) // STRING_UNIT)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault("invalid UTF-8 in bytes, cannot convert to string") from None


@CONVERSIONS.function("bytes", bytes)
def _bytes(budget: Budget, value: bytes) -> bytes:
    return value


@CONVERSIONS.function("bytes", str)
def _bytes_of_string(budget: Budget, text: str) -> bytes:
    budget.charge(1 + len(text) // STRING_UNIT)
    return text.encode()


def _number(text: str, name: str, form: re.Pattern[str]) -> int:
    if len(text) > _LONGEST_NUMBER or form.fullmatch(text) is None:
        raise Fault(f"cannot convert {quoted(text)} to {name}")
    return int(text)


def _in_range(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise Fault("integer overflow")
    return value


def _unsigned(value: int) -> Uint:
    if not 0 <= value <= UINT_MAX:
        raise Fault("unsigned integer overflow")
    return Uint(value)
