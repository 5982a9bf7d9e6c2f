"""Results of a comparison, as they are stored beside this file."""

import json
from pathlib import Path
from statistics import median
from typing import Any, Final

_FILE: Final = Path(__file__).with_name("results.json")


class Results:
    """Figures by number of nodes, measurement and scheduler, each with all repetitions; verdicts by check."""

    def __init__(self, *, add: bool = False) -> None:
        """`add`: repetitions are added to those of earlier runs, instead of replacing them."""
        self._add = add
        self._measured: set[tuple[int, str, str]] = set()
        self.machine: dict[str, Any] = {}
        self.versions: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        self.pods = 0
        self.figures: dict[str, dict[str, dict[str, list[dict[str, float]]]]] = {}
        self.checks: dict[str, dict[str, list[Any]]] = {}
        """Whether it passed, and what was seen, by check and scheduler."""

    def add(self, nodes: int, measurement: str, scheduler: str, figures: dict[str, float]) -> None:
        """One more repetition."""
        runs = self.figures.setdefault(str(nodes), {}).setdefault(measurement, {}).setdefault(scheduler, [])
        if not self._add and (nodes, measurement, scheduler) not in self._measured:
            runs.clear()
        self._measured.add((nodes, measurement, scheduler))
        runs.append(figures)

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class Spread:
    """Median, lowest and highest of one figure."""

    def __init__(self, runs: list[dict[str, float]], figure: str) -> None:
        values = [run[figure] for run in runs]
        self.median, self.lowest, self.highest = median(values), min(values), max(values)


def read_results(*, add: bool = False) -> Results:
    """The stored ones; empty ones if there are none. `add`: see Results."""
    results = Results(add=add)
    if _FILE.exists():
        vars(results).update(json.loads(_FILE.read_text()))
    return results


def write_results(results: Results) -> None:
    """Store them."""
    _FILE.write_text(json.dumps(results.as_json(), indent=1, sort_keys=True) + "\n")
