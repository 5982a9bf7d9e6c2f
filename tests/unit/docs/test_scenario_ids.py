"""Scenario ids and invariants in names of tests are listed in the documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
_TEST = re.compile(r"def (test_((?:[gp]\d{2}|i\d{1,2})(?:_|\())\w*)")
_ROW = re.compile(r"^\| ([GPI]\d{1,2}) ", re.MULTILINE)


def test_ids_in_names_of_tests_are_documented() -> None:
    pages = (ROOT / "docs" / name for name in ("test-scenarios.md", "architecture.md"))
    documented = {found.lower() for page in pages for found in _ROW.findall(page.read_text())}
    named = {
        found[2].strip("_("): found[1]
        for path in (ROOT / "tests").rglob("test_*.py")
        for found in _TEST.finditer(path.read_text())
    }
    assert len(named) > 50
    unknown = {id_: test for id_, test in named.items() if id_ not in documented}
    assert not unknown, f"add rows to docs/test-scenarios.md or the invariants of docs/architecture.md: {unknown}"
