"""Quotes values of users in messages, cut to a readable length."""

from typing import Final

MAX_LENGTH: Final = 64
"""Characters of a value that are shown."""


def quoted(text: str) -> str:
    """The text in double quotes; one of more than MAX_LENGTH characters is cut and ends with an ellipsis."""
    return f'"{text}"' if len(text) <= MAX_LENGTH else f'"{text[: MAX_LENGTH - 1]}…"'
