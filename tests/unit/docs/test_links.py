"""Links of the documentation resolve, and every page is linked from the index."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from builders.docs.pages import DOCS

ROOT = DOCS.parent
INDEX = DOCS / "README.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    ROOT / "deploy" / "helm" / "muster" / "README.md",
]
_FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^]\[]*]\(([^)\s]+)\)")
_LINK_TEXT = re.compile(r"\[([^]]*)]\([^)]*\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z]+:")


def links(page: Path) -> list[str]:
    found = _LINK.findall(_CODE.sub("code", _FENCED.sub("", page.read_text())))
    return [link for link in found if not _ELSEWHERE.match(link)]


def anchors(page: Path) -> set[str]:
    """Anchors of its headings, as GitHub generates them."""
    found: set[str] = set()
    text = _FENCED.sub("", page.read_text())
    for heading in _HEADING.findall(text):
        plain = _LINK_TEXT.sub(r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (numbered := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(numbered)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def problem(page: Path, link: str) -> str:
    """Why a link does not resolve; empty if it does."""
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: there is no such file"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target)):
        return f"{link}: there is no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_resolve(page: Path) -> None:
    assert [wrong for link in links(page) if (wrong := problem(page, link))] == []


def test_every_page_is_in_the_index() -> None:
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in links(INDEX)}
    assert [page.name for page in sorted(DOCS.glob("*.md")) if page != INDEX and page not in listed] == []
    assert DOCS / "decisions" in listed


def test_heading_anchors_follow_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`: c, [d](e.md)\n## Same\n## Same\n```\n# no heading\n```\n## muster_x - y\n")
    assert anchors(page) == {"a-b-c-d", "same", "same-1", "muster_x---y"}


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("none.md", "there is no such file"),
        ("#no-such", "there is no such heading"),
        ("../../x", "there is no such file"),
        ("#documentation", ""),
    ],
)
def test_a_broken_link_is_detected(link: str, why: str) -> None:
    assert why in problem(INDEX, link)
    assert bool(problem(INDEX, link)) == bool(why)
