"""Quotes values of users in messages, cut to a readable length."""

from collections.abc import Sequence
from typing import Final

MAX_LISTED: Final = 10
"""Problems that are shown together."""
MAX_LENGTH: Final = 64
"""Characters of a value that are shown."""


def quoted(text: str) -> str:
    """The text in double quotes, printable; one of more than MAX_LENGTH characters is cut and ends with an ellipsis."""
    return f'"{printable(text)}"' if len(text) <= MAX_LENGTH else f'"{printable(text[: MAX_LENGTH - 1])}…"'


def listed(problems: Sequence[str]) -> str:
    """Problems as one text, the first MAX_LISTED of them."""
    if len(problems) <= MAX_LISTED:
        return "; ".join(problems)
    return "; ".join([*problems[:MAX_LISTED], f"and {len(problems) - MAX_LISTED} more"])


def printable(text: str) -> str:
    """The text with what is not printable escaped as in a Python literal: terminals obey control characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
