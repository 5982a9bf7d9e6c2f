"""Macros: has, comprehensions of one and two variables, bindings, and functions of optional values."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from muster.cel.device import Device
from muster.cel.errors import Fault, no_overload
from muster.cel.evaluation import Closure, Evaluation, at
from muster.cel.functions.lists import sorted_by
from muster.cel.paths import DEVICE_FIELDS
from muster.cel.tree import Call, Ident, Node, Select
from muster.cel.values import NONE, Optional, entries_of, items_of, keys_of, map_key, type_name

if TYPE_CHECKING:
    from muster.cel.compiler import Compiler

Scope = Mapping[str, int]
Macro = Callable[["Compiler", Call, Scope], Closure]
_STEP: Final = 3
"""Cost of visiting an item, in addition to its part of the expression."""
_APPEND: Final = 10
"""Cost of adding an item to a list or map."""


def find(node: Call) -> Macro | None:
    """The macro that a call stands for, by its name and number of arguments."""
    if node.target is None:
        return _has if (node.function, len(node.args)) == ("has", 1) else None
    if node.function == "bind" and len(node.args) == 3:
        return _bind if isinstance(node.target, Ident) and node.target.name == "cel" else None
    return _METHODS.get((node.function, len(node.args)))


def _has(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
    tested = node.args[0]
    if not isinstance(tested, Select):
        raise compiler.error(node.span, "has() takes a selection, such as has(a.b); for a[b] write b in a")
    operand_of, field = compiler.compile(tested.operand, scope), tested.field

    def run(state: Evaluation) -> bool:
        state.left -= 1
        operand = operand_of(state)
        if isinstance(operand, Optional):
            if not operand.exists:
                return False
            operand = operand.value
        if isinstance(operand, dict):
            return field in operand or hasattr(operand, "__missing__")
        if isinstance(operand, Device):
            return field in DEVICE_FIELDS
        if type(operand) is list:
            raise at(node.span, no_overload("has", "list"))
        return False

    if isinstance(tested.operand, Ident) and tested.operand.name == "device" and "device" not in scope:
        compiler.compile(tested, scope)  # the field must exist
        return lambda state: True
    return run


def _bind(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
    value_of = compiler.compile(node.args[1], scope)
    inner, (place,) = compiler.declare(scope, node.args[0])
    body = compiler.compile(node.args[2], inner)

    def run(state: Evaluation) -> Any:
        state.charge(_STEP)
        try:
            state.variables[place] = value_of(state)
        except Fault as fault:
            state.variables[place] = fault
        return body(state)

    return run


def _visit(compiler: "Compiler", node: Call, scope: Scope, names: int) -> tuple[Scope, Closure, Callable[..., None]]:
    """The scope of the body, and how to get what is visited and to set the variables for an element."""
    inner, places = compiler.declare(scope, *node.args[:names])
    assert node.target is not None
    range_of = compiler.compile(node.target, scope)
    list_of = items_of if names == 1 else entries_of

    def elements(state: Evaluation) -> Any:
        value = range_of(state)
        try:
            state.charge(1 + (len(value) if isinstance(value, list | dict) else 0) // 4)
            return list_of(value)
        except Fault as fault:
            raise at(node.span, fault) from None

    if names == 1:
        first = places[0]

        def set_one(state: Evaluation, value: Any) -> None:
            state.charge(_STEP)
            state.variables[first] = value

        return inner, elements, set_one
    key, item = places

    def set_two(state: Evaluation, entry: tuple[Any, Any]) -> None:
        state.charge(_STEP)
        state.variables[key], state.variables[item] = entry

    return inner, elements, set_two


def _quantifier(names: int, decides: bool) -> Macro:
    """All (a false decides) and exists (a true decides); what decides hides the errors of other items."""

    def macro(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
        inner, elements, assign = _visit(compiler, node, scope, names)
        holds = compiler.compile(node.args[names], inner)

        def run(state: Evaluation) -> bool:
            first: Fault | None = None
            for each in elements(state):
                assign(state, each)
                try:
                    value = holds(state)
                except Fault as fault:
                    first = first or fault
                    continue
                if value is decides:
                    return value is True
                if type(value) is not bool:
                    first = first or at(node.span, no_overload(node.function, type_name(value)))
            if first is not None:
                raise first
            return not decides

        return run

    return macro


def _exactly_one(names: int) -> Macro:
    def macro(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
        inner, elements, assign = _visit(compiler, node, scope, names)
        holds = compiler.compile(node.args[names], inner)

        def run(state: Evaluation) -> bool:
            count = 0
            for each in elements(state):
                assign(state, each)
                count += _bool(node, holds(state))
            return count == 1

        return run

    return macro


def _transform(names: int, has_filter: bool, has_result: bool = True) -> Macro:
    """map, filter and transformList: a list of results, of the items for which the filter holds."""

    def macro(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
        inner, elements, assign = _visit(compiler, node, scope, names)
        holds = compiler.compile(node.args[names], inner) if has_filter else None
        result = compiler.compile(node.args[-1], inner) if has_result else None

        def run(state: Evaluation) -> list[Any]:
            state.charge(_APPEND)
            found = []
            for each in elements(state):
                assign(state, each)
                if holds is None or _bool(node, holds(state)):
                    state.charge(_APPEND)
                    found.append(each if result is None else result(state))
            return found

        return run

    return macro


def _transform_map(has_filter: bool, is_entry: bool) -> Macro:
    """TransformMap (values under the same keys) and transformMapEntry (maps that are merged)."""

    def macro(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
        inner, elements, assign = _visit(compiler, node, scope, 2)
        holds = compiler.compile(node.args[2], inner) if has_filter else None
        result = compiler.compile(node.args[-1], inner)

        def run(state: Evaluation) -> dict[Any, Any]:
            state.charge(_APPEND)
            found: dict[Any, Any] = {}
            for each in elements(state):
                assign(state, each)
                if holds is not None and not _bool(node, holds(state)):
                    continue
                state.charge(_APPEND)
                value = result(state)
                if not is_entry:
                    found[map_key(each[0])] = value
                    continue
                if not isinstance(value, dict):
                    raise at(node.span, Fault(f"transformMapEntry: {type_name(value)} is not a map"))
                state.charge(len(value))
                for key in value:
                    if key in found:
                        raise at(node.span, Fault(f"insert failed: the key {keys_of({key: 0})[0]} already exists"))
                found.update(value)
            return found

        return run

    return macro


def _sort_by(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
    inner, elements, assign = _visit(compiler, node, scope, 1)
    key_of = compiler.compile(node.args[1], inner)

    def run(state: Evaluation) -> Any:
        items, keys = list(elements(state)), []
        for each in items:
            assign(state, each)
            state.charge(_APPEND)
            keys.append(key_of(state))
        try:
            return sorted_by(state, items, keys)
        except Fault as fault:
            raise at(node.span, fault) from None

    return run


def _or(gives_value: bool) -> Macro:
    """`or` and orValue, whose argument is only evaluated if the optional has no value."""

    def macro(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
        assert node.target is not None
        optional_of = compiler.compile(node.target, scope)
        otherwise = compiler.compile(node.args[0], scope)

        def run(state: Evaluation) -> Any:
            state.left -= 1
            optional = optional_of(state)
            if not isinstance(optional, Optional):
                raise at(node.span, no_overload(node.function, type_name(optional)))
            if optional.exists:
                return optional.value if gives_value else optional
            value = otherwise(state)
            if not gives_value and not isinstance(value, Optional):
                raise at(node.span, no_overload(node.function, "optional_type", type_name(value)))
            return value

        return run

    return macro


def _map_optional(is_flat: bool) -> Macro:
    """OptMap and optFlatMap: the result for the value, if there is one."""

    def macro(compiler: "Compiler", node: Call, scope: Scope) -> Closure:
        assert node.target is not None
        optional_of = compiler.compile(node.target, scope)
        inner, (place,) = compiler.declare(scope, node.args[0])
        body = compiler.compile(node.args[1], inner)

        def run(state: Evaluation) -> Any:
            state.charge(_STEP)
            optional = optional_of(state)
            if not isinstance(optional, Optional):
                raise at(node.span, no_overload(node.function, type_name(optional)))
            if not optional.exists:
                return NONE
            state.variables[place] = optional.value
            return body(state) if is_flat else Optional(body(state))

        return run

    return macro


def _bool(node: Node, value: Any) -> bool:
    if not isinstance(value, bool):
        raise at(node.span, Fault(f"the condition is of type {type_name(value)}, not bool"))
    return value


_METHODS: Final[dict[tuple[str, int], Macro]] = {
    ("all", 2): _quantifier(1, decides=False),
    ("all", 3): _quantifier(2, decides=False),
    ("exists", 2): _quantifier(1, decides=True),
    ("exists", 3): _quantifier(2, decides=True),
    **{(name, count): _exactly_one(count - 1) for name in ("exists_one", "existsOne") for count in (2, 3)},
    ("map", 2): _transform(1, has_filter=False),
    ("map", 3): _transform(1, has_filter=True),
    ("filter", 2): _transform(1, has_filter=True, has_result=False),
    ("transformList", 3): _transform(2, has_filter=False),
    ("transformList", 4): _transform(2, has_filter=True),
    ("transformMap", 3): _transform_map(has_filter=False, is_entry=False),
    ("transformMap", 4): _transform_map(has_filter=True, is_entry=False),
    ("transformMapEntry", 3): _transform_map(has_filter=False, is_entry=True),
    ("transformMapEntry", 4): _transform_map(has_filter=True, is_entry=True),
    ("sortBy", 2): _sort_by,
    ("or", 1): _or(gives_value=False),
    ("orValue", 1): _or(gives_value=True),
    ("optMap", 2): _map_optional(is_flat=False),
    ("optFlatMap", 2): _map_optional(is_flat=True),
}
