"""Compiles a syntax tree to closures."""

from collections.abc import Mapping
from typing import Any, Final

from muster.cel import macros
from muster.cel.access import access
from muster.cel.device import Device
from muster.cel.errors import BadExpression, Fault, OverBudget, no_overload
from muster.cel.evaluation import Closure, Evaluation, at
from muster.cel.functions.overloads import Function
from muster.cel.functions.table import FUNCTIONS, METHODS, NAMESPACES, UNSUPPORTED
from muster.cel.operators import OPERATORS, call, logic
from muster.cel.paths import DEVICE_FIELDS, path_of, read_path
from muster.cel.regex import Pattern
from muster.cel.tree import Call, Conditional, Ident, Index, ListOf, Literal, Logic, MapOf, Node, Select, Span
from muster.cel.values import TYPES, Domains, Optional, TypeValue, map_key, type_name

Scope = Mapping[str, int]
"""Local variables, by name, with their place in `Evaluation.variables`."""
LIST_COST: Final = 10
"""Cost of making a list."""
MAP_COST: Final = 30
"""Cost of making a map."""
_CONSTANT_FUNCTIONS: Final = frozenset(("quantity", "semver"))
"""Functions that are evaluated once if their arguments are constants."""
_FOLDING: Final = 10_000
"""Cost limit of such an evaluation."""
_REGEX: Final = frozenset(("matches", "find", "findAll"))


class Compiler:
    """Compiles one expression."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self.variables = 0
        """Places that an evaluation needs for local variables."""

    def error(self, span: Span, reason: str) -> BadExpression:
        return BadExpression(self._expression, span[0], reason)

    def declare(self, scope: Scope, *names: Node) -> tuple[Scope, list[int]]:
        """The scope with more variables, which must be plain names, and their places. Raises BadExpression."""
        inner, places = dict(scope), []
        place = max(scope.values(), default=-1)
        for name in names:
            if not isinstance(name, Ident):
                raise self.error(name.span, "the name of a variable is expected")
            place += 1
            inner[name.name] = place
            places.append(place)
        self.variables = max(self.variables, place + 1)
        return inner, places

    def compile(self, node: Node, scope: Scope) -> Closure:
        """The closure that evaluates a node. Raises BadExpression."""
        match node:
            case Literal():
                return _constant(node.value)
            case Ident():
                return self._ident(node, scope)
            case Select() | Index():
                return self._access(node, scope)
            case Call():
                return self._call(node, scope)
            case Logic():
                return logic(node.is_and, [self.compile(each, scope) for each in node.terms])
            case Conditional():
                return self._choice(node, scope)
            case ListOf():
                return self._list(node, scope)
            case MapOf():
                return self._map(node, scope)

    def _ident(self, node: Ident, scope: Scope) -> Closure:
        if node.name in scope:
            return _variable(scope[node.name])
        if node.name == "device":
            return _device
        if node.name in TYPES:
            return _constant(TypeValue(node.name))
        raise self.error(node.span, f"there is no variable {node.name}; the only one is device")

    def _access(self, node: Select | Index, scope: Scope) -> Closure:
        if (path := path_of(node)) and "device" not in scope:
            if path[0] not in DEVICE_FIELDS:
                fields = ", ".join(DEVICE_FIELDS)
                raise self.error(node.span, f"device has no field {path[0]}; fields are {fields}")
            return read_path(node.span, path)
        operand = self.compile(node.operand, scope)
        index = self.compile(node.index, scope) if isinstance(node, Index) else _constant(node.field)
        return access(node.span, operand, index, node.optional, isinstance(node, Select))

    def _choice(self, node: Conditional, scope: Scope) -> Closure:
        condition, then, otherwise = (self.compile(each, scope) for each in (node.condition, node.then, node.otherwise))

        def run(state: Evaluation) -> Any:
            value = condition(state)
            if value is True:
                return then(state)
            if value is False:
                return otherwise(state)
            raise at(node.span, no_overload("_?_:_", type_name(value)))

        return run

    def _list(self, node: ListOf, scope: Scope) -> Closure:
        items = [(self.compile(item, scope), optional) for item, optional in node.items]

        def run(state: Evaluation) -> Any:
            state.charge(LIST_COST)
            found = []
            for item, optional in items:
                value = item(state)
                if not optional:
                    found.append(value)
                elif _optional(node.span, value).exists:
                    found.append(value.value)
            return found

        return run

    def _map(self, node: MapOf, scope: Scope) -> Closure:
        entries = [(self.compile(key, scope), self.compile(value, scope), opt) for key, value, opt in node.entries]

        def run(state: Evaluation) -> Any:
            state.charge(MAP_COST)
            found: dict[Any, Any] = {}
            for key_of, value_of, optional in entries:
                try:
                    key = map_key(key_of(state))
                except Fault as fault:
                    raise at(node.span, fault) from None
                value = value_of(state)
                if not optional:
                    found[key] = value
                elif _optional(node.span, value).exists:
                    found[key] = value.value
            return found

        return run

    def _call(self, node: Call, scope: Scope) -> Closure:
        if (macro := macros.find(node)) is not None:
            return macro(self, node, scope)
        if node.function in OPERATORS:
            return OPERATORS[node.function](node.span, [self.compile(each, scope) for each in node.args])
        target = node.target
        if isinstance(target, Ident) and target.name in NAMESPACES and target.name not in scope:
            function, nodes = FUNCTIONS.get(f"{target.name}.{node.function}"), node.args
        elif target is None:
            function, nodes = FUNCTIONS.get(node.function), node.args
        else:
            function, nodes = METHODS.get(node.function), (target, *node.args)
        if function is None or not function.takes(len(nodes)):
            raise self.error(node.span, _unknown_function(node, function))
        args = [self.compile(each, scope) for each in nodes]
        if node.function in _REGEX and isinstance(nodes[1], Literal) and isinstance(nodes[1].value, str):
            try:
                return _regex(node.span, node.function, Pattern(nodes[1].value), args)
            except Fault as fault:
                raise self.error(nodes[1].span, fault.reason) from None
        if node.function in _CONSTANT_FUNCTIONS and all(isinstance(each, Literal) for each in nodes):
            return _folded(call(node.span, function, args))
        return call(node.span, function, args)


def _unknown_function(node: Call, function: Function | None) -> str:
    if function is not None:
        return f"{node.function} does not take {len(node.args)} arguments"
    if node.function in UNSUPPORTED:
        return f"the function {node.function} is not supported by Muster"
    return f"there is no function {node.function}"


def _folded(closure: Closure) -> Closure:
    """The result as a constant with the same cost, unless it is an error."""
    state = Evaluation(_FOLDING, Device("", Domains(), Domains()), 0)
    try:
        value = closure(state)
    except (Fault, OverBudget):
        return closure
    cost = _FOLDING - state.left

    def run(state: Evaluation) -> Any:
        state.left -= cost
        return value

    return run


def _constant(value: Any) -> Closure:
    return lambda state: value


def _variable(place: int) -> Closure:
    def run(state: Evaluation) -> Any:
        state.left -= 1
        value = state.variables[place]
        if type(value) is Fault:  # of a binding: it fails where it is used
            raise value.again()
        return value

    return run


def _device(state: Evaluation) -> Any:
    state.left -= 1
    return state.device


def _optional(span: Span, value: Any) -> Optional:
    if isinstance(value, Optional):
        return value
    raise at(span, Fault(f"{type_name(value)} is not an optional value"))


def _regex(span: Span, name: str, pattern: Pattern, args: list[Closure]) -> Closure:
    def apply(state: Evaluation, text: Any, _: Any, limit: Any = -1) -> Any:
        if type(text) is not str or type(limit) is not int:
            raise no_overload(name, type_name(text), "string")
        if name == "matches":
            return pattern.matches(state, text)
        return pattern.find(state, text) if name == "find" else pattern.find_all(state, text, limit)

    return call(span, apply, args)
