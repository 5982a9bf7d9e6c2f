"""Results of scenarios: as JSON, as a table on the terminal."""

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

FILE: Final = Path(__file__).with_name("results.json")
"""Results of the last complete run, from which docs/interop.md is generated."""


class Outcome(Enum):
    """Outcome of a scenario."""

    WORKS = "works"
    FAILS = "fails"
    DOES_NOT_APPLY = "does not apply"


class Result(Struct, frozen=True):
    """One scenario with one kind of workload."""

    controller: str
    workload: str
    scenario: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    """Reason of a failure."""
    remark: str = ""
    """Note for readers about a scenario that works."""


class Run(Struct, frozen=True):
    """Results with the versions of the controllers."""

    versions: dict[str, str]
    results: list[Result]


def read_run(file: Path = FILE) -> Run:
    """The results in a file."""
    return msgspec.json.decode(file.read_bytes(), type=Run)


def write_run(run: Run, file: Path) -> None:
    """Write the results to a file."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")


def table(run: Run) -> str:
    """The summary."""
    rows = [("controller", "version", "workload", "scenario", "result", "seconds")]
    for each in run.results:
        if each.outcome is not Outcome.DOES_NOT_APPLY:
            version = run.versions.get(each.controller, "")
            seconds = f"{each.seconds:.1f}"
            rows.append((each.controller, version, each.workload, each.scenario, each.outcome.value, seconds))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def counts(results: Iterable[Result]) -> str:
    """The last line."""
    outcomes = [each.outcome for each in results]
    return f"{outcomes.count(Outcome.WORKS)} passed, {outcomes.count(Outcome.FAILS)} failed"
