"""`muster explain GANG`: everything the coordinator knows about one gang, in prose."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.markup import escape

from muster.cli.coordinator import ask, explain_gang
from muster.cli.format import duration, gang_as_json, moment, phase_markup
from muster.cli.screen import show
from muster.clusterstate.v1.clusterstate_pb2 import Problem, ResourceAmount
from muster.coordinator.v1.coordinator_pb2 import ExplainResponse, Gang, Member, Phase

_LISTED = 10  # members and gangs that are named before "and N more"
_MEANING = {
    Phase.PHASE_GATHERING: "it lacks members, or what it asks for cannot be",
    Phase.PHASE_QUEUED: "it waits for its turn, or for something to change",
    Phase.PHASE_SOLVING: "a place is being looked for",
    Phase.PHASE_WAITING: "some members hold places and wait for the rest",
    Phase.PHASE_PERMITTED: "it has a place; the decision is being made durable",
    Phase.PHASE_BINDING: "its start is decided and durable; pods are being bound",
    Phase.PHASE_SATISFIED: "it has started",
    Phase.PHASE_REPAIRING: "it has started, but members could not be bound where decided; they are placed again",
    Phase.PHASE_TIMED_OUT: "it waited longer than allowed and is not tried until you change it",
}


def explain(address: str, name: str, *, as_json: bool) -> None:
    """Print what is known about a gang. Raises CliError."""
    answer = ask(address, lambda stub: explain_gang(stub, address, name))
    if as_json:
        typer.echo(json.dumps(explanation_as_json(answer), indent=2))
        return
    show(*explanation_lines(answer))


def explanation_as_json(answer: ExplainResponse) -> dict[str, Any]:
    """For --output json: the contract's fields by their names, the gang as `muster gangs` prints it."""
    rest = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {**rest, "gang": gang_as_json(answer.gang)}


def explanation_lines(answer: ExplainResponse) -> Iterator[str]:
    """Lines with rich markup, the most important first."""
    gang = answer.gang
    name = f"[bold]{escape(gang.namespace)}/{escape(gang.name)}[/]"
    yield f"{name} is {phase_markup(gang.phase)}: {_MEANING.get(gang.phase, '')}."
    if gang.reason:
        yield f"  {escape(gang.reason)}"
    yield ""
    yield f"[dim]declared by[/]  {escape(gang.dialect)}{_group(answer)}"
    yield from (f"             {escape(term)}" for term in gang.terms)
    yield f"[dim]members[/]      {_members(gang)}"
    yield f"[dim]queue[/]        {_queue(answer)}"
    if answer.waits_until_unix_millis:
        until = moment(answer.waits_until_unix_millis)
        yield f"[dim]waits[/]        until {until}; then all reservations are given back"
    if answer.nodes_with_kept_room:
        yield f"[dim]room[/]         {_kept(answer)}"
    if answer.rejected_answers:
        yield f"[dim]rejected[/]     {_rejected(answer)}"
    if gang.HasField("start_seconds"):
        yield f"[dim]start[/]        {duration(gang.start_seconds)} from its first pod to its last bind"
    if gang.trace_id:
        yield f"[dim]trace[/]        {gang.trace_id}  (muster trace {escape(gang.id)})"
    yield from _problems(answer)
    yield from _placement(answer)
    yield from _ahead(answer)
    yield from _would_help(answer)
    yield from _where(answer)


def _group(answer: ExplainResponse) -> str:
    partners = [partner for partner in answer.group if partner != answer.gang.id]
    return f", starts together with {escape(', '.join(partners))}" if partners else ""


def _kept(answer: ExplainResponse) -> str:
    nodes = answer.nodes_with_kept_room
    room = f"kept for it on {nodes} {'node' if nodes == 1 else 'nodes'}"
    evicted = [gang.split("/", 1)[-1] for gang in answer.evicted_for_it]
    return (
        f"{room}, while {_some(evicted, len(evicted))} make way" if evicted else f"{room}, until enough has ended there"
    )


def _rejected(answer: ExplainResponse) -> str:
    count = sum(each.count for each in answer.rejected_answers)
    why = ", ".join(f"{each.count} {escape(each.reason)}" for each in answer.rejected_answers)
    what = "1 answer of placement was" if count == 1 else f"{count} answers of placement were"
    return f"{what} not taken: {why}"


def _members(gang: Gang) -> str:
    minimum = f"{gang.minimum} must start together" if gang.minimum else "no valid minimum is declared"
    short = gang.minimum - gang.members
    missing = f", [yellow]{short} missing[/]" if short > 0 and gang.phase == Phase.PHASE_GATHERING else ""
    reserved = f", {gang.reserved} reserved" if gang.reserved else ""
    return f"{gang.members} exist, {gang.bound} bound{reserved}; {minimum}{missing}"


def _queue(answer: ExplainResponse) -> str:
    gang = answer.gang
    turn = f"turn {answer.queue_position}" if answer.queue_position else "not queued"
    valid = "" if answer.schedule_cycle_valid or not gang.schedule_cycle else ", in which a member failed"
    tries = f"{answer.attempts} {'try' if answer.attempts == 1 else 'tries'} so far"
    return f"{turn}, priority {gang.priority}, schedule cycle {gang.schedule_cycle}{valid}, {tries}"


def _problems(answer: ExplainResponse) -> Iterator[str]:
    for problem in answer.problems:
        warning = problem.severity == Problem.SEVERITY_WARNING
        label = "[yellow]warning[/]" if warning else "[red]mend this[/]"
        yield f"{label}  {escape(problem.message)}"


def _placement(answer: ExplainResponse) -> Iterator[str]:
    if not answer.HasField("explanation") or answer.gang.phase == Phase.PHASE_SATISFIED:
        return
    if lines := list(_why_no_place(answer)):
        yield from ("", "[bold]Why it has no place[/]", *lines)


def _why_no_place(answer: ExplainResponse) -> Iterator[str]:
    said = answer.explanation
    if said.summary and said.summary not in answer.gang.reason:
        yield f"  {escape(said.summary)}"
    if said.needed:
        who = f" of {escape(said.gang)}" if said.gang and said.gang != answer.gang.id else ""
        yield f"  {said.fit} of {said.needed} members{who} fit at best"
    if said.best_domain:
        yield f"  {said.best_domain_fit} fit in {escape(said.best_domain)}, and nowhere more"
    if said.short_by:
        yield f"  short by {', '.join(map(_amount, said.short_by))}"
    for lost in said.filtered_nodes:
        yield f"  {lost.nodes:>5} {'node' if lost.nodes == 1 else 'nodes'}  {escape(lost.reason)}"


def _ahead(answer: ExplainResponse) -> Iterator[str]:
    if answer.ahead:
        yield ""
        yield f"[bold]Ahead of it[/]  {escape(_some(list(answer.ahead), answer.queue_position - 1))}"


def _would_help(answer: ExplainResponse) -> Iterator[str]:
    if answer.would_help:
        yield ""
        yield "[bold]What would let it start[/]"
        for help_ in answer.would_help:
            yield f"  - {escape(help_)}"


def _where(answer: ExplainResponse) -> Iterator[str]:
    if not answer.members:
        return
    yield ""
    states = Counter(member.state for member in answer.members)
    yield f"[bold]Pods[/]  {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}"
    for member in answer.members[:_LISTED]:
        yield f"  {escape(member.pod)}  {_seat(member)}"
    if (more := len(answer.members) - _LISTED) > 0:
        yield f"  [dim]and {more} more[/]"


def _seat(member: Member) -> str:
    if member.node:
        return f"[green]{escape(member.state)}[/] on {escape(member.node)}"
    if member.reserved_node:
        return f"[cyan]{escape(member.state)}[/] on {escape(member.reserved_node)}"
    return f"[yellow]{escape(member.state)}[/]"


def _some(names: list[str], total: int) -> str:
    shown = ", ".join(names[:_LISTED])
    return f"{shown} and {total - len(names)} more" if total > len(names) else shown


def _amount(amount: ResourceAmount) -> str:
    """In the units that people write: 1500 millicores are "1.5 cpu"."""
    name, value = amount.name, amount.amount
    if name == "cpu":
        return f"{value / 1000:g} cpu"
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if value >= size:
                return f"{value / size:.3g}{unit} {name}"
    return f"{value} {name}"
