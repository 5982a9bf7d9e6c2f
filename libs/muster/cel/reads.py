"""The parts of a device that an expression reads, so that devices which are equal in them need one evaluation."""

from collections.abc import Hashable, Mapping
from typing import Any, Final

from muster.cel.device import Device
from muster.cel.paths import DEVICE_FIELDS, Path
from muster.cel.quantity import Quantity
from muster.cel.semver import Semver
from muster.cel.tree import Call, Ident, Index, Literal, MapOf, Node, Select, children

Bound = Mapping[str, Path | None]
"""Variables that stand for a part of the device; None: another variable hides the name."""
_QUANTIFIERS: Final = frozenset(("all", "exists", "exists_one", "existsOne"))
_TRANSFORMS: Final = frozenset(("transformList", "transformMap", "transformMapEntry"))
_DECLARING: Final = _QUANTIFIERS | _TRANSFORMS | {"map", "filter", "sortBy", "optMap", "optFlatMap"}
_UNWRAPPING: Final = frozenset(("orValue", "value"))
_NAMED: Final = 3
"""Length of a path to one attribute or capacity."""


def reads(tree: Node) -> frozenset[Path]:
    """Paths below the device; a path stands for everything below it, the empty one for the device."""
    found: set[Path] = set()
    _visit(tree, {"device": ()}, found)
    return frozenset(path for path in found if not any(path[:length] in found for length in range(len(path))))


def key_of(device: Device, paths: tuple[Path, ...]) -> Hashable:
    """Equal for two devices that have equal values at all paths, of equal types."""
    return tuple(_part(device, path) for path in paths)


def _path(node: Node, bound: Bound) -> Path | None:
    """The part of the device that a node stands for, possibly as an optional value."""
    match node:
        case Ident(name=name):
            return bound.get(name)
        case Select(operand=operand, field=name):
            path = _path(operand, bound)
            return None if path is None or len(path) >= _NAMED else (*path, name)
        case Index(operand=operand, index=Literal(value=str() as name)):
            path = _path(operand, bound)
            return None if path is None or len(path) >= _NAMED else (*path, name)
        case Call(function=function, target=target, args=args) if function in _UNWRAPPING and target is not None:
            return _path(target, bound) if all(isinstance(each, MapOf) and not each.entries for each in args) else None
        case _:
            return None


def _visit(node: Node, bound: Bound, found: set[Path]) -> None:
    path = _path(node, bound)
    if path is not None:
        found.add(path)
        return
    match node:
        case Call(function="in", args=(Literal(value=str() as name), container)) if (
            path := _path(container, bound)
        ) is not None and len(path) < _NAMED:
            found.add((*path, name))
        case Call(function="bind", target=Ident(name="cel"), args=(Ident(name=name), value, body)):
            path = _path(value, bound)
            if path is None:
                _visit(value, bound, found)
            _visit(body, {**bound, name: path}, found)
        case Call(function=function, target=target) if function in _DECLARING and target is not None:
            _visit(target, bound, found)
            two = function in _TRANSFORMS or (function in _QUANTIFIERS and len(node.args) > 2)
            names, results = node.args[: 1 + two], node.args[1 + two :]
            inner = {**bound, **{each.name: None for each in names if isinstance(each, Ident)}}
            for each in results:
                _visit(each, inner, found)
        case _:
            for each in children(node):
                _visit(each, bound, found)


def _part(device: Device, path: Path) -> Hashable:
    match path:
        case ():
            return tuple(_part(device, (field,)) for field in DEVICE_FIELDS)
        case ("driver",):
            return device.driver
        case ("allowMultipleAllocations",):
            return device.allow_multiple_allocations
    domains = device.attributes if path[0] == "attributes" else device.capacity
    match path[1:]:
        case ():
            return tuple((domain, _frozen(values)) for domain, values in sorted(domains.items()))
        case (domain,):
            return _frozen(domains[domain])
        case (domain, name):
            return _typed(domains[domain].get(name))
    return None


def _frozen(values: Mapping[str, Any]) -> Hashable:
    return tuple((name, _typed(value)) for name, value in sorted(values.items()))


def _typed(value: Any) -> Hashable:
    """Distinguishes values that are equal in Python, such as True and 1."""
    if type(value) is str or value is None:
        return value
    if type(value) is list:
        return ("list", *map(_typed, value))
    if isinstance(value, Quantity):
        return ("quantity", value.nanos, value.scale)
    return ("version", value) if isinstance(value, Semver) else (type(value).__name__, value)
