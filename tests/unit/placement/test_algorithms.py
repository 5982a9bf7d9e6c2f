"""The dispatch table of algorithms, and the same table in docs/placement.md."""

from pathlib import Path

from muster.placement.solve.algorithms import ALGORITHMS

DOCS = Path(__file__).parents[3] / "docs" / "placement.md"
HEAD = "| group | algorithm | result | complexity | steps |"


def documented() -> list[tuple[str, ...]]:
    lines = DOCS.read_text().splitlines()
    rows = lines[lines.index(HEAD) + 2 :]
    return [
        tuple(cell.strip() for cell in row.strip("|").split("|"))
        for row in rows[: next(i for i, r in enumerate(rows) if not r)]
    ]


def test_the_documented_table_is_the_table_in_the_code() -> None:
    assert documented() == [
        (row.group, row.name, row.result, row.complexity, f"{row.steps:,}" if row.steps else "-") for row in ALGORITHMS
    ]
