"""Errors of compiling and evaluating expressions."""

from collections.abc import Collection
from typing import Final

from muster.gangs.quoting import printable, quoted

_MOST_KEYS: Final = 12
"""Keys of a map that a message lists."""


class BadExpression(ValueError):
    """The expression does not compile; every device selection that uses it fails."""

    def __init__(self, expression: str, position: int, reason: str) -> None:
        self.expression = expression
        self.position = position
        """Offset of the first wrong character, in characters from 0."""
        self.reason = reason
        super().__init__(f"CEL expression {quoted(expression)} is invalid at character {position + 1}: {reason}")


class EvaluationFailed(Exception):
    """The expression has no result for a device: an error that no && or || absorbed, or its cost limit."""

    def __init__(self, expression: str, part: str, reason: str, cost: int = 0) -> None:
        self.expression = expression
        self.part = part
        """The smallest part of the expression that failed."""
        self.reason = reason
        self.cost = cost
        """Units spent until then."""
        where = "" if part == expression else f" in {quoted(part)}"
        super().__init__(f"CEL expression {quoted(expression)} failed{where}: {reason}")


class CostLimitExceeded(EvaluationFailed):
    """The evaluation was ended at its cost limit; the device is neither selected nor excluded."""


class Fault(Exception):
    """An error value of CEL: && and || absorb it if their other side decides."""

    def __init__(self, reason: str, keys: Collection[object] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.span: tuple[int, int] | None = None
        """The part of the expression, set by the innermost call or access that raised it."""
        self._keys = keys

    def again(self) -> "Fault":
        """The same fault to be raised once more: an exception collects the frames of every raise."""
        fault = Fault(self.reason, self._keys)
        fault.span = self.span
        return fault

    def message(self) -> str:
        """The reason, and for a missing key those that exist."""
        if self._keys is None:
            return self.reason
        existing = sorted(str(each) for each in self._keys)
        shown = printable(", ".join(existing[:_MOST_KEYS])) + (", …" if len(existing) > _MOST_KEYS else "")
        return f"{self.reason} (the map has {shown or 'no keys'}); test for it with has() or in"


class OverBudget(Exception):
    """The cost limit is reached; no operator absorbs it."""


def no_overload(function: str, *type_names: str) -> Fault:
    """The fault of an operator or function that is not defined for these types."""
    return Fault(f"no such overload: {function}({', '.join(type_names)})")
