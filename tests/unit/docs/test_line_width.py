"""Lines of Markdown wrap at 100 columns; tables, code and lines that are one link may be longer."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.docs.pages import DOCS

ROOT = DOCS.parent
WIDTH = 100
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    ROOT / "deploy/helm/muster/README.md",
]
_FENCE = re.compile(r"^ *```")
_UNBREAKABLE = re.compile(r"^ *(\||#|[^ ]+$)|^ {4,}")


def long_lines(text: str) -> Iterator[str]:
    """Lines of prose beyond the width."""
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and len(line) > WIDTH and not _UNBREAKABLE.match(line):
            yield line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_wraps_at_100_columns(page: Path) -> None:
    assert list(long_lines(page.read_text())) == []


def test_only_prose_is_measured() -> None:
    long = "word " * 30
    page = f"{long}\n| {long} |\n```\n{long}\n```\n# {long}\n"
    assert list(long_lines(page)) == [long]
