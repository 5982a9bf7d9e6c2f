"""`muster replay`: plays a trace in virtual time and prints what became of it; `muster generate-trace` makes one."""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer
from rich.table import Table

from muster.cli.errors import CliError
from muster.cli.format import duration
from muster.cli.output import show
from muster.config.settings import CannotStart
from muster.forecast.suite import (
    BadChoice,
    BadTrace,
    Choice,
    Mode,
    Nodes,
    NoPlacement,
    Snapshot,
    Submission,
    Workload,
    generate,
    read_trace,
    run_all,
    trace_lines,
)
from muster.telemetry.logs import configure_logs

_PROGRESS_SECONDS: Final = 1.0


@dataclass(frozen=True)
class ReplayRequest:
    """Options of one command."""

    trace: Path
    cluster: Nodes | Snapshot
    modes: Sequence[str]
    placements: Sequence[str]
    settings: Sequence[str]
    """Each "NAME=VALUE" or, to compare, "NAME=VALUE,VALUE"."""
    listen: str
    until_seconds: float | None


def replay(request: ReplayRequest, *, as_json: bool) -> None:
    """Play the trace once for each combination of modes, placements and settings. Raises CliError."""
    choices = _choices(request)
    configure_logs("replay", "error", "console")
    submissions = _submissions(request.trace)
    progress = _Progress(len(submissions))
    try:
        figures = asyncio.run(
            run_all(submissions, request.cluster, choices, until=request.until_seconds, on_progress=progress)
        )
    except BadChoice as error:
        raise CliError(str(error), usage=True) from error
    except (NoPlacement, CannotStart) as error:
        raise CliError(str(error)) from error
    finally:
        progress.end()
    if as_json:
        typer.echo(json.dumps({"replays": figures}, indent=2))
    else:
        _print(figures)


def generate_trace(workload: Workload) -> None:
    """Print a synthetic trace as JSON lines."""
    for line in trace_lines(generate(workload)):
        typer.echo(line)


def _submissions(path: Path) -> list[Submission]:
    try:
        found = read_trace(path)
    except BadTrace as error:
        raise CliError(str(error), usage=True) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"the trace {path} cannot be read: {error}", usage=True) from error
    if not found:
        raise CliError(f"the trace {path} has no gangs", usage=True)
    return found


def _choices(request: ReplayRequest) -> list[Choice]:
    try:
        modes = [Mode(mode) for mode in request.modes]
    except ValueError as error:
        known = ", ".join(mode.value for mode in Mode)
        raise CliError(f"--mode: {error}", hint=f"modes are {known}", usage=True) from error
    values: list[list[tuple[str, str]]] = []
    for each in request.settings:
        name, equals, text = each.partition("=")
        if not equals or not name or not text:
            raise CliError(f"--set {each!r} is not NAME=VALUE", usage=True)
        values.append([(name, value) for value in text.split(",")])
    return [
        Choice(mode, dict(settings), placement, request.listen)
        for mode in modes
        for placement in request.placements
        for settings in itertools.product(*values)
    ]


class _Progress:
    """A line on the terminal, once a second."""

    def __init__(self, gangs: int) -> None:
        self._gangs, self._shown = gangs, 0.0
        self._on_terminal = sys.stderr.isatty()

    def __call__(self, name: str, now: float, ended: int) -> None:
        if not self._on_terminal or time.monotonic() - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = time.monotonic()
        days, clock = divmod(now, 86_400)
        at = f"day {int(days) + 1}, {int(clock // 3600):02}:{int(clock % 3600 // 60):02}"
        typer.echo(f"\r{name}: {at}, {ended} of {self._gangs} gangs have ended ", nl=False, err=True)

    def end(self) -> None:
        if self._shown:
            typer.echo(err=True)


def _print(figures: Sequence[dict[str, Any]]) -> None:
    table = Table("", *(each["name"] for each in figures), box=None, header_style="bold", pad_edge=False)
    for label, values in _rows(figures):
        table.add_row(label, *values)
    show(table)


def _rows(figures: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    rows = [
        ("gangs that started", [f"{each['started']} of {each['gangs']}" for each in figures]),
        ("time until the last end", [duration(each["seconds"]) for each in figures]),
    ]
    rows += [
        (f"utilisation of {name}", [f"{each['utilisation'][name]:.1%}" for each in figures])
        for name in figures[0]["utilisation"]
    ]
    rows += [
        (f"free {name} on nodes in use", [f"{each['fragmentation'][name]:.1%}" for each in figures])
        for name in figures[0]["fragmentation"]
    ]
    if all("snapshot" in each for each in figures):
        rows += [("gangs of the snapshot that started", [_of_snapshot(each["snapshot"]) for each in figures])]
    rows += [("preemptions", [str(each["preemptions"]) for each in figures])]
    rows += [("wait, mean", [_seconds(each["waited_seconds"]["mean"]) for each in figures])]
    for kind, by in (("members", "by_members"), ("priority", "by_priority")):
        for key in figures[0][by]:
            cells = [_wait(each[by].get(key)) for each in figures]
            rows.append((f"wait p50 / p90 / p99, {kind} {key}", cells))
    return rows


def _of_snapshot(present: dict[str, Any]) -> str:
    median = f", p50 after {_seconds(present['waited_seconds']['p50'])}" if present["started"] else ""
    return f"{present['started']} of {present['waiting_gangs']} that waited{median}"


def _wait(waits: dict[str, Any] | None) -> str:
    if waits is None:
        return ""
    never = f"; {waits['never_started']} never" if waits["never_started"] else ""
    return " / ".join(_seconds(waits[each]) for each in ("p50", "p90", "p99")) + never


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration(value) if value else "0 s"
