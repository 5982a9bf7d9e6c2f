"""Explains a gang: its position in the queue, the gangs ahead of it, and changes that would unblock it."""

import re
from collections.abc import Mapping, Sequence

from muster.coordinator.core.effects import Phase
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group, QueueKey
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.report.reasons import in_units
from muster.dialects.registry import timeout_annotations
from muster.gangs.facts import PodFacts, Severity

MAX_AHEAD = 10
_RUNNING = (Phase.SATISFIED,)
_KIND = re.compile(r"/[A-Z][A-Za-z0-9]*\.(?=[^/]*$)")
"""Kind of the controller that a gang is named after, in the gang's id; names of other gangs have no capitals."""


class UnknownGang(LookupError):
    """No gang has this name; `close` are similar names."""

    def __init__(self, name: str, close: Sequence[str]) -> None:
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        super().__init__(f'there is no gang "{name[:253]}"{hint}')


class AmbiguousGang(LookupError):
    """Several gangs have this name."""

    def __init__(self, name: str, ids: Sequence[str]) -> None:
        super().__init__(f'"{name[:253]}" matches several gangs: {", ".join(ids[:10])}; give the id of one')


def find(gangs: Mapping[str, Gang], name: str) -> Gang:
    """Finds a gang by id, "namespace/name" or name. The name of a gang that is named after a controller, "Kind.name",
    may be given without the kind if it is unique. Raises UnknownGang and AmbiguousGang.
    """
    if name in gangs:
        return gangs[name]
    parts = name.split("/")
    found = [gang for gang in gangs.values() if name in _short(gang.id)]
    found = found or [gang for gang in gangs.values() if name in _short(_KIND.sub("/", gang.id))]
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousGang(name, sorted(gang.id for gang in found))
    stem = parts[-1][:4]
    raise UnknownGang(name, sorted(id_ for id_ in gangs if stem and stem in id_)[:5])


def _short(id_: str) -> tuple[str, str]:
    return id_.split("/", 1)[-1], id_.rsplit("/", 1)[-1]


def in_order(machine: Machine) -> list[Gang]:
    """Lists all gangs: pending ones in queue order, then running ones."""
    keys: dict[Group, QueueKey] = {}

    def place(gang: Gang) -> tuple[bool, QueueKey, str]:
        key = keys.get(gang.group)
        if key is None:
            key = keys[gang.group] = gang.group.key
        return (gang.phase in _RUNNING, key, gang.id)

    return sorted(machine.cache.gangs.values(), key=place)


def ahead_of(machine: Machine, gang: Gang) -> tuple[int, list[str]]:
    """Returns the gang's position in the queue from 1 (0: not queued) and the ids of gangs ahead, the nearest first."""
    groups = list(machine.queue.ordered())
    if gang.group not in groups:
        return 0, []
    turn = groups.index(gang.group)
    nearest = [member.id for group in reversed(groups[:turn]) for member in group.gangs]
    return turn + 1, nearest[:MAX_AHEAD]


def pod_state(gang: Gang, pod: PodFacts) -> str:
    """Returns the state of a member in one word."""
    if pod.phase.ended:
        return "ended"
    if pod.deleting:
        return "deleting"
    if pod.uid in gang.eviction.pods:
        return "evicted"
    if pod.node:
        return "bound"
    if pod.problem:
        return "invalid"
    if pod.gated:
        return "gated"
    if pod.uid in gang.hold.marked or pod.uid in gang.hold.timing_out:
        return "timed-out"
    return "reserved" if pod.uid in gang.seats or pod.uid in gang.acknowledged else "pending"


def reserved_node(gang: Gang, pod: PodFacts) -> str:
    """Returns the node on which a member has a reservation; "" if none."""
    if (held := gang.seats.get(pod.uid)) is not None:
        return held.seat.node
    return seat.node if (seat := gang.acknowledged.get(pod.uid)) is not None else ""


def waits_until_unix_millis(gang: Gang) -> int:
    """Returns when a waiting gang times out, by the leader's wall clock; 0 if it does not wait."""
    if gang.permit.granted or not gang.seats or gang.hold.since is None or gang.facts is None:
        return 0
    return gang.hold.since_unix_millis + int(gang.facts.waiting_time_seconds * 1000)


def nodes_with_nominated_capacity(machine: Machine, gang: Gang) -> int:
    """Nodes that have room kept for its group."""
    kept = machine.cache.nominations.get(gang.group)
    return len({node for node, _ in kept.capacity}) if kept is not None else 0


def evicted_for(machine: Machine, gang: Gang) -> list[str]:
    """Ids of gangs that are evicted for its group."""
    kept = machine.cache.nominations.get(gang.group)
    if kept is None:
        return []
    gangs = machine.cache.gangs.values()
    return sorted(other.id for other in gangs if other.eviction.pods and other.eviction.preemptor == kept.owner)


def would_help(gang: Gang) -> list[str]:
    """Lists changes that would unblock the gang; empty if nothing blocks it."""
    facts, group = gang.facts, gang.group
    if facts is None or (gang.permit.granted and not gang.pending):
        return []
    helps = [
        f"correct its declaration: {problem.message}"
        for problem in facts.problems
        if problem.severity is Severity.BLOCKING
    ]
    if gang.timed_out:
        mark = next(iter(timeout_annotations(gang.id, True)), "of the timeout")
        helps.append(f"remove the annotation {mark} from its pods, replace the pods, or edit its declaration")
    elif not gang.placed_singly and not facts.blocked and gang.counted < gang.required:
        missing, reached = gang.required - gang.counted, facts.minimum - gang.required + gang.counted
        helps.append(f"{missing} more {'pod' if missing == 1 else 'pods'}, or a minimum of at most {reached}")
    if group.not_ready is not None and not helps:
        helps.append(f"resolve what keeps its gang group out of the queue: {group.not_ready}")
    explanation = group.solve.explanation
    if group.not_ready is None and explanation is not None:
        if explanation.remedy:
            about = f"gang {explanation.gang.split('/', 1)[-1]}: " if explanation.gang not in ("", gang.id) else ""
            helps.append(about + explanation.remedy)
        helps += [
            f"at least {_of(name, amount)} more {name} on nodes that it may use"
            for name, amount in explanation.short_by
        ]
        helps += [
            f"{count} {'node is' if count == 1 else 'nodes are'} filtered out: {why}"
            for why, count in explanation.filtered_nodes
        ]
    if group.queueing.failure:
        helps.append(f"nothing: it is retried soon; the last attempt failed: {group.queueing.failure}")
    return helps


def _of(resource: str, amount: int) -> str:
    units = in_units(resource, amount)
    return f"{units} of" if units.endswith("B") else units
