"""`muster queue`: the gangs that wait, in queue order; with `--start` when each is expected to start."""

import asyncio
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import typer
from grpc import aio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from muster.cli.channel import channel_to
from muster.cli.coordinator import CALL_SECONDS, call
from muster.cli.endpoints import Addresses
from muster.cli.errors import CliError
from muster.cli.format import brief_reason, duration, gang_as_json, phase_markup
from muster.cli.output import show
from muster.cli.whatif import VERDICT_NAMES, forecast_error, take_snapshot
from muster.coordinator.v1.coordinator_pb2 import Gang, ListRequest, Phase
from muster.forecast.suite import Limits, NoPlacement, expected_starts
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.v1 import forecast_pb2_grpc as pb_grpc
from muster.rpc.expected_starts import assumption
from muster.telemetry.logs import configure_logs

_WAITING: Final = (Phase.PHASE_QUEUED, Phase.PHASE_SOLVING, Phase.PHASE_WAITING)
_HORIZON_SECONDS: Final = 7 * 86_400.0
_TURN_SECONDS: Final = 60.0
"""Time of a call of the service besides the limit of the answer: for its turn."""
_DAY_SECONDS: Final = 86_400.0


def show_queue(address: str, namespace: str, starts: pb.StartsResponse | None, *, as_json: bool) -> None:
    """Print the gangs that wait. Raises CliError."""
    answer = call(address, lambda stub: stub.List(ListRequest(namespace=namespace), timeout=CALL_SECONDS))
    waiting = [gang for gang in answer.gangs if gang.phase in _WAITING]
    expected = {each.gang: each for each in starts.gangs} if starts is not None else {}
    if as_json:
        gangs = [_gang_as_json(gang, expected.get(gang.id)) for gang in waiting]
        partial = {"partial": starts.partial} if starts is not None else {}
        typer.echo(json.dumps({"gangs": gangs, "assumptions": _assumptions_as_json(starts), **partial}, indent=2))
    elif not waiting:
        where = f" in namespace {namespace}" if namespace else ""
        Console(stderr=True).print(f"no gang waits{where}")
    elif starts is None:
        show(_table(waiting, None))
    else:
        show(_table(waiting, expected), escape(assumption(starts)))


def starts_by_service(address: str, namespace: str = "", limit_seconds: float = 60.0) -> pb.StartsResponse:
    """Expected starts, found by the service at this address. Raises CliError."""

    async def ask() -> pb.StartsResponse:
        async with channel_to(address, "forecast") as channel:
            try:
                stub = pb_grpc.ForecastServiceStub(channel)
                return await stub.Starts(pb.StartsRequest(namespace=namespace), timeout=limit_seconds + _TURN_SECONDS)
            except aio.AioRpcError as error:
                raise forecast_error(address, error) from error

    return asyncio.run(ask())


def starts_by_itself(addresses: Addresses, limit_seconds: float) -> pb.StartsResponse:
    """Expected starts, found by a placement of its own; nothing is learnt from the past. Raises CliError."""
    configure_logs("queue", "error", "console")
    limits = Limits(_HORIZON_SECONDS, limit_seconds)
    try:
        return asyncio.run(expected_starts(take_snapshot(addresses), limits))
    except NoPlacement as error:
        raise CliError(str(error)) from error


def start_in_words(start: pb.ExpectedStart) -> str:
    """When a gang is expected to start, with the range."""
    match start.verdict:
        case pb.VERDICT_NOW:
            return "now"
        case pb.VERDICT_LATER:
            low, high = start.earliest_unix_millis, start.latest_unix_millis
            if not high:
                return f"about {_clock(start.expected_unix_millis)}, or later"
            if high - low < 60_000:
                return f"about {_clock(start.expected_unix_millis)}"
            return f"about {_clock(start.expected_unix_millis)}, from {_clock(low)} to {_clock(high)}"
        case pb.VERDICT_NEVER:
            return "not foreseen"
        case _:
            return "not found in time"


def _clock(unix_millis: int) -> str:
    at = datetime.fromtimestamp(unix_millis / 1000, UTC).astimezone()
    far = unix_millis / 1000 - time.time() > _DAY_SECONDS / 2
    return at.strftime("%Y-%m-%d %H:%M" if far else "%H:%M:%S")


def _table(gangs: list[Gang], expected: Mapping[str, pb.ExpectedStart] | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("#", "NAMESPACE", "NAME", "PHASE", "PRIORITY", "PODS", "AGE"):
        right = heading in ("#", "PRIORITY", "PODS", "AGE")
        table.add_column(heading, no_wrap=True, justify="right" if right else "left")
    if expected is not None:
        table.add_column("EXPECTED START", no_wrap=True)
    table.add_column("REASON", overflow="fold")
    for number, gang in enumerate(gangs, start=1):
        start = expected.get(gang.id) if expected is not None else None
        cells = [str(number), escape(gang.namespace), escape(gang.name), phase_markup(gang.phase)]
        cells += [str(gang.priority), str(gang.members), duration(max(1.0, time.time() - gang.created_seconds))]
        if expected is not None:
            cells.append(start_in_words(start) if start is not None else "-")
        table.add_row(*cells, escape(brief_reason(gang)))
    return table


def _gang_as_json(gang: Gang, start: pb.ExpectedStart | None) -> dict[str, Any]:
    found = gang_as_json(gang)
    return {**found, "expected_start": start_as_json(start)} if start is not None else found


def start_as_json(start: pb.ExpectedStart) -> dict[str, Any]:
    """For --output json: times in seconds since 1970 UTC, null where they are not known."""
    return {
        "verdict": VERDICT_NAMES[start.verdict],
        "expected_unix_seconds": start.expected_unix_millis / 1000 or None,
        "earliest_unix_seconds": start.earliest_unix_millis / 1000 or None,
        "latest_unix_seconds": start.latest_unix_millis / 1000 or None,
    }


def _assumptions_as_json(starts: pb.StartsResponse | None) -> dict[str, int] | None:
    if starts is None:
        return None
    ends = starts.assumptions
    return {"declared": ends.declared, "learnt": ends.learnt, "unknown": ends.unknown}
