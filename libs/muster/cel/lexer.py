"""Splits an expression into tokens."""

import math
import re
from typing import Any, Final, NamedTuple

from muster.cel.errors import BadExpression
from muster.cel.values import INT_MAX, UINT_MAX, Uint

_PREFIX: Final = r"(?:[rR][bB]?|[bB][rR]?)?"
_TOKEN: Final = re.compile(
    r"(?P<blank>(?:[ \t\r\n\f]+|//[^\n]*)+)"
    r"|(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<int>(?:0x[0-9a-fA-F]+|[0-9]+)[uU]?)"
    rf"|(?P<text>{_PREFIX}(?:'''|\"\"\"|'|\"))"
    r"|(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])"
)
_BODY: Final = {
    # By quotes and whether raw. Every alternative starts with a different character, so matching is linear.
    **{(q, False): re.compile(rf"(?:[^{q}\\\n\r]|\\[^\n\r])*") for q in "'\""},
    **{(q, True): re.compile(rf"[^{q}\n\r]*") for q in "'\""},
    **{(q * 3, False): re.compile(rf"(?:[^{q}\\]|\\.|{q}(?!{q}{q}))*", re.DOTALL) for q in "'\""},
    **{(q * 3, True): re.compile(rf"(?:[^{q}]|{q}(?!{q}{q}))*") for q in "'\""},
}
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.?))",
    re.DOTALL,
)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_INT_DIGITS: Final = 20
"""Decimal digits of the largest integers; longer ones are not converted."""


class Token(NamedTuple):
    """A piece of the expression."""

    kind: str
    """"name", "literal", "end", or the operator or bracket itself."""
    value: Any
    start: int
    end: int


def tokens(expression: str) -> list[Token]:
    """All tokens, with one of kind "end" last. Raises BadExpression."""
    found: list[Token] = []
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise BadExpression(expression, at, f"{expression[at]!r} is not part of CEL")
        kind, text, end = match.lastgroup, match.group(), match.end()
        if kind == "text":
            value, end = _text(expression, at, text)
            found.append(Token("literal", value, at, end))
        elif kind == "float":
            if math.isinf(float(text)):
                raise BadExpression(expression, at, f"the number {text[:40]} is beyond the range of double")
            found.append(Token("literal", float(text), at, end))
        elif kind == "int":
            found.append(Token("literal", _integer(expression, at, text), at, end))
        elif kind == "name":
            if text in _RESERVED:
                raise BadExpression(expression, at, f"{text} is a reserved word")
            literal = text in _CONSTANTS
            found.append(Token("literal" if literal else "in" if text == "in" else "name", text, at, end))
            if literal:
                found[-1] = found[-1]._replace(value=_CONSTANTS[text])
        elif kind == "sign":
            found.append(Token(text, text, at, end))
        at = end
    found.append(Token("end", None, at, at))
    return found


def _integer(expression: str, at: int, text: str) -> int:
    """An int or Uint. One more than the largest int is returned, too: it may follow a minus."""
    unsigned = text[-1] in "uU"
    digits = text.rstrip("uU")
    hexadecimal = digits.startswith("0x")
    significant = digits.removeprefix("0x").lstrip("0") or "0"
    number = int(significant, 16 if hexadecimal else 10) if len(significant) <= _INT_DIGITS else UINT_MAX + 1
    if number > (UINT_MAX if unsigned else INT_MAX + 1):
        raise BadExpression(expression, at, f"the number {text[:40]} is out of range: integers have 64 bits")
    return Uint(number) if unsigned else number


def _text(expression: str, at: int, opening: str) -> tuple[str | bytes, int]:
    prefix = opening.rstrip("'\"").lower()
    quotes = opening[len(prefix) :]
    raw, is_bytes = "r" in prefix, "b" in prefix
    start = at + len(opening)
    match = _BODY[quotes, raw].match(expression, start)
    end = match.end() if match else start
    if not expression.startswith(quotes, end):
        raise BadExpression(expression, at, f"the text is not closed by {quotes}")
    body = expression[start:end]
    text = body if raw else _ESCAPE.sub(lambda escape: _unescaped(escape, expression, start, is_bytes), body)
    if not is_bytes:
        return text, end + len(quotes)
    # Escapes of bytes are kept as lone surrogates until here, so that they differ from encoded characters.
    encoded = b"".join(bytes([ord(each) - 0xDC00]) if 0xDC00 <= ord(each) <= 0xDCFF else each.encode() for each in text)
    return encoded, end + len(quotes)


def _unescaped(escape: re.Match[str], expression: str, start: int, is_bytes: bool) -> str:
    simple, small_x, large_x, four, eight, octal, other = escape.groups()
    at = start + escape.start()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    if other is not None or (is_bytes and (four or eight)):
        raise BadExpression(expression, at, f"{escape.group()!r} is not an escape of CEL; write \\\\ for a backslash")
    code = int(octal, 8) if octal else int(small_x or large_x or four or eight, 16)
    if is_bytes:
        return chr(0xDC00 + code)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise BadExpression(expression, at, f"{escape.group()} is not a Unicode character")
    return chr(code)
