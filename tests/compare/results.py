"""Results of a comparison, as they are stored beside this file."""

import json
from pathlib import Path
from statistics import median
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("results.json")


class Results:
    """Figures by number of nodes, measurement and scheduler, each with all repetitions; verdicts by check."""

    def __init__(self) -> None:
        self.machine: dict[str, Any] = {}
        self.versions: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        self.pods = 0
        self.figures: dict[str, dict[str, dict[str, list[dict[str, float]]]]] = {}
        self.checks: dict[str, dict[str, list[Any]]] = {}
        """Whether it passed, and what was seen, by check and scheduler."""

    def add(self, nodes: int, measurement: str, scheduler: str, figures: dict[str, float], repetition: int) -> None:
        """The first repetition replaces what an earlier run measured."""
        runs = self.figures.setdefault(str(nodes), {}).setdefault(measurement, {}).setdefault(scheduler, [])
        del runs[repetition:]
        runs.append(figures)

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))


class Spread:
    """Median, lowest and highest of one figure."""

    def __init__(self, runs: list[dict[str, float]], figure: str) -> None:
        values = [run[figure] for run in runs]
        self.median, self.lowest, self.highest = median(values), min(values), max(values)


def read_results() -> Results:
    """The stored ones; empty ones if there are none."""
    results = Results()
    if _FILE.exists():
        vars(results).update(json.loads(_FILE.read_text()))
    return results


def write_results(results: Results) -> None:
    """Store them."""
    _FILE.write_text(json.dumps(results.as_json(), indent=1, sort_keys=True) + "\n")
