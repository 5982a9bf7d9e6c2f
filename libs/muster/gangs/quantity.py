"""Kubernetes quantities ("100m", "1.5Gi", "1e3") as exact integers."""

import re
from typing import Final

from muster.gangs.byte_cache import cached_by_number
from muster.gangs.quoting import quoted

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

MAX_AMOUNT: Final = 2**53
"""Larger amounts are cut to this on nodes, and to one more in requests, so that they fit no node. So the sums over a
node's pods stay far from the end of int64 whatever users write."""

NANOS_PER_UNIT: Final = 10**9
"""The API server stores at most nine decimal places; smaller amounts are rounded up to one billionth."""

NANOS_PER_MILLI: Final = 10**6
_LARGEST: Final = INT64_MAX * NANOS_PER_UNIT
_FORM: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([eE])([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_POWER_OF_TEN: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWER_OF_TWO: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BLANKS: Final = " \t\r\n"  # the API server ignores them around a quantity
_BEYOND_INT64: Final = 30  # an integer of more decimal digits, binary suffix or not, is above 2^63
_MOST_DIGITS: Final = 4000  # Python limits the length of numbers that it converts


class BadQuantity(ValueError):
    """`text` is not a Kubernetes quantity."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"{quoted(text)} is not a quantity: write a number with an optional suffix, such as 500m, 2, 1.5Gi or 1e3"
        )


def parse_quantity(text: str) -> int:
    """The quantity in billionths of a unit, exact.

    Fractions of a billionth are rounded away from zero, and amounts beyond int64 units are cut to it, as the API server
    does. Raises BadQuantity.
    """
    return _cached(text) if len(text) <= _LONGEST_CACHED else _parsed(text)


def _parsed(text: str) -> int:
    match = _FORM.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise BadQuantity(text)
    sign, whole, fraction, _, exponent, suffix = match.groups(default="")
    if not whole and not fraction:
        raise BadQuantity(text)
    ten, two = 0, 0
    if exponent:
        ten = _bounded_exponent(exponent)
    elif suffix in _POWER_OF_TWO:
        two = _POWER_OF_TWO[suffix]
    else:
        ten = _POWER_OF_TEN.get(suffix, 0)
    nanos = _nanos((whole + fraction).lstrip("0"), ten - len(fraction) + 9, two)
    return -nanos if sign == "-" else nanos


_LONGEST_CACHED: Final = 64
"""Characters, so that the cache is bounded: users choose the length."""
_cached: Final = cached_by_number(16384)(_parsed)


def to_amount(resource_name: str, text: str, round_up: bool) -> int:
    """The amount of a resource: millicores for cpu, units (bytes) for all others, within int64. Raises BadQuantity."""
    return amount_of(resource_name, parse_quantity(text), round_up)


def amount_of(resource_name: str, nanos: int, round_up: bool) -> int:
    """The amount of a resource, from a quantity in billionths."""
    divisor = NANOS_PER_MILLI if resource_name == "cpu" else NANOS_PER_UNIT
    amount = -(-nanos // divisor) if round_up else nanos // divisor
    return min(max(amount, INT64_MIN), INT64_MAX)


def rounded_up(nanos: int, step: int) -> int:
    """The next multiple of `step`, both in billionths."""
    return -(-nanos // step) * step


def _bounded_exponent(text: str) -> int:
    # Cheap for an exponent of thousands of digits; beyond these bounds all exponents mean the same.
    digits = text.lstrip("+-").lstrip("0")
    magnitude = int(digits) if digits and len(digits) < 10 else (0 if not digits else 10**9)
    return -magnitude if text.startswith("-") else magnitude


def _nanos(digits: str, ten: int, two: int) -> int:
    """The digits times 10^ten times 2^two, rounded up to an integer and cut at the largest quantity."""
    if not digits:
        return 0
    if len(digits) + ten > _BEYOND_INT64 + 9:
        return _LARGEST
    if len(digits) > _MOST_DIGITS:
        # Only a fraction can be that long here: far below a billionth, where it only matters whether it is zero.
        ten += len(digits) - _MOST_DIGITS
        finer = digits[_MOST_DIGITS:].strip("0")
        digits = digits[:_MOST_DIGITS]
        if finer:
            return min(_scaled(int(digits) + 1, ten, two), _LARGEST)
    return min(_scaled(int(digits), ten, two), _LARGEST)


def _scaled(number: int, ten: int, two: int) -> int:
    number <<= two
    if ten >= 0:
        return int(number * 10**ten)
    if -ten > 2 * _MOST_DIGITS:
        return 1 if number else 0
    return int(-(-number // 10**-ten))
