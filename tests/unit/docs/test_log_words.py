"""Log events and reasons that pages quote exist in the services."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from builders.docs.pages import DOCS

ROOT = DOCS.parent
PAGES = ("alerts.md", "operations.md")
_FENCED = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r'"([^"\n]+)"')
_LOG_EVENT = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
_PHRASE_END = re.compile(r"[.?]\s|\|")


def quoted(page: str) -> list[str]:
    """Quoted words, split where the page elides some."""
    text = _FENCED.sub("", (DOCS / page).read_text())
    return [part for each in _QUOTED.findall(text) for part in each.split(" ... ")]


def log_events(page: str) -> list[str]:
    """Names of log events: snake_case names in a sentence or table cell that mentions a log."""
    phrases = _PHRASE_END.split((DOCS / page).read_text())
    return [name for phrase in phrases if re.search(r"\blogs?\b", phrase) for name in _LOG_EVENT.findall(phrase)]


@cache
def string_literals() -> tuple[str, ...]:
    """All string literals in the sources, with a line break for each interpolated value."""
    sources = chain((ROOT / "libs").rglob("*.py"), (ROOT / "services").rglob("*.py"))
    return tuple(text for source in sources for text in _texts(ast.parse(source.read_text())))


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "\n" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def is_said(words: str) -> bool:
    if any(words in text for text in string_literals()):
        return True
    given = (re.escape(text).replace("\\\n", r"\S+") for text in string_literals() if text.startswith("\n "))
    return any(re.fullmatch(pattern, words) for pattern in given)


@pytest.mark.parametrize("page", PAGES)
def test_documented_log_events_exist(page: str) -> None:
    assert log_events(page)
    assert [words for words in quoted(page) if not is_said(words)] == []
    assert [name for name in log_events(page) if name not in string_literals()] == []


def test_an_unknown_log_event_is_detected() -> None:
    assert is_said("watch_failed")
    assert not is_said("watch_has_failed")
    assert not is_said("the solver is tired")
