"""`muster whatif`: what would happen to the gangs of a manifest if it were applied now.

`muster snapshot` saves what the scheduler knows, for answers without a cluster.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from grpc import aio
from rich.markup import escape

from muster.cli.channel import channel_to
from muster.cli.cluster_state import call_error as cluster_state_error
from muster.cli.coordinator import call_error
from muster.cli.discovery import Kubectl
from muster.cli.endpoints import Addresses
from muster.cli.errors import CliError
from muster.cli.format import duration
from muster.cli.output import show
from muster.cli.whatif_question import WhatIfRequest, facts_asked_about, priority_classes
from muster.clusterstate.suite import proposable
from muster.forecast.suite import (
    Asked,
    BadQuestion,
    BadSnapshot,
    Incomplete,
    Limits,
    NoPlacement,
    OtherVersion,
    Snapshot,
    Unreachable,
    answered,
    read_present,
    read_snapshot,
    redact,
    write_snapshot,
)
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.v1 import forecast_pb2_grpc as pb_grpc
from muster.gangs.facts import Batch
from muster.rpc.watch_codec import encode_batch
from muster.telemetry.logs import configure_logs

EXIT_CODES: Final = {pb.VERDICT_NOW: 0, pb.VERDICT_LATER: 3, pb.VERDICT_NEVER: 4, pb.VERDICT_UNKNOWN: 5}
VERDICT_NAMES: Final = {
    pb.VERDICT_NOW: "now",
    pb.VERDICT_LATER: "later",
    pb.VERDICT_NEVER: "never",
    pb.VERDICT_UNKNOWN: "unknown",
}
_MAX_NODES_SHOWN: Final = 20
_CALL_SECONDS: Final = 30.0
"""Time of a call of the service besides the limit of the answer: for its turn."""


def take_snapshot(addresses: Addresses) -> Snapshot:
    """Read the facts of the cluster, and the coordinator's records and settings. Raises CliError."""
    return asyncio.run(_snapshot(addresses))


def save_snapshot(addresses: Addresses, path: Path, *, redacted: bool) -> None:
    """Write it to a file, `redacted` with other names. Raises CliError."""
    snapshot = take_snapshot(addresses)
    if redacted:
        snapshot = redact(snapshot)
    try:
        write_snapshot(snapshot, path)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error}") from error
    batch = snapshot.batch
    typer.echo(f"{path}: {len(batch.nodes)} nodes, {len(batch.pods)} pods, {len(snapshot.records)} records")


def load_snapshot(path: Path) -> Snapshot:
    """Read a file. Raises CliError."""
    try:
        return read_snapshot(path)
    except BadSnapshot as error:
        raise CliError(str(error), usage=True) from error
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error}", usage=True) from error


def whatif(request: WhatIfRequest, snapshot: Snapshot, kubectl: Kubectl | None, *, as_json: bool) -> NoReturn:
    """Play on the snapshot, print what would happen, and exit with its code. Raises CliError."""
    configure_logs("whatif", "error", "console")
    classes = priority_classes(kubectl)
    facts = facts_asked_about(request, classes)
    asked = Asked(facts, tuple(request.without_gangs), tuple(request.without_nodes), request.add_nodes, request.like)
    limits = Limits(request.horizon_seconds, request.limit_seconds)
    try:
        answer = asyncio.run(answered(asked, snapshot, proposable(classes), limits))
    except BadQuestion as error:
        raise CliError(str(error), usage=True) from error
    except NoPlacement as error:
        raise CliError(str(error)) from error
    _report(answer, facts, as_json=as_json)


def whatif_by_service(request: WhatIfRequest, address: str, kubectl: Kubectl | None, *, as_json: bool) -> NoReturn:
    """The same, played by the service at this address. Raises CliError."""
    classes = priority_classes(kubectl)
    facts = facts_asked_about(request, classes)
    message = pb.WhatIfRequest(
        gangs=encode_batch(facts),
        without_gangs=request.without_gangs,
        without_nodes=request.without_nodes,
        add_nodes=request.add_nodes,
        like=request.like,
        priority_classes=proposable(classes),
        horizon_seconds=request.horizon_seconds,
        limit_seconds=request.limit_seconds,
    )
    _report(ask_service(address, message), facts, as_json=as_json)


def ask_service(address: str, request: pb.WhatIfRequest) -> pb.WhatIfResponse:
    """The answer of the service forecast at this address. Raises CliError."""
    return asyncio.run(_call(address, request))


async def _call(address: str, request: pb.WhatIfRequest) -> pb.WhatIfResponse:
    async with channel_to(address, "forecast") as channel:
        stub = pb_grpc.ForecastServiceStub(channel)
        try:
            return await stub.WhatIf(request, timeout=2 * request.limit_seconds + _CALL_SECONDS)
        except aio.AioRpcError as error:
            raise forecast_error(address, error) from error


def forecast_error(address: str, error: aio.AioRpcError) -> CliError:
    """The error to show for a failed call of the service forecast."""
    detail = error.details() or error.code().name
    return CliError(
        f"forecast at {address} did not answer: {detail} ({error.code().name})",
        hint="without --forecast the command finds the answer itself",
    )


async def _snapshot(addresses: Addresses) -> Snapshot:
    async with (
        channel_to(addresses.cluster_state, "cluster-state") as cluster_state,
        channel_to(addresses.coordinator) as coordinator,
    ):
        try:
            return await read_present(cluster_state, coordinator, "muster snapshot")
        except Unreachable as error:
            if error.service == "coordinator":
                raise call_error(addresses.coordinator, error.error) from error
            raise cluster_state_error(addresses.cluster_state, error.error) from error
        except OtherVersion as error:
            hint = "use the version of muster that runs there"
            raise CliError(f"{addresses.coordinator}: {error}", hint=hint) from error
        except Incomplete as error:
            raise CliError(f"{addresses.cluster_state}: {error}") from error


# -- the answer


def _report(answer: pb.WhatIfResponse, facts: Batch, *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(json.dumps(_as_json(answer), indent=2))
    else:
        show(*_lines(answer, facts))
    sys.exit(EXIT_CODES[answer.verdict])


def _lines(answer: pb.WhatIfResponse, facts: Batch) -> list[str]:
    names = {pod.gang.partition("/")[2] if pod.gang else f"{pod.namespace}/{pod.name}" for pod in facts.pods}
    gangs = ", ".join(sorted(names))
    lines = [f"[bold]{escape(gangs)}[/] {escape(_sentence(answer, len(facts.pods)))}"]
    lines += _places(answer.pods)
    for each in answer.preempts:
        lines.append(f"  preempts {escape(each.gang)}: {escape(', '.join(each.pods))}")
    if ends := list(answer.after_the_ends_of):
        lines.append(f"  after the expected ends of {escape(', '.join(ends[:_MAX_NODES_SHOWN]))}")
    if answer.reason:
        lines.append(f"  {escape(answer.reason)}")
    lines += [f"  it would start now if {escape(each)}" for each in answer.would_start_now_if]
    return [*lines, *(f"  {escape(gang)} exists: this is as if it were replaced" for gang in answer.replaces)]


def _places(pods: Sequence[pb.PlacedPod]) -> list[str]:
    nodes: dict[str, list[str]] = {}
    for each in pods:
        nodes.setdefault(each.node, []).append(each.pod + (f" (rank {each.rank})" if each.HasField("rank") else ""))
    shown = list(nodes.items())[:_MAX_NODES_SHOWN]
    lines = [f"  {escape(node)}: {escape(', '.join(there))}" for node, there in shown]
    return [*lines, f"  and {len(nodes) - len(shown)} more nodes"] if len(nodes) > len(shown) else lines


def _sentence(answer: pb.WhatIfResponse, pods: int) -> str:
    started, nodes = len(answer.pods), len({each.node for each in answer.pods})
    some = "" if started == pods else f" with {started} of {pods} pods"
    match answer.verdict:
        case pb.VERDICT_NOW:
            return f"would start now{some} on {nodes} {'node' if nodes == 1 else 'nodes'}"
        case pb.VERDICT_LATER:
            at = time.localtime(answer.basis.read_unix_millis / 1000 + answer.after_seconds)
            when = time.strftime("%Y-%m-%d %H:%M:%S", at)
            return f"would start{some} at about {when} (in {duration(answer.after_seconds)})"
        case pb.VERDICT_NEVER:
            return "would not start as long as nothing changes but the ends of pods that are expected"
        case _:
            return "may start or not: no answer was found in time; --limit allows more"


def _as_json(answer: pb.WhatIfResponse) -> dict[str, Any]:
    return {
        "verdict": VERDICT_NAMES[answer.verdict],
        "after_seconds": answer.after_seconds if answer.HasField("after_seconds") else None,
        "pods": {
            each.pod: {"node": each.node, "rank": each.rank if each.HasField("rank") else None}
            for each in sorted(answer.pods, key=lambda each: each.pod)
        },
        "preempts": {each.gang: list(each.pods) for each in answer.preempts},
        "after_the_ends_of": list(answer.after_the_ends_of),
        "reason": answer.reason,
        "would_start_now_if": list(answer.would_start_now_if),
        "replaces": list(answer.replaces),
        "revision": dict(answer.basis.revision.kinds),
        "exact": answer.basis.exact,
    }
