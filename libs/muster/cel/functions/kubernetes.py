"""Kubernetes' libraries for quantities and semantic versions."""

from typing import Any, Final

from muster.cel.budget import Budget
from muster.cel.errors import Fault
from muster.cel.functions.overloads import Library
from muster.cel.quantity import Quantity
from muster.cel.semver import BadVersion, Semver
from muster.cel.values import INT_MAX, STRING_UNIT
from muster.gangs.quantity import NANOS_PER_UNIT, BadQuantity

KUBERNETES: Final = Library()


@KUBERNETES.function("quantity", str)
def _quantity(budget: Budget, text: str) -> Quantity:
    budget.charge(1 + len(text) // STRING_UNIT)
    try:
        return Quantity.parsed(text)
    except BadQuantity as bad:
        raise Fault(str(bad)) from None


@KUBERNETES.function("isQuantity", str)
def _is_quantity(budget: Budget, text: str) -> bool:
    budget.charge(1 + len(text) // STRING_UNIT)
    try:
        Quantity.parsed(text)
    except BadQuantity:
        return False
    return True


@KUBERNETES.method("isInteger", Quantity)
def _is_integer(budget: Budget, quantity: Quantity) -> bool:
    budget.charge(1)
    return quantity.is_integer


@KUBERNETES.method("asInteger", Quantity)
def _as_integer(budget: Budget, quantity: Quantity) -> int:
    budget.charge(1)
    return quantity.as_integer()


@KUBERNETES.method("asApproximateFloat", Quantity)
def _as_float(budget: Budget, quantity: Quantity) -> float:
    budget.charge(1)
    return quantity.as_float()


@KUBERNETES.function("sign", Quantity)
@KUBERNETES.method("sign", Quantity)
def _sign(budget: Budget, quantity: Quantity) -> int:
    budget.charge(1)
    return (quantity.nanos > 0) - (quantity.nanos < 0)


@KUBERNETES.method("add", Quantity, Quantity)
def _add(budget: Budget, left: Quantity, right: Quantity) -> Quantity:
    budget.charge(1)
    return left + right


@KUBERNETES.method("add", Quantity, int)
def _add_units(budget: Budget, left: Quantity, units: int) -> Quantity:
    budget.charge(1)
    return left + Quantity(units * NANOS_PER_UNIT)


@KUBERNETES.method("sub", Quantity, Quantity)
def _sub(budget: Budget, left: Quantity, right: Quantity) -> Quantity:
    budget.charge(1)
    return left - right


@KUBERNETES.method("sub", Quantity, int)
def _sub_units(budget: Budget, left: Quantity, units: int) -> Quantity:
    budget.charge(1)
    return left - Quantity(units * NANOS_PER_UNIT)


@KUBERNETES.method("isGreaterThan", Quantity, Quantity)
@KUBERNETES.method("isGreaterThan", Semver, Semver)
def _is_greater(budget: Budget, left: Any, right: Any) -> bool:
    budget.charge(1)
    return bool(left > right)


@KUBERNETES.method("isLessThan", Quantity, Quantity)
@KUBERNETES.method("isLessThan", Semver, Semver)
def _is_less(budget: Budget, left: Any, right: Any) -> bool:
    budget.charge(1)
    return bool(left < right)


@KUBERNETES.method("compareTo", Quantity, Quantity)
@KUBERNETES.method("compareTo", Semver, Semver)
def _compare(budget: Budget, left: Any, right: Any) -> int:
    budget.charge(1)
    return bool(left > right) - bool(left < right)


@KUBERNETES.function("semver", str)
def _semver(budget: Budget, text: str) -> Semver:
    return _semver_normalized(budget, text, False)


@KUBERNETES.function("semver", str, bool)
def _semver_normalized(budget: Budget, text: str, normalize: bool) -> Semver:
    budget.charge(1 + len(text) // STRING_UNIT)
    try:
        return Semver.normalized(text) if normalize else Semver.parsed(text)
    except BadVersion as bad:
        raise Fault(str(bad)) from None


@KUBERNETES.function("isSemver", str)
def _is_semver(budget: Budget, text: str) -> bool:
    return _is_semver_normalized(budget, text, False)


@KUBERNETES.function("isSemver", str, bool)
def _is_semver_normalized(budget: Budget, text: str, normalize: bool) -> bool:
    try:
        _semver_normalized(budget, text, normalize)
    except Fault:
        return False
    return True


@KUBERNETES.method("major", Semver)
def _major(budget: Budget, version: Semver) -> int:
    return _int(budget, version.major)


@KUBERNETES.method("minor", Semver)
def _minor(budget: Budget, version: Semver) -> int:
    return _int(budget, version.minor)


@KUBERNETES.method("patch", Semver)
def _patch(budget: Budget, version: Semver) -> int:
    return _int(budget, version.patch)


def _int(budget: Budget, number: int) -> int:
    budget.charge(1)
    # Numbers of a version have 64 bits without a sign, and wrap as in Go.
    return number if number <= INT_MAX else number - 2**64
