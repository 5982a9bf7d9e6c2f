"""`muster whatif`: what would happen to the gangs of a manifest if it were applied now.

`muster snapshot` saves what the scheduler knows, for answers without a cluster.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import typer
import yaml
from rich.markup import escape

from muster.cli.cluster_state import read_snapshot as read_cluster_snapshot
from muster.cli.coordinator import connected
from muster.cli.discovery import Kubectl
from muster.cli.errors import CliError
from muster.cli.format import duration
from muster.cli.output import show
from muster.cli.workload_pods import BadWorkload, expanded
from muster.clusterstate.suite import UnreadableObject, facts_of
from muster.coordinator.v1.coordinator_pb2 import RecordsRequest
from muster.forecast.suite import (
    Answer,
    BadSnapshot,
    Forecaster,
    NoPlacement,
    Snapshot,
    Verdict,
    VirtualCluster,
    alternatives,
    decode_record,
    forecaster,
    read_snapshot,
    smaller,
    with_nodes_like,
    without_gang,
    without_node,
    write_snapshot,
)
from muster.gangs.facts import Batch
from muster.telemetry.logs import configure_logs

EXIT_CODES: Final = {Verdict.NOW: 0, Verdict.LATER: 3, Verdict.NEVER: 4, Verdict.UNKNOWN: 5}
_RECORDS_SECONDS: Final = 60.0
_MAX_NODES_SHOWN: Final = 20
_PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True)
class WhatIfRequest:
    """Options of one command."""

    files: Sequence[Path]
    namespace: str
    count: int | None = None
    topology: str = ""
    priority_class: str = ""
    without_gangs: Sequence[str] = ()
    without_nodes: Sequence[str] = ()
    add_nodes: int = 0
    like: str = ""
    horizon_seconds: float = 7 * 86_400.0
    limit_seconds: float = 30.0


class Addresses(NamedTuple):
    """Where the scheduler is."""

    cluster_state: str
    coordinator: str


class Priority(NamedTuple):
    """A PriorityClass."""

    value: int
    never_preempts: bool = False
    is_default: bool = False


def take_snapshot(addresses: Addresses) -> Snapshot:
    """Read the facts of the cluster, and the coordinator's records and settings. Raises CliError."""
    return asyncio.run(_snapshot(addresses))


def save_snapshot(addresses: Addresses, path: Path) -> None:
    """Write it to a file. Raises CliError."""
    snapshot = take_snapshot(addresses)
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


def whatif(request: WhatIfRequest, snapshot: Snapshot, kubectl: Kubectl | None, *, as_json: bool) -> None:
    """Print what would happen, and exit with its code. Raises CliError."""
    configure_logs("whatif", "error", "console")
    classes = _priority_classes(kubectl)
    question = _question(request, classes)
    present, replaced = _without_asked(_changed(request, snapshot), question)
    values = {name: each.value for name, each in classes.items() if name not in _SYSTEM_CLASSES}
    answer, remedies = asyncio.run(_ask(request, present, question, values))
    if as_json:
        typer.echo(json.dumps({**_as_json(answer, remedies, question), "replaces": replaced}, indent=2))
    else:
        notes = [f"  {escape(gang)} exists: this is as if it were replaced" for gang in replaced]
        show(*_lines(answer, remedies, question), *notes)
    sys.exit(EXIT_CODES[answer.verdict])


# -- the question


def _question(request: WhatIfRequest, classes: Mapping[str, Priority]) -> Batch:
    manifests = [each for file in request.files for each in _manifests(file)]
    try:
        objects = expanded(manifests, request.namespace, request.count)
    except BadWorkload as error:
        raise CliError(str(error), usage=True) from error
    names = set()
    for each in objects:
        if each.get("kind") != "Pod":
            continue
        spec = each["spec"]
        if request.priority_class:
            spec["priorityClassName"] = request.priority_class
        if request.topology:
            each["metadata"].setdefault("annotations", {})["muster.dev/topology"] = request.topology
        _admit(each, spec, classes)
        names.add(str(spec.get("schedulerName", "default-scheduler")))
    try:
        facts = facts_of(objects, names)
    except UnreadableObject as error:
        raise CliError(str(error), usage=True) from error
    if not facts.pods:
        files = ", ".join(map(str, request.files))
        raise CliError(f"{files}: no pods, and no workload whose pods are known", usage=True)
    return facts


def _admit(pod: dict[str, Any], spec: dict[str, Any], classes: Mapping[str, Priority]) -> None:
    """Set the priority as admission would. Raises CliError."""
    name = spec.get("priorityClassName")
    if name and name not in classes:
        known = ", ".join(sorted(classes))
        raise CliError(
            f"pod {pod['metadata']['name']}: no PriorityClass is named {name!r}", hint=f"there are {known}", usage=True
        )
    found = classes[name] if name else next((each for each in classes.values() if each.is_default), Priority(0))
    spec["priority"] = found.value
    if found.never_preempts:
        spec.setdefault("preemptionPolicy", "Never")


def _manifests(file: Path) -> list[Mapping[str, Any]]:
    """The objects of a file; lists are divided."""
    try:
        documents = list(yaml.safe_load_all(sys.stdin if str(file) == "-" else file.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}", usage=True) from error
    except yaml.YAMLError as error:
        raise CliError(f"{file} is not YAML: {error}", usage=True) from error
    found: list[Mapping[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise CliError(f"{file}: {str(document)[:60]!r} is not an object", usage=True)
        found += document.get("items") or () if str(document.get("kind", "")).endswith("List") else [document]
    return found


def _priority_classes(kubectl: Kubectl | None) -> dict[str, Priority]:
    """The PriorityClasses that the user may read; the system's own without a cluster."""
    classes = {name: Priority(value) for name, value in _SYSTEM_CLASSES.items()}
    if kubectl is None:
        return classes
    answer = kubectl.run("get", _PRIORITY_CLASSES, "-o", "json")
    if answer.returncode != 0:
        return classes
    for each in json.loads(answer.stdout).get("items", ()):
        never = each.get("preemptionPolicy") == "Never"
        classes[each["metadata"]["name"]] = Priority(int(each["value"]), never, bool(each.get("globalDefault")))
    return classes


# -- the cluster


async def _snapshot(addresses: Addresses) -> Snapshot:
    cluster = VirtualCluster()
    for batch in await read_cluster_snapshot(addresses.cluster_state, "muster snapshot"):
        cluster.apply(batch)
    records, settings = [], dict[str, str]()
    async with connected(addresses.coordinator) as stub:
        async for response in stub.Records(RecordsRequest(), timeout=_RECORDS_SECONDS):
            settings.update(response.settings)
            try:
                records += [decode_record(each) for each in response.records]
            except msgspec.DecodeError as error:
                raise CliError(
                    f"the coordinator at {addresses.coordinator} sent a record that cannot be read: {error}",
                    hint="use the version of muster that runs there",
                ) from error
    return Snapshot(time.time(), settings, tuple(records), cluster.whole())


def _changed(request: WhatIfRequest, snapshot: Snapshot) -> Snapshot:
    """The snapshot with the changes that were asked for. Raises CliError."""
    batch = snapshot.batch
    for name in request.without_gangs:
        known = {each.id for each in batch.gangs} | {pod.gang for pod in batch.pods if pod.gang}
        matching = [id_ for id_ in known if id_ == name or id_.partition("/")[2] == name or id_.endswith(f"/{name}")]
        if len(matching) != 1:
            found = f"several gangs match: {', '.join(sorted(matching)[:10])}" if matching else "there is no such gang"
            raise CliError(f"--without {name}: {found}", usage=True)
        batch = without_gang(batch, matching[0])
    nodes = {node.name for node in batch.nodes}
    for name in (*request.without_nodes, *([request.like] if request.like else [])):
        if name not in nodes:
            raise CliError(f"there is no node {name!r}", usage=True)
    for name in request.without_nodes:
        batch = without_node(batch, name)
    if request.add_nodes:
        if not request.like:
            raise CliError("--add-nodes needs --like NODE: what the new nodes are like", usage=True)
        batch = with_nodes_like(batch, request.like, request.add_nodes)
    return msgspec.structs.replace(snapshot, batch=batch)


def _without_asked(snapshot: Snapshot, question: Batch) -> tuple[Snapshot, list[str]]:
    """The snapshot without gangs and pods of the names that are asked about, and the ids of those gangs."""
    names = {(pod.namespace, pod.name) for pod in question.pods}
    asked = {gang.id for gang in question.gangs}
    batch = snapshot.batch
    found = sorted(asked & {pod.gang for pod in batch.pods if pod.gang})
    for gang in found:
        batch = without_gang(batch, gang)
    pods = tuple(pod for pod in batch.pods if (pod.namespace, pod.name) not in names)
    return msgspec.structs.replace(snapshot, batch=msgspec.structs.replace(batch, pods=pods)), found


# -- the answer


async def _ask(
    request: WhatIfRequest, present: Snapshot, question: Batch, priorities: Mapping[str, int]
) -> tuple[Answer, list[str]]:
    try:
        async with forecaster() as ask:
            answer = await ask.ask(
                present,
                question,
                horizon_seconds=request.horizon_seconds,
                limit_seconds=request.limit_seconds,
            )
            remedies = (
                [] if answer.verdict is Verdict.NOW else await _remedies(ask, request, present, question, priorities)
            )
            return answer, remedies
    except NoPlacement as error:
        raise CliError(str(error)) from error


async def _remedies(
    ask: Forecaster, request: WhatIfRequest, present: Snapshot, question: Batch, priorities: Mapping[str, int]
) -> list[str]:
    """Changes that would let the gangs start now; each was played."""
    found = []
    until = time.monotonic() + request.limit_seconds
    for each in alternatives(question, present.batch, priorities):
        if time.monotonic() > until:
            break
        changed = msgspec.structs.replace(present, batch=each.cluster)
        if await ask.starts_now(changed, each.question, until - time.monotonic()):
            found.append(each.text)
    if len(question.gangs) == 1 and (most := await _most_members(ask, present, question, until)):
        found.append(f"it had {most} members")
    return found


async def _most_members(ask: Forecaster, present: Snapshot, question: Batch, until: float) -> int:
    """The largest number of members with which the gang would start now; 0: none, or not found in time."""
    least, most = 0, len(question.pods)
    while least + 1 < most:
        middle = (least + most) // 2
        if time.monotonic() > until:
            break
        if await ask.starts_now(present, smaller(question, middle), until - time.monotonic()):
            least = middle
        else:
            most = middle
    return least


def _lines(answer: Answer, remedies: Sequence[str], question: Batch) -> list[str]:
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in question.pods}
    gangs = ", ".join(sorted({pod.gang.partition("/")[2] if pod.gang else names[pod.uid] for pod in question.pods}))
    lines = [f"[bold]{escape(gangs)}[/] {escape(_sentence(answer, len(question.pods)))}"]
    if answer.nodes:
        nodes: dict[str, list[str]] = {}
        for uid, node in answer.nodes.items():
            rank = answer.ranks.get(uid)
            nodes.setdefault(node, []).append(names[uid] + (f" (rank {rank})" if rank is not None else ""))
        shown = list(nodes.items())[:_MAX_NODES_SHOWN]
        lines += [f"  {escape(node)}: {escape(', '.join(there))}" for node, there in shown]
        if len(nodes) > _MAX_NODES_SHOWN:
            lines.append(f"  and {len(nodes) - _MAX_NODES_SHOWN} more nodes")
    for gang, pods in answer.victims.items():
        lines.append(f"  preempts {escape(gang)}: {escape(', '.join(pods))}")
    if answer.waits_for:
        lines.append(f"  after the expected ends of {escape(', '.join(answer.waits_for[:_MAX_NODES_SHOWN]))}")
    if answer.reason:
        lines.append(f"  {escape(answer.reason)}")
    lines += [f"  it would start now if {escape(each)}" for each in remedies]
    return lines


def _sentence(answer: Answer, pods: int) -> str:
    started, nodes = len(answer.nodes), len(set(answer.nodes.values()))
    some = "" if started == pods else f" with {started} of {pods} pods"
    match answer.verdict:
        case Verdict.NOW:
            return f"would start now{some} on {nodes} {'node' if nodes == 1 else 'nodes'}"
        case Verdict.LATER:
            assert answer.after_seconds is not None
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + answer.after_seconds))
            return f"would start{some} at about {at} (in {duration(answer.after_seconds)})"
        case Verdict.NEVER:
            return "would not start as long as nothing changes but the ends of pods that are expected"
        case _:
            return "may start or not: no answer was found in time; --limit allows more"


def _as_json(answer: Answer, remedies: Sequence[str], question: Batch) -> dict[str, Any]:
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in question.pods}
    return {
        "verdict": answer.verdict.value,
        "after_seconds": answer.after_seconds,
        "pods": {
            names[uid]: {"node": node, "rank": answer.ranks.get(uid)} for uid, node in sorted(answer.nodes.items())
        },
        "preempts": {gang: list(pods) for gang, pods in answer.victims.items()},
        "after_the_ends_of": list(answer.waits_for),
        "reason": answer.reason,
        "would_start_now_if": list(remedies),
    }
