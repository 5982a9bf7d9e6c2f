"""Values of users in sentences for users: in quotes, and never longer than helps."""

from typing import Final

LONGEST: Final = 64
"""Characters of a value that are shown."""


def quoted(text: str) -> str:
    """The text in double quotes; one that is longer than LONGEST characters ends with an ellipsis."""
    return f'"{text}"' if len(text) <= LONGEST else f'"{text[: LONGEST - 1]}…"'
