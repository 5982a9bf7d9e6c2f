"""Writes the tables of docs/metrics.md from the declarations.

python tools/metrics_page.py prints the page; `--write` writes it to docs/metrics.md.
"""

import argparse
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from muster.telemetry.instruments import Counter, Histogram
from muster.telemetry.metrics import Sampled

PAGE: Final = Path(__file__).parents[1] / "docs" / "metrics.md"
_BEGIN, _END = "<!-- tables: made by tools/metrics_page.py -->", "<!-- end of tables -->"

SECTIONS: Final[Sequence[tuple[str, Sequence[str]]]] = (
    (
        "Every service",
        (
            "muster.telemetry.metrics",
            "muster.telemetry.metrics_server",
            "muster.rpc.call_metrics",
            "muster.rpc.credentials",
        ),
    ),
    ("Services that follow cluster-state: coordinator, placement, forecast, console", ("muster.rpc.subscription",)),
    ("coordinator", ("muster.coordinator.metrics", "muster.etcd.metrics")),
    ("placement", ("muster.placement.metrics",)),
    ("binding", ("muster.binding.metrics",)),
    ("cluster-state", ("muster.clusterstate.metrics",)),
    ("lifecycle", ("muster.lifecycle.metrics",)),
    ("forecast", ("muster.forecast.metrics",)),
    ("console", ("muster.console.metrics",)),
    ("Services that talk to the API server: cluster-state, binding, lifecycle, console", ("muster.kube.metrics",)),
)

Declared = Counter | Histogram | Sampled


def declared(module: str) -> Iterator[Declared]:
    """Metrics that a module declares, in order."""
    imported = importlib.import_module(module)
    yield from (value for value in vars(imported).values() if isinstance(value, Declared))


def kind(metric: Declared) -> str:
    """Its Prometheus type."""
    if isinstance(metric, Histogram):
        return "histogram"
    return "counter" if isinstance(metric, Counter) or metric.monotonic else "gauge"


def table(modules: Sequence[str]) -> str:
    """Rows of all metrics that the modules declare."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for module in modules:
        for metric in declared(module):
            labels = ", ".join(f"`{name}`" for name in metric.label_names)
            meaning = metric.help_text.replace("|", "\\|").replace("<", "&lt;")
            rows.append(f"| `{metric.name}` | {kind(metric)} | {labels} | {meaning} |")
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with current tables."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    tables = "\n\n".join(f"### {title}\n\n{table(modules)}" for title, modules in SECTIONS)
    return f"{before}{_BEGIN}\n\n{tables}\n\n{_END}{after}"


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    made = page(PAGE.read_text())
    if parser.parse_args().write:
        PAGE.write_text(made)
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
