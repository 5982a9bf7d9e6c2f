"""Paths of constants below `device`, such as device.attributes["gpu.example.com"].model, in one step."""

from typing import Any, Final

from muster.cel.errors import Fault
from muster.cel.evaluation import Closure, Evaluation, at
from muster.cel.tree import Ident, Index, Literal, Node, Select, Span

DEVICE_FIELDS: Final = ("driver", "attributes", "capacity", "allowMultipleAllocations")
Path = tuple[str, ...]
"""A field of the device, then a domain, then a name; the last two may be missing."""
_LONGEST: Final = 3


def path_of(node: Node) -> Path | None:
    """The path that a chain of selections and constant indexes reads, or None if it is none, or longer."""
    names: list[str] = []
    while not isinstance(node, Ident):
        if isinstance(node, Select) and not node.optional:
            names.append(node.field)
        elif isinstance(node, Index) and not node.optional and isinstance(node.index, Literal):
            if not isinstance(node.index.value, str):
                return None
            names.append(node.index.value)
        else:
            return None
        node = node.operand
    if node.name != "device" or len(names) > _LONGEST or (len(names) > 1 and names[-1] not in DEVICE_FIELDS[1:3]):
        return None
    return tuple(reversed(names))


def read_path(span: Span, path: Path) -> Closure:
    """A closure that reads the path."""
    cost = len(path) + 1
    match path:
        case ("driver",):
            return lambda state: _spend(state, cost).device.driver
        case ("allowMultipleAllocations",):
            return lambda state: _spend(state, cost).device.allow_multiple_allocations
        case ("attributes",):
            return lambda state: _spend(state, cost).device.attributes
        case ("capacity",):
            return lambda state: _spend(state, cost).device.capacity
        case ("attributes", domain):
            return lambda state: _spend(state, cost).device.attributes[domain]
        case ("capacity", domain):
            return lambda state: _spend(state, cost).device.capacity[domain]
    field, domain, name = path

    def attribute(state: Evaluation) -> Any:
        state.left -= cost
        values = state.device.attributes[domain]
        try:
            return values[name]
        except KeyError:
            raise at(span, Fault(f"no such key: {name}", values)) from None

    def capacity(state: Evaluation) -> Any:
        state.left -= cost
        values = state.device.capacity[domain]
        try:
            return values[name]
        except KeyError:
            raise at(span, Fault(f"no such key: {name}", values)) from None

    return attribute if field == "attributes" else capacity


def _spend(state: Evaluation, cost: int) -> Evaluation:
    state.left -= cost
    return state
