"""`muster gangs`: a table of all gangs, printed once or updated as they change."""

import asyncio
import json
import sys
from collections.abc import Iterable

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from muster.cli.coordinator import CALL_SECONDS, call, connected
from muster.cli.format import bound_of_members, brief_reason, duration, gang_as_json, phase_markup, phase_word
from muster.cli.output import show
from muster.coordinator.v1.coordinator_pb2 import Gang, ListRequest, Phase, WatchRequest, WatchResponse

_MAX_GANGS_WITH_FULL_REASONS = 12  # on a live screen


def list_gangs(address: str, namespace: str, *, as_json: bool) -> None:
    """Print all gangs once. Raises CliError."""
    answer = call(address, lambda stub: stub.List(ListRequest(namespace=namespace), timeout=CALL_SECONDS))
    if as_json:
        typer.echo(json.dumps({"gangs": [gang_as_json(gang) for gang in answer.gangs]}, indent=2))
    elif not answer.gangs:
        where = f" in namespace {namespace}" if namespace else ""
        Console(stderr=True).print(f"no gangs{where}")
    else:
        show(gangs_table(list(answer.gangs)))


def watch_gangs(address: str, namespace: str, *, as_json: bool) -> None:
    """Show gangs as they change, until Ctrl-C. Without a terminal: one line per change. Raises CliError."""
    asyncio.run(_watch(address, namespace, as_json=as_json))


async def _watch(address: str, namespace: str, *, as_json: bool) -> None:
    gangs: dict[str, Gang] = {}
    live = Live(gangs_table([]), console=Console(), auto_refresh=False) if _live(as_json) else None
    async with connected(address) as stub:
        try:
            if live:
                live.start()
            async for step in stub.Watch(WatchRequest(namespace=namespace)):
                apply_step(gangs, step)
                if live:
                    live.update(gangs_table(in_order(gangs.values())), refresh=True)
                else:
                    _print_step(step, as_json=as_json)
        finally:
            if live:
                live.stop()


def _live(as_json: bool) -> bool:
    return not as_json and sys.stdout.isatty()


def _print_step(step: WatchResponse, *, as_json: bool) -> None:
    for gang in step.gangs:
        line = json.dumps(gang_as_json(gang)) if as_json else gang_line(gang)
        typer.echo(line)
    for removed in step.removed:
        typer.echo(json.dumps({"id": removed, "removed": True}) if as_json else f"{removed} removed")


def apply_step(gangs: dict[str, Gang], step: WatchResponse) -> None:
    """Apply one step of Watch to the gangs by id."""
    for gang in step.gangs:
        gangs[gang.id] = gang
    for removed in step.removed:
        gangs.pop(removed, None)


def in_order(gangs: Iterable[Gang]) -> list[Gang]:
    """Pending gangs in queue order, then satisfied ones, then ended ones."""
    return sorted(
        gangs,
        key=lambda gang: (
            gang.phase == Phase.PHASE_ENDED,
            gang.phase == Phase.PHASE_SATISFIED,
            -gang.priority,
            gang.created_seconds,
            gang.namespace,
            gang.name,
        ),
    )


def gang_line(gang: Gang) -> str:
    """One gang as a plain line."""
    reason = f": {gang.reason}" if gang.reason else ""
    return f"{gang.id} {phase_word(gang.phase)}, {bound_of_members(gang.bound, gang.members)} bound{reason}"


def gangs_table(gangs: list[Gang], *, brief: bool = False) -> Table:
    """Table in kubectl's style. With `brief` it fits the terminal: a reason takes one line if there are many gangs."""
    one_line = brief and len(gangs) > _MAX_GANGS_WITH_FULL_REASONS
    table = Table(box=None, pad_edge=False, header_style="bold", expand=brief)
    table.add_column("NAMESPACE", no_wrap=True)
    table.add_column("NAME", no_wrap=True)
    table.add_column("DIALECT", style="dim", no_wrap=True)
    table.add_column("PHASE", no_wrap=True)
    table.add_column("BOUND", justify="right", no_wrap=True)
    table.add_column("MIN", justify="right", no_wrap=True)
    table.add_column("START", justify="right", no_wrap=True)
    table.add_column(
        "REASON", overflow="ellipsis" if one_line else "fold", no_wrap=one_line, ratio=1 if brief else None
    )
    for gang in gangs:
        start = duration(gang.start_seconds) if gang.HasField("start_seconds") else "-"
        table.add_row(
            escape(gang.namespace),
            escape(gang.name),
            escape(gang.dialect),
            phase_markup(gang.phase),
            bound_of_members(gang.bound, gang.members),
            str(gang.minimum or "-"),
            start,
            escape(brief_reason(gang)),
        )
    return table
