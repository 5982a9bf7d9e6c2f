"""Display of `muster up`: a live screen in a terminal, plain lines elsewhere, and the outcome of `--once`."""

import asyncio
import json
import shlex
from collections.abc import Sequence
from typing import Protocol, TextIO

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster.cli.format import bound_of_members
from muster.cli.gangs import gang_line, gangs_table, in_order
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase
from muster.localcluster.stack import Stack
from muster.localcluster.up.cluster_view import ClusterView
from muster.localcluster.up.outcome import Outcome

_FRAME_SECONDS = 0.1
_OTHER_LINES = 15  # heading, processes, hints, table head, count
_MIN_ROWS = 4


def heading(stack: Stack) -> str:
    """Size of the cluster, on one line."""
    options = stack.options
    return (
        f"[bold]muster[/]  {options.nodes} nodes in {options.racks} racks, "
        f"{escape(options.cpu)} cpu and {escape(options.memory)} each"
    )


def hints(stack: Stack) -> list[tuple[str, str]]:
    """Commands for another terminal, with their purposes."""
    return [
        (f"export KUBECONFIG={shlex.quote(str(stack.kubeconfig))}", ""),
        ("kubectl get nodes,pods", "plain kubectl: apply, describe, delete, get -w"),
        ("muster explain NAME", "why a gang is pending, with what it would start"),
        ("muster trace NAME", "where the time was spent"),
        (stack.console_url, "the console, in a browser"),
        *_own_placement(stack),
    ]


def _own_placement(stack: Stack) -> list[tuple[str, str]]:
    options = stack.options
    if not options.own_placement:
        return []
    return [(options.own_placement, f"your placement; it watches cluster-state at {options.cluster_state_listen}")]


class View(Protocol):
    """Display of a `ClusterView`."""

    async def show(self) -> None: ...


class LiveView:
    """Screen that is redrawn after changes, at most ten times a second."""

    def __init__(self, stack: Stack, view: ClusterView) -> None:
        self._stack, self._view = stack, view
        self._console = Console()

    async def show(self) -> None:
        """Redraw until cancelled; the last screen stays in the terminal."""
        version = -1
        live = Live(console=self._console, auto_refresh=False, get_renderable=self._screen, vertical_overflow="crop")
        with live:
            while True:
                version = await self._view.newer_than(version)
                live.refresh()
                await asyncio.sleep(_FRAME_SECONDS)

    def _screen(self) -> RenderableType:
        top = Text.from_markup(heading(self._stack))
        parts: list[RenderableType] = [top, _processes(self._stack, self._view), ""]
        if self._view.ready:
            parts += [_hints_table(self._stack), ""]
        parts.append(self._gangs())
        if self._view.notices:
            parts += ["", *(Text(notice, style="yellow", overflow="ellipsis") for notice in self._view.notices)]
        return Group(*parts)

    def _gangs(self) -> RenderableType:
        gangs = in_order(self._view.gangs.values())
        if not gangs:
            return Text("no gangs yet: kubectl apply some" if self._view.ready else "starting", style="dim")
        rows = self._console.height - _OTHER_LINES - len(self._view.notices)
        displayed = gangs[: max(_MIN_ROWS, rows)]
        counted = Text(_counted(gangs), style="dim")
        if len(displayed) < len(gangs):
            counted.append(f"; {len(gangs) - len(displayed)} not shown, see `muster gangs`")
        return Group(gangs_table(displayed, brief=True), "", counted)


class PlainView:
    """One line per change, for files and pipes."""

    def __init__(self, stack: Stack, view: ClusterView, *, stream: TextIO) -> None:
        self._stack, self._view, self._stream = stack, view, stream

    async def show(self) -> None:
        """Print until cancelled."""
        printed: dict[str, str] = {}
        introduced = False
        version = -1
        while True:
            version = await self._view.newer_than(version)
            if self._view.ready and not introduced:
                introduced = True
                self._print(Text.from_markup(heading(self._stack)).plain)
                for command, purpose in hints(self._stack):
                    self._print(f"  {command:40}{purpose}".rstrip())
            for gang in list(self._view.gangs.values()):
                line = gang_line(gang)
                if printed.get(gang.id) != line:
                    printed[gang.id] = line
                    self._print(line)
            while self._view.notices:
                self._print(self._view.notices.popleft())

    def _print(self, line: str) -> None:
        typer.echo(line, file=self._stream)


def _processes(stack: Stack, view: ClusterView) -> Text:
    text = Text()
    for name, child in stack.children.items():
        up = child.running and view.serving.get(name, False)
        text.append("● ", style="green" if up else "yellow" if child.running else "red")
        text.append(name, style="" if up else "bold")
        if child.starts > 1:
            text.append(f" (restarted {child.starts - 1}x)", style="dim")
        text.append("   ")
    return text


def _hints_table(stack: Stack) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    for command, purpose in hints(stack):
        table.add_row(Text("  " + command, style="bold"), Text(purpose, style="dim"))
    return table


def _counted(gangs: Sequence[Gang]) -> str:
    started = sum(gang.phase in (Phase.PHASE_SATISFIED, Phase.PHASE_ENDED) for gang in gangs)
    bound, pods = sum(gang.bound for gang in gangs), sum(gang.members for gang in gangs)
    return f"{started} of {len(gangs)} gangs started, {bound_of_members(bound, pods)} pods bound"


def print_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """Print the outcome of `--once` to stdout."""
    if as_json:
        typer.echo(json.dumps(outcome.as_json(), indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "NAMESPACE", "NAME", "BOUND", "PHASE", "EXPECTED", "SECONDS", "REASON"):
        table.add_column(column, justify="right" if column in ("BOUND", "SECONDS") else "left")
    for gang in outcome.gangs:
        table.add_row(
            "[green]✓[/]" if gang.as_expected else "[red]✗[/]",
            escape(gang.namespace),
            escape(gang.name),
            bound_of_members(gang.bound, gang.pods),
            gang.phase,
            gang.expected,
            "-" if gang.seconds is None else f"{gang.seconds:.3f}",
            escape(gang.reason),
        )
    console = Console()
    console.print(table, soft_wrap=not console.is_terminal)
    wrong = sum(not gang.as_expected for gang in outcome.gangs)
    console.print(f"{len(outcome.gangs)} gangs in {outcome.seconds:.1f} s, {wrong or 'none'} not as expected")
