"""The syntax tree of an expression."""

from dataclasses import dataclass
from typing import Any

Span = tuple[int, int]
"""First character of a node, and the one behind its last."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    span: Span
    value: Any


@dataclass(frozen=True, slots=True)
class Ident:
    """A variable."""

    span: Span
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; optional: `operand.?field`."""

    span: Span
    operand: "Node"
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[index]`; optional: `operand[?index]`."""

    span: Span
    operand: "Node"
    index: "Node"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`function(args)`, `target.function(args)`, or an operator with its sign as the function."""

    span: Span
    function: str
    target: "Node | None"
    args: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Logic:
    """Terms that are joined by && or ||."""

    span: Span
    is_and: bool
    terms: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Conditional:
    """`condition ? then : otherwise`."""

    span: Span
    condition: "Node"
    then: "Node"
    otherwise: "Node"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; an optional item is left out if it has no value."""

    span: Span
    items: "tuple[tuple[Node, bool], ...]"
    """Item, and whether it is optional."""


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map; an optional entry is left out if it has no value."""

    span: Span
    entries: "tuple[tuple[Node, Node, bool], ...]"
    """Key, value, and whether it is optional."""


Node = Literal | Ident | Select | Index | Call | Logic | Conditional | ListOf | MapOf


def children(node: Node) -> "tuple[Node, ...]":
    """The direct parts of a node."""
    match node:
        case Select(operand=operand):
            return (operand,)
        case Index(operand=operand, index=index):
            return (operand, index)
        case Call(target=target, args=args):
            return args if target is None else (target, *args)
        case Logic(terms=terms):
            return terms
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case ListOf(items=items):
            return tuple(item for item, _ in items)
        case MapOf(entries=entries):
            return tuple(part for key, value, _ in entries for part in (key, value))
        case _:
            return ()
