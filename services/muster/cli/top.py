"""`muster top`: health, queue, starts and utilisation of a cluster, once or as they change."""

import asyncio
import contextlib
import json
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster.cli.channel import channel_to
from muster.cli.errors import CliError
from muster.cli.format import amount, duration, gang_as_json, phase_markup
from muster.cli.gangs import gangs_table
from muster.cli.output import show
from muster.console.suite import Followed, following
from muster.coordinator.v1.coordinator_pb2 import Phase

_COMPLETE_SECONDS = 30.0
_RETRY_SECONDS = 5.0  # for a service that is being restarted
_REFRESH_SECONDS = 0.5
_MAX_GANGS = 50  # in JSON, and when printed once
_OTHER_LINES = 6
_BAR = 30
_KEYS_AT_ONCE = 64


def top(coordinator: str, cluster_state: str, *, once: bool, as_json: bool) -> None:
    """Show the overview until q or Ctrl-C; with `once`, as JSON, or without a terminal, print it once.

    Raises CliError.
    """
    live = not once and not as_json and sys.stdout.isatty()
    asyncio.run(_top(coordinator, cluster_state, live=live, as_json=as_json))


async def _top(coordinator: str, cluster_state: str, *, live: bool, as_json: bool) -> None:
    async with (
        channel_to(cluster_state, "cluster-state") as state_channel,
        channel_to(coordinator) as coordinator_channel,
        following(state_channel, coordinator_channel) as followed,
    ):
        if live:
            await _show_live(followed)
            return
        await _complete(followed)
        if as_json:
            queue = [gang_as_json(gang) for gang in followed.pending()[:_MAX_GANGS]]
            typer.echo(json.dumps({**followed.overview(), "queue": queue}, indent=2))
        else:
            show(*_screen(followed, _MAX_GANGS, brief=False))


async def _complete(followed: Followed) -> None:
    began = time.monotonic()
    for seconds in (_RETRY_SECONDS, _COMPLETE_SECONDS - _RETRY_SECONDS):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await followed.until_complete()
            return
        if followed.failing:
            break
    raise CliError(
        f"the state of the cluster is not complete after {time.monotonic() - began:.0f} s; "
        f"{'; '.join(followed.missing)}",
        hint="is Muster running, and do --coordinator and --cluster-state name its addresses?",
    )


async def _show_live(followed: Followed) -> None:
    console = Console()
    quitting = asyncio.Event()
    with _keys(quitting), Live(console=console, screen=True, auto_refresh=False) as live:
        async for _ in _ticks(followed, quitting):
            rows = max(1, console.height - _OTHER_LINES - len(followed.state.totals.allocatable))
            live.update(Group(*_screen(followed, rows, brief=True)), refresh=True)


async def _ticks(followed: Followed, quitting: asyncio.Event) -> AsyncIterator[None]:
    """After changes, and at least once a second for the ages, until the user quits."""
    while not quitting.is_set():
        version = followed.signal.version
        yield
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_SECONDS):
                await quitting.wait()
        if not quitting.is_set():
            await followed.signal.newer_than(version, _REFRESH_SECONDS)


@contextlib.contextmanager
def _keys(quitting: asyncio.Event) -> Iterator[None]:
    """Set the event when q is pressed."""
    if not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def pressed() -> None:
        if b"q" in os.read(number, _KEYS_AT_ONCE).lower():
            quitting.set()

    tty.setcbreak(number)
    asyncio.get_running_loop().add_reader(number, pressed)
    try:
        yield
    finally:
        asyncio.get_running_loop().remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _screen(followed: Followed, rows: int, *, brief: bool) -> Iterator[RenderableType]:
    page = followed.overview()
    yield Text.from_markup(_health(page))
    yield Text.from_markup(_queue(page))
    yield _utilisation(page)
    pending = followed.pending()
    if pending:
        yield ""
        yield gangs_table(pending[:rows], brief=brief)
    if len(pending) > rows:
        yield Text(f"and {len(pending) - rows} more: muster gangs", style="dim")


def _health(page: dict[str, Any]) -> str:
    parts = [
        f"[green]{name} connected[/]" if source["connected"] else f"[red]{name}: {escape(source['detail'])}[/]"
        for name, source in page["sources"].items()
    ]
    leader = f"leader {escape(page['leader'])}" if page["leader"] else "[red]no coordinator leads[/]"
    return f"[bold]muster[/]  {'  '.join(parts)}  {leader}"


def _queue(page: dict[str, Any]) -> str:
    recent = page["starts"][-5:]
    phases = "  ".join(f"{count} {_phase(word)}" for word, count in sorted(page["phases"].items()))
    wait = f", longest wait {duration(max(0, time.time() - page['oldest_created']))}" if page["oldest"] else ""
    starts = f"{sum(recent) / len(recent):.1f} starts per minute"
    return f"queue {page['queued']} gangs, {page['pending_pods']} pending pods{wait}; {starts}\n{phases or 'no gangs'}"


def _phase(word: str) -> str:
    return phase_markup(Phase.Value(f"PHASE_{word.upper().replace('-', '_')}"))


def _utilisation(page: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(Text(f"{page['usable_nodes']} of {page['nodes']} nodes usable", style="dim"), "", "")
    for name, figures in page["utilisation"].items():
        allocatable, used, reserved = figures["allocatable"], figures["used"], figures["reserved"]
        share = used / allocatable
        filled = round(min(1.0, max(0.0, share)) * _BAR)
        held = f", {amount(name, reserved)} reserved" if reserved > 0 else ""
        table.add_row(
            Text(name),
            Text("█" * filled + "·" * (_BAR - filled), style="blue"),
            Text(f"{share:4.0%}  {amount(name, used)} of {amount(name, allocatable)}{held}"),
        )
    return table
