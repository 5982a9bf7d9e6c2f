"""Test names state a behaviour in fewer than 80 characters."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
LIMIT = 80
FILES = sorted(TESTS.rglob("test_*.py"))


def names_in(path: Path) -> list[str]:
    """Names of the test functions and methods of a file."""
    functions = (
        each
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef)
    )
    return [each.name for each in functions if each.name.startswith("test_")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_names_are_short(path: Path) -> None:
    assert [name for name in names_in(path) if len(name) >= LIMIT] == []


def test_the_check_sees_every_folder() -> None:
    assert {path.relative_to(TESTS).parts[0] for path in FILES} >= {
        "unit",
        "integration",
        "e2e",
        "simulation",
        "mutation",
    }
