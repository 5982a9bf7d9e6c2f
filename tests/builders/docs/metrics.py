"""The metrics that docs/metrics.md lists."""

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "metrics.md"
_ROW: Final = re.compile(r"\| `([a-z_]+)` \| (counter|gauge|histogram) \| ([^|]*) \| .+ \|")


class Documented(NamedTuple):
    """A row of the tables."""

    section: str
    kind: str
    labels: frozenset[str]


def documented_metrics() -> dict[str, Documented]:
    """All rows, by name of the metric."""
    found, section = {}, ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("### "):
            section = line.removeprefix("### ")
        elif row := _ROW.fullmatch(line):
            labels = frozenset(label.strip("` ") for label in row[3].split(",") if label.strip())
            found[row[1]] = Documented(section, row[2], labels)
    return found


def series_of(name: str) -> str:
    """The metric of a series: histograms have three kinds of series."""
    return re.sub(r"_(bucket|count|sum)$", "", name)
