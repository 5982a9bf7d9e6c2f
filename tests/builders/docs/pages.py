"""Blocks of a documentation page, by section and language."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[3] / "docs"

_FENCE = re.compile(r"^ *```([a-z]*) *$")
_HEADING = re.compile(r"^#+ (.+)$")


@dataclass(frozen=True)
class Block:
    """The text between two fences."""

    section: str
    """The heading above it."""
    language: str
    text: str
    line: int
    """Number of its first line in the page."""


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    found: list[Block] = []
    section, opened, language = "", 0, ""
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if opened and fence:
            found.append(Block(section, language, "\n".join(lines[opened : number - 1]) + "\n", opened + 1))
            opened = 0
        elif fence:
            opened, language = number, fence[1]
        elif not opened and (heading := _HEADING.match(line)):
            section = heading[1]
    return found


def block(page: Path, section: str, language: str = "console") -> Block:
    """The only block of a language in a section."""
    [found] = [each for each in blocks_of(page) if (each.section, each.language) == (section, language)]
    return found
