"""The table of docs/gang-rules.md has every mark and field that the dialects read, and nothing else."""

from typing import Any

import pytest

from builders.pages import DOCS
from muster.dialects import coscheduling, kube_batch, native, own_marks, sakkara
from muster.dialects.declared import QUOTA_WAITS
from muster.dialects.marks import Definition
from muster.dialects.registry import DIALECTS, Dialect

ANY = "any"
BESIDES = {
    sakkara.NAME: {sakkara.GROUP_LABEL, sakkara.CONSTRAINT_LABELS},
    native.NAME: {native.FIELD},
    coscheduling.NAME: {QUOTA_WAITS},
    kube_batch.NAME: {QUOTA_WAITS},
}
MARKS = ("label", "annotation", "beginning of labels", "field")


class Watched(dict[str, Any]):
    """A spec that remembers which of its fields are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def rows() -> list[list[str]]:
    lines = (DOCS / "gang-rules.md").read_text().partition("\n## All marks\n")[2].split("\n## ")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return table[2:]


def marks_of(dialect: str) -> set[str]:
    return {mark.strip("`") for mark, where, of, *_ in rows() if where.startswith(MARKS) and dialect in names(of)}


def fields_of(dialect: str) -> set[str]:
    told = (mark.strip("`") for mark, where, of, *_ in rows() if not where.startswith(MARKS) and dialect in names(of))
    return {field.partition(".")[0] for field in told}


def names(dialects: str) -> set[str]:
    return set(dialects.lower().split(", "))


def fields_read_by(dialect: Dialect) -> set[str]:
    kind = dialect.DEFINITION
    if kind is None:
        return set()
    spec = Watched()
    dialect.read("default", "gang", Definition(kind.api_version, kind.kind, "default", "gang", spec=spec), ())
    return spec.asked


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.NAME)
def test_every_mark_that_a_dialect_reads_is_in_the_table_and_no_other(dialect: Dialect) -> None:
    assert marks_of(dialect.NAME) == dialect.LABELS | dialect.ANNOTATIONS | BESIDES.get(dialect.NAME, set())


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.NAME)
def test_every_field_that_a_dialect_reads_is_in_the_table_and_no_other(dialect: Dialect) -> None:
    assert fields_of(dialect.NAME) == fields_read_by(dialect)


def test_the_annotations_of_any_dialect_are_in_the_table_and_no_others() -> None:
    assert marks_of(ANY) == own_marks.ANNOTATIONS


def test_every_row_is_of_a_dialect_that_there_is() -> None:
    assert {name for row in rows() for name in names(row[2])} == {ANY, *(dialect.NAME for dialect in DIALECTS)}
