"""`muster trace GANG`: the spans of a gang's trace as a tree with a timeline."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster.cli.coordinator import connected, explain_gang, unknown_gang
from muster.cli.endpoints import STATE_DIRECTORY, local_endpoints
from muster.cli.errors import CliError
from muster.cli.format import duration
from muster.cli.output import show, terminal_columns
from muster.cli.trace_file import Span, newest_trace_with, spans_of_trace, values_of
from muster.cli.trace_tree import Row, rows_of

GANG_ATTRIBUTE = "muster.gang"
_BAR_CELLS = 32
_NARROW_BAR_CELLS = 12
_NARROW_COLUMNS = 110
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SERVICE_COLOURS = {
    "coordinator": "cyan",
    "placement": "magenta",
    "binding": "green",
    "cluster-state": "yellow",
}


def find_trace_file(file: Path | None, state_directory: Path | None) -> Path:
    """The given file, or that of the local cluster, which may have stopped. Raises CliError if there is none."""
    endpoints = local_endpoints(state_directory)
    default = (state_directory or STATE_DIRECTORY) / "traces.jsonl"
    found = file or (Path(endpoints.traces) if endpoints and endpoints.traces else default)
    if not found.exists():
        raise CliError(
            f"there is no trace file {found}",
            hint="`muster up` writes one to its state directory; a real cluster exports spans to its tracing backend",
            usage=file is not None,
        )
    return found


def trace(file: Path, coordinator: str | None, name: str, *, as_json: bool, everything: bool) -> None:
    """Print a gang's trace. Raises CliError."""
    trace_id: str = name if _TRACE_ID.fullmatch(name) else _trace_id(file, coordinator, name)
    spans = spans_of_trace(file, trace_id)
    if not spans:
        raise CliError(
            f"{file} has no spans of trace {trace_id}",
            hint="spans arrive some seconds after they end, and a full file drops the oldest",
        )
    if as_json:
        typer.echo(json.dumps({"trace_id": trace_id, "spans": [msgspec.to_builtins(span) for span in spans]}, indent=2))
        return
    show(*rendered(trace_id, spans, everything=everything))


def _trace_id(file: Path, coordinator: str | None, name: str) -> str:
    """Trace id from the coordinator if it knows the gang, else of the newest trace of the gang in the file."""
    unknown: CliError | None = None
    if coordinator is not None:
        try:
            if trace_id := asyncio.run(_current_trace_id(coordinator, name)):
                return trace_id
        except CliError as error:
            if error.exit_code == 2:  # the name fits several gangs
                raise
            unknown = error
    gangs = values_of(file, GANG_ATTRIBUTE)
    for gang in gangs:
        if (gang == name or gang.endswith("/" + name)) and (found := newest_trace_with(file, GANG_ATTRIBUTE, gang)):
            return found
    raise unknown or unknown_gang(name, gangs)


async def _current_trace_id(address: str, name: str) -> str:
    async with connected(address) as stub:
        return (await explain_gang(stub, address, name)).gang.trace_id


def rendered(trace_id: str, spans: list[Span], *, everything: bool) -> Iterator[Table | str]:
    """Heading, tree, and a legend if parent spans are missing."""
    begin, end = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    gang = next((str(span.attributes[GANG_ATTRIBUTE]) for span in spans if GANG_ATTRIBUTE in span.attributes), "")
    yield (
        f"[bold]{escape(gang) or 'trace'}[/]  {duration((end - begin) / 1e9)}, {len(spans)} spans, "
        f"{len({span.service for span in spans})} services  [dim]{trace_id}[/]"
    )
    cells = _NARROW_BAR_CELLS if terminal_columns() < _NARROW_COLUMNS else _BAR_CELLS
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    table.add_column("SPAN", overflow="fold" if everything else "ellipsis", no_wrap=not everything)
    table.add_column("SERVICE", no_wrap=True, min_width=len("cluster-state"))
    table.add_column("FROM", justify="right", no_wrap=True, min_width=9)
    table.add_column("TOOK", justify="right", no_wrap=True, min_width=8)
    table.add_column("", no_wrap=True, min_width=cells)
    for row in rows_of(spans, everything=everything):
        table.add_row(*_cells(row, begin, end, cells))
    yield table
    if any(row.orphan for row in rows_of(spans, everything=True)):
        yield "[dim]~ the parent span has not ended, or is no longer in the file[/]"


def _cells(row: Row, begin: int, end: int, cells: int) -> tuple[Text | str, ...]:
    label = Text()
    label.append(row.guide, style="dim")
    if row.orphan:
        label.append("~ ", style="dim")
    label.append(row.label, style="red" if row.error else "dim" if row.minor else "")
    if row.detail:
        label.append(f"  {row.detail}", style="red" if row.error else "dim")
    colour = "red" if row.error else _SERVICE_COLOURS.get(row.service, "blue")
    if row.end_ns is None:
        return label, "", f"+{duration((row.start_ns - begin) / 1e9)}", "", ""
    return (
        label,
        Text(row.service, style=colour),
        f"+{duration((row.start_ns - begin) / 1e9)}",
        duration(row.took_seconds),
        Text(_bar(row.start_ns - begin, row.end_ns - begin, end - begin, cells), style=colour),
    )


def _bar(start: int, stop: int, whole: int, cells: int) -> str:
    """Bar from start to stop of a timeline of `cells` columns, exact to an eighth of a column; never empty."""
    if whole <= 0:
        return "▏"
    first = min(cells - 1, start * cells // whole)
    eighths = max(1, round((stop * cells / whole - first) * 8))
    full, rest = divmod(min(eighths, (cells - first) * 8), 8)
    return " " * first + "█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "")
