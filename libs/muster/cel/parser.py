"""Parses an expression into its syntax tree, with bounded nesting."""

from typing import Final

from muster.cel.errors import BadExpression
from muster.cel.lexer import Token, tokens
from muster.cel.tree import Call, Conditional, Ident, Index, ListOf, Literal, Logic, MapOf, Node, Select, Span, children
from muster.cel.values import INT_MAX

MAX_NESTING: Final = 100
"""Depth of brackets and of the tree: parsing and evaluating recurse, within Python's limit of 1,000 calls."""

_PRECEDENCE: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}


def parse(expression: str) -> Node:
    """The tree of an expression, at most MAX_NESTING deep. Raises BadExpression."""
    return _Parser(expression).parse()


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = tokens(expression)
        self._at = 0
        self._recursion = 0
        self._depths: dict[int, int] = {}
        """Depth of each node by id; nodes live as long as the parser, in `_nodes`."""
        self._nodes: list[Node] = []

    def parse(self) -> Node:
        node = self._conditional()
        if self._next.kind != "end":
            raise self._unexpected()
        return node

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, kind: str) -> bool:
        """Whether the next token is of this kind; if so it is consumed."""
        if self._tokens[self._at].kind != kind:
            return False
        self._at += 1
        return True

    def _require(self, kind: str) -> Token:
        token = self._next
        if not self._take(kind):
            raise self._unexpected(f"{kind} is expected")
        return token

    def _unexpected(self, expected: str = "an operand or operator is expected") -> BadExpression:
        token = self._next
        found = "the end" if token.kind == "end" else self._expression[token.start : token.end][:40]
        return BadExpression(self._expression, token.start, f"syntax error at {found}: {expected}")

    def _span(self, start: int) -> Span:
        return (start, self._tokens[self._at - 1].end)

    def _made(self, node: Node) -> Node:
        depth = 1 + max((self._depths[id(each)] for each in children(node)), default=0)
        if depth > MAX_NESTING:
            raise self._too_deep(node.span[0])
        self._nodes.append(node)
        self._depths[id(node)] = depth
        return node

    def _too_deep(self, at: int) -> BadExpression:
        return BadExpression(self._expression, at, f"more than {MAX_NESTING} levels of nesting; split the expression")

    def _conditional(self) -> Node:
        branches: list[tuple[int, Node, Node]] = []
        while True:
            start = self._next.start
            node = self._binary(1)
            if not self._take("?"):
                break
            then = self._binary(1)
            self._require(":")
            branches.append((start, node, then))
        for start, condition, then in reversed(branches):
            node = self._made(Conditional(self._span(start), condition, then, node))
        return node

    def _binary(self, lowest: int) -> Node:
        start = self._next.start
        self._recursion += 1
        if self._recursion > MAX_NESTING:
            raise self._too_deep(start)
        left = self._unary()
        while (precedence := _PRECEDENCE.get(self._next.kind, 0)) >= lowest:
            operator = self._next.kind
            if operator in ("&&", "||"):
                terms = [left]
                while self._take(operator):
                    terms.append(self._binary(precedence + 1))
                left = self._made(Logic(self._span(start), operator == "&&", tuple(terms)))
            else:
                self._at += 1
                right = self._binary(precedence + 1)
                left = self._made(Call(self._span(start), operator, None, (left, right)))
        self._recursion -= 1
        return left

    def _unary(self) -> Node:
        start = self._next.start
        sign = self._next.kind
        if sign not in ("!", "-"):
            return self._member(start, self._primary())
        count = 0
        while self._take(sign):
            count += 1
        literal = self._next
        if sign == "-" and literal.kind == "literal" and type(literal.value) in (int, float):
            self._at += 1
            count -= 1
            node = self._member(start, self._made(Literal(self._span(literal.start - 1), -literal.value)))
        elif self._next.kind in ("!", "-"):
            raise self._unexpected("an operand is expected; write brackets around it")
        else:
            node = self._member(self._next.start, self._primary())
        for _ in range(min(count, 2 - count % 2)):  # !!!x is !x, and !!x still requires a bool
            node = self._made(Call(self._span(start), f"{sign}_", None, (node,)))
        return node

    def _member(self, start: int, node: Node) -> Node:
        while True:
            if self._take("."):
                optional = self._take("?")
                name = self._require("name").value
                if not optional and self._take("("):
                    args = self._arguments()
                    node = self._made(Call(self._span(start), name, node, args))
                else:
                    node = self._made(Select(self._span(start), node, name, optional))
            elif self._take("["):
                optional = self._take("?")
                index = self._conditional()
                self._require("]")
                node = self._made(Index(self._span(start), node, index, optional))
            else:
                return node

    def _primary(self) -> Node:
        token = self._next
        start = token.start
        self._at += 1
        match token.kind:
            case "literal":
                if type(token.value) is int and token.value > INT_MAX:
                    raise BadExpression(self._expression, start, "the number is out of range: integers have 64 bits")
                return self._made(Literal(self._span(start), token.value))
            case "name":
                if self._take("("):
                    return self._made(Call(self._span(start), token.value, None, self._arguments()))
                return self._made(Ident(self._span(start), token.value))
            case "(":
                node = self._conditional()
                self._require(")")
                return node
            case "[":
                return self._list(start)
            case "{":
                return self._map(start)
            case ".":
                name = self._require("name").value
                if self._take("("):
                    return self._made(Call(self._span(start), name, None, self._arguments()))
                return self._made(Ident(self._span(start), name))
            case _:
                self._at -= 1
                raise self._unexpected("an operand is expected")

    def _arguments(self) -> tuple[Node, ...]:
        args: list[Node] = []
        if self._take(")"):
            return ()
        while True:
            args.append(self._conditional())
            if self._take(")"):
                return tuple(args)
            self._require(",")

    def _list(self, start: int) -> Node:
        items: list[tuple[Node, bool]] = []
        while not self._take("]"):
            optional = self._take("?")
            items.append((self._conditional(), optional))
            if not self._take(","):
                self._require("]")
                break
        return self._made(ListOf(self._span(start), tuple(items)))

    def _map(self, start: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._take("}"):
            optional = self._take("?")
            key = self._conditional()
            self._require(":")
            entries.append((key, self._conditional(), optional))
            if not self._take(","):
                self._require("}")
                break
        return self._made(MapOf(self._span(start), tuple(entries)))
