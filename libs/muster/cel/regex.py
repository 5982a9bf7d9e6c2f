"""Regular expressions in linear time (RE2), with a cost for the size of their program."""

from typing import Final

import re2

from muster.cel.budget import Budget
from muster.cel.errors import Fault
from muster.cel.values import STRING_UNIT
from muster.gangs.quoting import quoted

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 18
"""Bytes of a compiled expression and its state; larger programs are refused. The library keeps the last 128."""
_INSTRUCTIONS: Final = 4
"""Instructions of a program that cost one unit for ten bytes of the text: about 0.25 microseconds."""
_SEARCH: Final = 4
"""Cost of a search in a short text."""
_COMPILATION: Final = 50
"""Cost of compiling a short expression during an evaluation, in addition to that of its program."""


class Pattern:
    """A compiled regular expression. Raises Fault if it is invalid."""

    __slots__ = ("_cost", "_program")

    def __init__(self, text: str) -> None:
        try:
            encoded = text.encode()
            self._program = re2.compile(encoded, _OPTIONS)
        except re2.error as error:
            detail = error.args[0] if error.args else b""
            reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
            raise Fault(f"{quoted(text)} is not a regular expression of RE2: {reason}") from None
        self._cost = max(-(-len(encoded) // 4), self._program.programsize // _INSTRUCTIONS, 1)

    @classmethod
    def compiled(cls, budget: Budget, text: str) -> "Pattern":
        """A pattern that is only known during an evaluation. Raises Fault, OverBudget."""
        budget.charge(_COMPILATION + len(text))
        pattern = cls(text)
        budget.charge(pattern._cost)
        return pattern

    def matches(self, budget: Budget, text: str) -> bool:
        """Whether a part of the text matches."""
        budget.charge(_SEARCH + (1 + len(text) // STRING_UNIT) * self._cost)
        return self._program.search(text.encode()) is not None

    def find(self, budget: Budget, text: str) -> str:
        """The first match, or the empty string."""
        budget.charge(_SEARCH + (1 + len(text) // STRING_UNIT) * self._cost)
        match = self._program.search(text.encode())
        return "" if match is None else _text(match.group())

    def find_all(self, budget: Budget, text: str, limit: int) -> list[str]:
        """Matches from left to right that do not overlap; a negative limit: all."""
        encoded = text.encode()
        found: list[str] = []
        at, last = 0, -1
        while len(found) != limit and at <= len(encoded):
            budget.charge(_SEARCH + (1 + (len(encoded) - at) // STRING_UNIT) * self._cost)
            match = self._program.search(encoded, at)
            if match is None:
                break
            start, end = match.span()
            if start != end or start != last:  # no empty match right behind a match
                found.append(_text(match.group()))
            last = end
            at = end if end > start else _next_character(encoded, end)
        return found


def _text(matched: bytes) -> str:
    return matched.decode(errors="replace")


def _next_character(encoded: bytes, at: int) -> int:
    at += 1
    while at < len(encoded) and encoded[at] & 0xC0 == 0x80:
        at += 1
    return at
