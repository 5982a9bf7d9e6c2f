"""`muster explain GANG`: everything that the coordinator knows about one gang."""

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import typer
from google.protobuf.json_format import MessageToDict
from rich.markup import escape

from muster.cli.coordinator import call, explain_gang
from muster.cli.discovery import Kubectl
from muster.cli.errors import CliError
from muster.cli.format import amount, duration, gang_as_json, local_time, phase_markup
from muster.cli.missing_members import missing_members
from muster.cli.output import show
from muster.cli.played_changes import Play, Played, played_changes
from muster.clusterstate.v1.clusterstate_pb2 import Problem, ResourceAmount
from muster.coordinator.v1.coordinator_pb2 import ExplainResponse, Gang, Member, Phase

_MAX_LISTED = 10  # members and gangs that are named before "and N more"
_MEANING = {
    Phase.PHASE_GATHERING: "it is incomplete or its declaration is invalid",
    Phase.PHASE_QUEUED: "it waits for its turn, or for a change in the cluster that could help it",
    Phase.PHASE_SOLVING: "placement is solving it",
    Phase.PHASE_WAITING: "some members hold reservations and wait for the rest",
    Phase.PHASE_PERMITTED: "it has a placement; its permit is being persisted",
    Phase.PHASE_BINDING: "its permit is durable; pods are being bound",
    Phase.PHASE_SATISFIED: "it has started",
    Phase.PHASE_REPAIRING: "it has started, but some of the members that it needs do not run",
    Phase.PHASE_ENDED: "it has started, and no member is left: all have ended or were deleted",
    Phase.PHASE_TIMED_OUT: "it waited longer than its waiting-time; edit it or replace its pods to schedule it again",
}

_UNCOUNTED = ("deleting", "ended", "gated", "invalid", "timed-out")
"""States of pods that exist and do not count as members."""
_WITHOUT_PENDING = (Phase.PHASE_SATISFIED, Phase.PHASE_ENDED)


def explain(address: str, name: str, *, as_json: bool, play: Play, kubectl: Kubectl | None = None) -> None:
    """Print the explanation of a gang, then the changes with which it would start now; with kubectl also why
    controllers do not create members, and if `play` has a service forecast, when it is expected to start. Raises
    CliError.
    """
    answer = call(address, lambda stub: explain_gang(stub, address, name))
    missing = missing_members(kubectl, answer) if kubectl is not None else []
    start = _expected_start(play.forecast, answer.gang) if play.forecast else None
    if not as_json:  # what is known already is not kept back while changes are played
        show(*explanation_lines(answer, missing, start.words if start else ""))
    try:
        played = played_changes(play, address, answer.gang, kubectl)
    except CliError as error:
        typer.echo(f"no changes were played: {error.message}", err=True)
        played = None
    if as_json:
        typer.echo(json.dumps(_as_json(answer, missing, start, played), indent=2))
    elif played is not None:
        show(*played_lines(played))


def _as_json(
    answer: ExplainResponse, missing: Sequence[str], start: "_ExpectedStart | None", played: Played | None
) -> dict[str, Any]:
    return {
        **explanation_as_json(answer),
        "missing_members": missing,
        "would_start_now": played.starts_now if played is not None else None,
        "would_start_now_if": played.changes if played is not None else None,
        "expected_start": start.as_json if start is not None else None,
    }


class _ExpectedStart(NamedTuple):
    """When a gang is expected to start: in words with what that depends on, and as JSON."""

    words: str
    as_json: dict[str, Any]


def _expected_start(forecast: str, gang: Gang) -> _ExpectedStart | None:
    """None: the gang does not wait."""
    from muster.cli.queue import start_as_json, start_in_words, starts_by_service
    from muster.rpc.expected_starts import assumption

    starts = starts_by_service(forecast, gang.namespace)
    start = next((each for each in starts.gangs if each.gang == gang.id), None)
    if start is None:
        return None
    return _ExpectedStart(f"{start_in_words(start)}. {assumption(starts)}", start_as_json(start))


def explanation_as_json(answer: ExplainResponse) -> dict[str, Any]:
    """For --output json: the fields of the response, with the gang as `muster gangs` prints it."""
    fields = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {**fields, "gang": gang_as_json(answer.gang)}


def explanation_lines(answer: ExplainResponse, missing: Sequence[str] = (), start: str = "") -> Iterator[str]:
    """Lines with rich markup, most important first. `missing`: why controllers do not create members; `start`: when the
    gang is expected to start.
    """
    gang = answer.gang
    name = f"[bold]{escape(gang.namespace)}/{escape(gang.name)}[/]"
    yield f"{name} is {phase_markup(gang.phase)}: {_MEANING.get(gang.phase, '')}."
    if gang.reason:
        yield f"  {escape(gang.reason)}"
    yield ""
    yield f"[dim]declared by[/]  {escape(gang.dialect)}{_group(answer)}"
    yield from (f"             {escape(term)}" for term in gang.terms)
    yield f"[dim]members[/]      {_members(answer)}"
    yield f"[dim]queue[/]        {_queue(answer)}"
    if start:
        yield f"[dim]start[/]        expected {escape(start)}"
    if answer.waits_until_unix_millis:
        until = local_time(answer.waits_until_unix_millis)
        yield f"[dim]waits[/]        until {until}; then all its reservations are released"
    if answer.grows_after_unix_millis:
        left = max(0, math.ceil(answer.grows_after_unix_millis / 1000 - time.time()))
        yield f"[dim]growth[/]       was shrunk; may grow again in {left} s"
    if answer.nodes_with_nominated_capacity:
        yield f"[dim]nominated[/]    {_nominated(answer)}"
    if answer.rejected_placements:
        yield f"[dim]rejected[/]     {_rejected(answer)}"
    if gang.HasField("start_seconds"):
        yield f"[dim]start[/]        {duration(gang.start_seconds)} from its first pod to its last bind"
    if gang.trace_id:
        yield f"[dim]trace[/]        {gang.trace_id}  (muster trace {escape(gang.id)})"
    yield from _problems(answer)
    if missing:
        yield from ("", "[bold]Why members are missing[/]", *(f"  - {escape(each)}" for each in missing))
    yield from _placement(answer)
    yield from _devices(answer)
    yield from _ahead(answer)
    yield from _lacks(answer)
    yield from _pods(answer)


def _group(answer: ExplainResponse) -> str:
    partners = [partner for partner in answer.group if partner != answer.gang.id]
    return f", starts together with {escape(', '.join(partners))}" if partners else ""


def _nominated(answer: ExplainResponse) -> str:
    nodes = answer.nodes_with_nominated_capacity
    capacity = f"capacity on {nodes} {'node' if nodes == 1 else 'nodes'}"
    victims = [gang.split("/", 1)[-1] for gang in answer.victims]
    if victims:
        return f"{capacity}, while {_some(victims, len(victims))} are evicted"
    return f"{capacity}, until enough pods have ended there"


def _rejected(answer: ExplainResponse) -> str:
    count = sum(each.count for each in answer.rejected_placements)
    reasons = ", ".join(f"{each.count} {escape(each.reason)}" for each in answer.rejected_placements)
    return f"{'1 solve response' if count == 1 else f'{count} solve responses'} of placement: {reasons}"


def _members(answer: ExplainResponse) -> str:
    gang = answer.gang
    minimum = f"{gang.minimum} must start together" if gang.minimum else "no valid minimum declared"
    states = Counter(member.state for member in answer.members if member.state in _UNCOUNTED)
    kept_back = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    exist = len(answer.members) - states["ended"] if states else gang.members
    short = gang.minimum - exist + states["deleting"]
    missing = f", [yellow]{short} missing[/]" if short > 0 and gang.phase == Phase.PHASE_GATHERING else ""
    reserved = f", {gang.reserved} reserved" if gang.reserved else ""
    return f"{exist} exist{f' ({kept_back})' if kept_back else ''}, {gang.bound} bound{reserved}; {minimum}{missing}"


def _queue(answer: ExplainResponse) -> str:
    gang = answer.gang
    position = f"position {answer.queue_position}" if answer.queue_position else "not queued"
    valid = "" if answer.schedule_cycle_valid or not gang.schedule_cycle else ", in which a member failed"
    attempts = f"{answer.attempts} {'attempt' if answer.attempts == 1 else 'attempts'}"
    return f"{position}, priority {gang.priority}, schedule cycle {gang.schedule_cycle}{valid}, {attempts}"


def _problems(answer: ExplainResponse) -> Iterator[str]:
    for problem in answer.problems:
        warning = problem.severity == Problem.SEVERITY_WARNING
        label = "[yellow]warning[/]" if warning else "[red]error[/]"
        yield f"{label}  {escape(problem.message)}"


def _placement(answer: ExplainResponse) -> Iterator[str]:
    if not answer.HasField("explanation") or answer.gang.phase in _WITHOUT_PENDING:
        return
    if lines := list(_infeasibility(answer)):
        yield from ("", "[bold]Why it does not fit[/]", *lines)


def _infeasibility(answer: ExplainResponse) -> Iterator[str]:
    explanation = answer.explanation
    if explanation.summary and explanation.summary not in answer.gang.reason:
        yield f"  {escape(explanation.summary)}"
    if explanation.needed:
        other = explanation.gang and explanation.gang != answer.gang.id
        of_gang = f" of {escape(explanation.gang)}" if other else ""
        yield f"  {explanation.fit} of {explanation.needed} members{of_gang} fit at best"
    if explanation.best_domain:
        yield f"  {explanation.best_domain_fit} fit in {escape(explanation.best_domain)}, the best domain"
    if explanation.short_by:
        yield f"  short by {', '.join(map(_amount, explanation.short_by))}"
    for filtered in explanation.filtered_nodes:
        yield f"  {filtered.nodes:>5} {'node' if filtered.nodes == 1 else 'nodes'}  {escape(filtered.reason)}"


def _devices(answer: ExplainResponse) -> Iterator[str]:
    """Devices for the claims of members, by kind of claims."""
    if answer.claimed_devices:
        yield ""
        yield f"[bold]Devices for {_wanted_by(answer)}[/]"
    unlisted = 0
    for each in answer.claimed_devices:
        if not each.requests:
            unlisted += each.pods
            continue
        equal = "requests" if all(request.extended_resource for request in each.requests) else "claims"
        others = f" and {each.pods - 1} more with equal {equal}" if each.pods > 1 else ""
        yield f"  pod {escape(each.pod)}{others}"
        yield from (f"  - {escape(request.summary)}" for request in each.requests)
        if each.conflict:
            yield f"  - {escape(each.conflict)}"
    if unlisted:
        yield f"  and {unlisted} {'pod' if unlisted == 1 else 'pods'} with other claims"


def _wanted_by(answer: ExplainResponse) -> str:
    extended = {bool(request.extended_resource) for each in answer.claimed_devices for request in each.requests}
    return {(True,): "extended resources", (False, True): "ResourceClaims and extended resources"}.get(
        tuple(sorted(extended)), "ResourceClaims"
    )


def _ahead(answer: ExplainResponse) -> Iterator[str]:
    if answer.ahead:
        yield ""
        yield f"[bold]Ahead of it[/]  {escape(_some(list(answer.ahead), answer.queue_position - 1))}"


def _lacks(answer: ExplainResponse) -> Iterator[str]:
    """Facts: doing one of them may not suffice."""
    if answer.would_help:
        yield ""
        yield "[bold]What it lacks[/]"
        yield from (f"  - {escape(each)}" for each in answer.would_help)


def played_lines(played: Played) -> Iterator[str]:
    """Lines with rich markup: the changes with which the gang would start now."""
    yield ""
    if played.starts_now:
        yield "[bold]It would start now[/] as the cluster is: it waits for its turn"
        return
    yield "[bold]It would start now if[/]  (each was played on a copy of the cluster)"
    yield from (f"  - {escape(change)}" for change in played.changes)
    if not played.changes:
        yield "  no single change with which it would was found in time"


def _pods(answer: ExplainResponse) -> Iterator[str]:
    if not answer.members:
        return
    yield ""
    states = Counter(member.state for member in answer.members)
    yield f"[bold]Pods[/]  {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}"
    for member in answer.members[:_MAX_LISTED]:
        yield f"  {escape(member.pod)}  {_seat(member)}"
    if (more := len(answer.members) - _MAX_LISTED) > 0:
        yield f"  [dim]and {more} more[/]"


def _seat(member: Member) -> str:
    if member.node:
        return f"[green]{escape(member.state)}[/] on {escape(member.node)}"
    if member.reserved_node:
        return f"[cyan]{escape(member.state)}[/] on {escape(member.reserved_node)}"
    return f"[yellow]{escape(member.state)}[/]"


def _some(names: list[str], total: int) -> str:
    shown = ", ".join(names[:_MAX_LISTED])
    return f"{shown} and {total - len(names)} more" if total > len(names) else shown


def _amount(short_by: ResourceAmount) -> str:
    return f"{amount(short_by.name, short_by.amount)} {short_by.name}"
