"""Optional values of CEL. `or` and `orValue` are compiled, since they evaluate their argument only if needed."""

from typing import Any, Final

from muster.cel.budget import Budget
from muster.cel.errors import Fault
from muster.cel.functions.overloads import ANY, Library
from muster.cel.quantity import Quantity
from muster.cel.semver import Semver
from muster.cel.values import NONE, Optional, type_name

OPTIONALS: Final = Library()


@OPTIONALS.function("optional.none")
def _none(budget: Budget) -> Optional:
    budget.charge(1)
    return NONE


@OPTIONALS.function("optional.of", ANY)
def _of(budget: Budget, value: Any) -> Optional:
    budget.charge(1)
    return Optional(value)


@OPTIONALS.function("optional.ofNonZeroValue", ANY)
def _of_non_zero(budget: Budget, value: Any) -> Optional:
    budget.charge(1)
    is_zero = value is None or (not isinstance(value, Quantity | Semver | Optional) and not value)
    return NONE if is_zero else Optional(value)


@OPTIONALS.method("hasValue", Optional)
def _has_value(budget: Budget, optional: Optional) -> bool:
    budget.charge(1)
    return optional.exists


@OPTIONALS.method("value", Optional)
def _value(budget: Budget, optional: Optional) -> Any:
    budget.charge(1)
    if not optional.exists:
        raise Fault("optional.none() has no value; use orValue() or hasValue()")
    return optional.value


@OPTIONALS.function("optional.unwrap", list)
@OPTIONALS.method("unwrapOpt", list)
def _unwrap(budget: Budget, optionals: list[Any]) -> list[Any]:
    budget.charge(1 + len(optionals))
    for each in optionals:
        if type(each) is not Optional:
            raise Fault(f"unwrap: an item is of type {type_name(each)}, not optional_type")
    return [each.value for each in optionals if each.exists]
