"""Operators and calls, compiled to closures over their operands."""

from collections.abc import Callable
from typing import Any, Final

from muster.cel import arithmetic
from muster.cel.errors import Fault, no_overload
from muster.cel.evaluation import Closure, Evaluation, at
from muster.cel.functions.lists import contains
from muster.cel.tree import Span
from muster.cel.values import OBJECTS, STRING_UNIT, compare, equal, map_key, type_name

_ORDER: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def logic(is_and: bool, terms: list[Closure]) -> Closure:
    """&& or ||: a term that decides hides the errors of others, of earlier ones too."""
    decides = not is_and
    name = "_&&_" if is_and else "_||_"

    def run(state: Evaluation) -> Any:
        first: Fault | None = None
        for term in terms:
            try:
                value = term(state)
            except Fault as fault:
                first = first or fault
                continue
            if value is decides:
                return decides
            if value is not is_and:
                first = first or no_overload(name, type_name(value))
        if first is not None:
            raise first
        return is_and

    return run


def call(span: Span, function: Callable[..., Any], args: list[Closure]) -> Closure:
    """A call of a function with evaluated arguments."""
    if len(args) == 1:
        only = args[0]

        def run_one(state: Evaluation) -> Any:
            value = only(state)
            try:
                return function(state, value)
            except Fault as fault:
                raise at(span, fault) from None

        return run_one

    def run(state: Evaluation) -> Any:
        values = [arg(state) for arg in args]
        try:
            return function(state, *values)
        except Fault as fault:
            raise at(span, fault) from None

    return run


def _equality(expected: bool) -> Callable[[Span, list[Closure]], Closure]:
    def compiled(span: Span, args: list[Closure]) -> Closure:
        left_of, right_of = args

        def run(state: Evaluation) -> Any:
            left, right = left_of(state), right_of(state)
            state.left -= 1
            if type(left) is str and type(right) is str:
                state.left -= min(len(left), len(right)) // STRING_UNIT
                return (left == right) is expected
            try:
                if expected and type(left) in OBJECTS and type(left) is not type(right):
                    raise no_overload("_==_", type_name(left), type_name(right))
                return equal(state, left, right) is expected
            except Fault as fault:
                raise at(span, fault) from None

        return run

    return compiled


def _ordering(sign: str) -> Callable[[Span, list[Closure]], Closure]:
    holds = _ORDER[sign]

    def ordered(state: Evaluation, left: Any, right: Any) -> bool:
        state.left -= 1
        return holds(compare(state, f"_{sign}_", left, right))

    return lambda span, args: call(span, ordered, args)


def _arithmetic(sign: str) -> Callable[[Span, list[Closure]], Closure]:
    operate = arithmetic.OPERATORS[sign]

    def operated(state: Evaluation, left: Any, right: Any) -> Any:
        state.charge(1)
        return operate(state, left, right)

    return lambda span, args: call(span, operated, args)


def _in(state: Evaluation, item: Any, container: Any) -> bool:
    state.left -= 1
    if isinstance(container, dict):
        try:
            return map_key(item) in container
        except Fault:
            return False
    if type(container) is list:
        return contains(state, item, container)
    raise no_overload("_in_", type_name(item), type_name(container))


def _not(state: Evaluation, value: Any) -> bool:
    state.left -= 1
    if type(value) is bool:
        return not value
    raise no_overload("!_", type_name(value))


def _minus(state: Evaluation, value: Any) -> Any:
    state.left -= 1
    return arithmetic.negate(value)


OPERATORS: Final[dict[str, Callable[[Span, list[Closure]], Closure]]] = {
    "==": _equality(True),
    "!=": _equality(False),
    **{sign: _ordering(sign) for sign in _ORDER},
    **{sign: _arithmetic(sign) for sign in arithmetic.OPERATORS},
    "in": lambda span, args: call(span, _in, args),
    "!_": lambda span, args: call(span, _not, args),
    "-_": lambda span, args: call(span, _minus, args),
}
