"""`muster conformance`: runs the suite and prints each case as it ends, or repeats a failed call; exits with 1 if a
required case or the call failed.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from google.protobuf import text_format
from google.protobuf.message import Message
from rich.markup import escape
from rich.table import Table

from muster.cli.errors import CliError
from muster.cli.output import show
from muster.config.settings import CannotStart
from muster.conformance.suite import (
    BadFile,
    Case,
    CaseGroup,
    FailedCall,
    NotTested,
    Options,
    Outcome,
    Report,
    Verdict,
    read,
    replay,
    run,
    selected,
)
from muster.telemetry.logs import configure_logs

_COLOURS = {Verdict.PASSED: "green", Verdict.FAILED: "red", Verdict.SKIPPED: "yellow"}
_ALL_GROUPS = "all"


@dataclass(frozen=True)
class ConformanceRun:
    """Options of one run."""

    target: str
    listen: str
    only: Sequence[str]
    require: Sequence[str]
    wait_seconds: float
    call_seconds: float
    failures: Path
    """Directory for files of failed calls."""


def print_cases(only: Sequence[str], *, as_json: bool) -> None:
    """Print the cases. Raises CliError if none match."""
    cases = _matching_cases(only)
    if as_json:
        typer.echo(json.dumps({"cases": [_case_as_json(case) for case in cases]}, indent=2))
        return
    table = Table("CASE", "GROUP", "REQUIREMENT", "NEEDS", box=None, header_style="dim", pad_edge=False)
    for case in cases:
        table.add_row(case.id, case.group.value, case.title, ", ".join(case.needs))
    show(table)


def run_suite(request: ConformanceRun, as_json: bool) -> None:
    """Run the suite; exits with 1 if a required case failed. Raises CliError."""
    _matching_cases(request.only)
    options = Options(
        target=request.target,
        listen=request.listen,
        wait_seconds=request.wait_seconds,
        call_seconds=request.call_seconds,
        only=tuple(request.only),
        required=_groups(request.require),
        failures=request.failures,
    )
    _announce(options, as_json=as_json)
    try:
        report = asyncio.run(run(options, (lambda _: None) if as_json else _print_outcome))
    except (NotTested, CannotStart) as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(
            f"a failed call cannot be written to {request.failures}: {error}", hint="choose another --failures"
        ) from error
    if as_json:
        typer.echo(json.dumps(_report_as_json(report), indent=2))
    else:
        _print_summary(report)
    if not report.conforms:
        sys.exit(1)


def replay_call(file: Path, options: Options, *, as_json: bool) -> None:
    """Repeat the failed call of a file; exits with 1 if it fails again. Raises CliError."""
    try:
        failed = read(file)
    except BadFile as error:
        raise CliError(str(error), usage=True) from error
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error}", usage=True) from error
    if not as_json:
        _print_call(failed)
    _announce(options, as_json=as_json)
    try:
        again = asyncio.run(replay(failed, options))
    except (NotTested, CannotStart) as error:
        raise CliError(str(error)) from error
    if as_json:
        answer = {"case": failed.case, "implementation": again.implementation, "passed": not again.problem}
        typer.echo(json.dumps({**answer, "recorded": failed.problem, "problem": again.problem}, indent=2))
    else:
        if again.response is not None:
            _print_message(f"answer of {again.implementation}", again.response)
        show("", f"[red]fails again:[/] {escape(again.problem)}" if again.problem else "[green]passes[/]")
    if again.problem:
        sys.exit(1)


def _announce(options: Options, *, as_json: bool) -> None:
    configure_logs("conformance", "warning", "console")
    if not as_json:
        typer.echo(f"waiting for an implementation that watches the cluster-state on {options.listen}", err=True)


def _print_call(failed: FailedCall) -> None:
    call = failed.call
    show(f"case {failed.case} failed: {escape(failed.problem)}", "")
    for message in call.cluster:
        if message.WhichOneof("step") == "batch":
            _print_message("cluster", message.batch)
    _print_message("request", call.request)
    if call.response is not None:
        _print_message("recorded answer", call.response)
    else:
        show("[bold]recorded answer[/]", escape(call.error))


def _print_message(title: str, message: Message) -> None:
    show(f"[bold]{title}[/]", escape(text_format.MessageToString(message, indent=2).rstrip() or "  (empty)"))


def _matching_cases(only: Sequence[str]) -> list[Case]:
    cases = selected(only)
    if not cases:
        raise CliError(
            f"no case has an id that begins with {' or '.join(only)}", hint="--list shows all cases", usage=True
        )
    return cases


def _groups(names: Sequence[str]) -> frozenset[CaseGroup]:
    if _ALL_GROUPS in names:
        return frozenset(CaseGroup)
    try:
        return frozenset(map(CaseGroup, names)) or Options.required
    except ValueError as error:
        known = ", ".join((*(group.value for group in CaseGroup), _ALL_GROUPS))
        raise CliError(f"--require: {error}", hint=f"groups are {known}", usage=True) from error


def _print_outcome(outcome: Outcome) -> None:
    verdict = f"[{_COLOURS[outcome.verdict]}]{outcome.verdict.value:<8}[/]"
    table = Table.grid(padding=(0, 2))
    table.add_column(width=4)
    table.add_column(width=8)
    table.add_column(ratio=1)
    needs = f" [dim](needs {', '.join(outcome.case.needs)})[/]" if outcome.verdict is Verdict.SKIPPED else ""
    table.add_row(outcome.case.id, verdict, escape(outcome.case.title) + needs)
    if outcome.verdict is Verdict.FAILED:
        table.add_row("", "", f"{'[red]unsafe[/] ' if outcome.unsafe else ''}[dim]{escape(outcome.reason)}[/]")
    if outcome.file is not None:
        table.add_row("", "", f"[dim]to repeat it: muster conformance replay {escape(str(outcome.file))}[/]")
    show(table)
    sys.stdout.flush()


def _print_summary(report: Report) -> None:
    tested = report.implementation
    features = ", ".join(sorted(tested.features)) or "none"
    counts = ", ".join(f"{report.count(verdict)} {verdict.value}" for verdict in Verdict)
    required = ", ".join(sorted(report.required))
    verdict = "[green]conforms[/]" if report.conforms else "[red]does not conform[/]"
    show(
        "",
        f"{escape(tested.label)} (features: {features})",
        f"{counts}; required: {required}",
        verdict,
    )


def _report_as_json(report: Report) -> dict[str, Any]:
    return {
        "implementation": report.implementation.name,
        "version": report.implementation.version,
        "features": sorted(report.implementation.features),
        "required": sorted(report.required),
        "conforms": report.conforms,
        **{verdict.value: report.count(verdict) for verdict in Verdict},
        "cases": [
            {
                **_case_as_json(outcome.case),
                "verdict": outcome.verdict.value,
                "required": report.is_required(outcome),
                "unsafe": outcome.unsafe,
                "reason": outcome.reason,
                "seconds": round(outcome.seconds, 3),
                "file": str(outcome.file) if outcome.file is not None else None,
            }
            for outcome in report.outcomes
        ],
    }


def _case_as_json(case: Case) -> dict[str, Any]:
    return {"id": case.id, "group": case.group.value, "title": case.title, "needs": list(case.needs)}
