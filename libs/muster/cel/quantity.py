"""Kubernetes quantities as values of CEL."""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Final

from muster.cel.errors import Fault
from muster.gangs.quantity import INT64_MAX, INT64_MIN, NANOS_PER_UNIT, BadQuantity, parse_quantity

_FORM: Final = re.compile(r"[+-]?0*([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4})|([numkMGTPE]?)(i?))", re.ASCII)
_POWERS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_DIGITS: Final = 18
_BINARY_DIGITS: Final = 14


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount."""

    nanos: int
    """Billionths of a unit."""
    scale: int | None = 0
    """The power of ten of its last digit; None if Kubernetes represents it by an arbitrary decimal.

    Kubernetes' isInteger() depends on it: 1.5Gi and 1000m are no integers.
    """

    @classmethod
    def parsed(cls, text: str) -> "Quantity":
        """The quantity that a text states. Raises BadQuantity."""
        if text != text.strip():
            raise BadQuantity(text)
        return cls(parse_quantity(text), _scale(text))

    @classmethod
    def of(cls, nanos: int) -> "Quantity":
        """The quantity of an amount in billionths."""
        return cls(nanos, None if nanos % NANOS_PER_UNIT else 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, _lower(self.scale, other.scale))

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, _lower(self.scale, other.scale))

    @property
    def is_integer(self) -> bool:
        """Whether Kubernetes represents it by whole units of 64 bits."""
        return self.scale is not None and self.scale >= 0 and INT64_MIN <= self.nanos // NANOS_PER_UNIT <= INT64_MAX

    def as_integer(self) -> int:
        """Whole units. Raises Fault."""
        if not self.is_integer:
            raise Fault("cannot convert the quantity to an integer; use asApproximateFloat() or compareTo()")
        return self.nanos // NANOS_PER_UNIT

    def as_float(self) -> float:
        """Units, rounded to a double."""
        return self.nanos / NANOS_PER_UNIT


def _lower(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else min(left, right)


def _scale(text: str) -> int | None:
    """Kubernetes keeps a number of few digits as 64 bits and a power of ten, and others as arbitrary decimals."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    whole, fraction, exponent, suffix, binary = match.groups(default="")
    if binary:
        power = _POWERS[suffix]
        return 0 if not fraction and len(whole) + power <= _BINARY_DIGITS else None
    scale = (int(exponent) if exponent else _POWERS[suffix]) - len(fraction)
    return scale if len(whole) + len(fraction) <= _DECIMAL_DIGITS and scale >= _POWERS["n"] else None
