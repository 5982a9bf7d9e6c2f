"""Fields, items of lists and values of maps."""

from typing import Any

from muster.cel.device import Device
from muster.cel.errors import Fault, no_overload
from muster.cel.evaluation import Closure, Evaluation, at
from muster.cel.paths import DEVICE_FIELDS
from muster.cel.tree import Span
from muster.cel.values import NONE, Optional, map_key, type_name


def access(span: Span, operand_of: Closure, index_of: Closure, optional: bool, is_select: bool) -> Closure:
    def run(state: Evaluation) -> Any:
        state.left -= 1
        operand, index = operand_of(state), index_of(state)
        unwraps = isinstance(operand, Optional)
        if unwraps:
            if not operand.exists:
                return operand
            operand = operand.value
        try:
            value = element(operand, index, is_select, optional or unwraps)
        except Fault as fault:
            raise at(span, fault) from None
        return value

    return run


def element(operand: Any, index: Any, is_select: bool, optional: bool) -> Any:
    """The item of a list or value of a map; an Optional of it if `optional`. Raises Fault."""
    if isinstance(operand, dict):
        key = map_key(index)
        try:
            value = operand[key]  # an unknown domain is an empty map
        except KeyError:
            if optional:
                return NONE
            raise missing_key(index, operand) from None
    elif type(operand) is list and not is_select:
        place = map_key(index)
        if type(place) is str or not isinstance(place, int):
            raise Fault(f"unsupported index type {type_name(index)} for a list")
        if not 0 <= place < len(operand):
            if optional:
                return NONE
            raise Fault(f"index out of bounds: {int(place)} in a list of {len(operand)}")
        value = operand[place]
    elif isinstance(operand, Device) and is_select:
        value = device_field(operand, index)
    else:
        raise no_overload("select" if is_select else "_[_]", type_name(operand), type_name(index))
    return Optional(value) if optional else value


def missing_key(key: Any, values: dict[Any, Any]) -> Fault:
    """The fault of a key that a map does not have."""
    return Fault(f"no such key: {str(key)[:64]}", values)


def device_field(device: Device, name: Any) -> Any:
    """A field of the device, where it is known at evaluation only, such as that of a binding. Raises Fault."""
    if name not in DEVICE_FIELDS:
        raise Fault(f"device has no field {str(name)[:64]}")
    return getattr(device, "allow_multiple_allocations" if name == "allowMultipleAllocations" else name)
