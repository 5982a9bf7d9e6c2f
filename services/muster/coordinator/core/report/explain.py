"""Explains a gang: its progress as dialects report it, its position in the queue, gangs ahead of it, and changes that
would unblock it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from heapq import merge, nlargest
from itertools import chain
from typing import Final

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Phase
from muster.coordinator.core.gang.gang import Gang, Group, QueueKey
from muster.coordinator.core.gang.uncounted import missing_members
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.report.reasons import in_units, reason
from muster.coordinator.core.slices import OBJECTS, Slices, parts
from muster.dialects.progress import MemberProgress, Progress, Stage
from muster.dialects.registry import timeout_annotations
from muster.gangs.facts import PodFacts, PodPhase, Severity, TopologyTree

MAX_AHEAD = 10
_RANKS: Final = {Phase.SATISFIED: 1, Phase.ENDED: 2}
"""Order of gangs that are listed behind the pending ones."""
_KIND = re.compile(r"/[A-Z][A-Za-z0-9]*\.(?=[^/]*$)")
"""Kind of the controller that a gang is named after, in the gang's id; names of other gangs have no capitals."""

_STAGES: Final = {
    Phase.GATHERING: Stage.GATHERING,
    Phase.QUEUED: Stage.READY,
    Phase.SOLVING: Stage.READY,
    Phase.WAITING: Stage.READY,
    Phase.PERMITTED: Stage.ASSIGNED,
    Phase.BINDING: Stage.PERMITTED,
    Phase.REPAIRING: Stage.PERMITTED,
    Phase.SATISFIED: Stage.BOUND,
    Phase.ENDED: Stage.ENDED,
    Phase.TIMED_OUT: Stage.TIMED_OUT,
}


class UnknownGang(LookupError):
    """No gang has this name; `close` are similar names."""

    def __init__(self, name: str, close: Sequence[str]) -> None:
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        super().__init__(f'there is no gang "{name[:253]}"{hint}')


class AmbiguousGang(LookupError):
    """Several gangs have this name."""

    def __init__(self, name: str, ids: Sequence[str]) -> None:
        super().__init__(f'"{name[:253]}" matches several gangs: {", ".join(ids[:10])}; give the id of one')


def find(gangs: Mapping[str, Gang], name: str) -> Slices[Gang]:
    """Finds a gang by id, "namespace/name" or name. The name of a gang that is named after a controller, "Kind.name",
    may be given without the kind if it is unique. Raises UnknownGang and AmbiguousGang.
    """
    if name in gangs:
        return gangs[name]
    known = tuple(gangs.values())
    found = yield from _filtered(known, lambda gang: name in _short(gang.id))
    if not found:
        found = yield from _filtered(known, lambda gang: name in _short(_KIND.sub("/", gang.id)))
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousGang(name, sorted(gang.id for gang in found))
    stem = name.rsplit("/", 1)[-1][:4]
    close = yield from _filtered(known, lambda gang: bool(stem) and stem in gang.id)
    raise UnknownGang(name, sorted(gang.id for gang in close)[:5])


def _filtered(gangs: tuple[Gang, ...], admits: Callable[[Gang], bool]) -> Slices[list[Gang]]:
    found: list[Gang] = []
    for part in parts(gangs):
        found += filter(admits, part)
        yield
    return found


def _short(id_: str) -> tuple[str, str]:
    return id_.split("/", 1)[-1], id_.rsplit("/", 1)[-1]


def untried(gang: Gang, position: int) -> str:
    """Why a complete gang of which placement has said nothing yet does not run; "" for others. `position`: its own in
    the queue, 0 if it is not queued. Pods that wait so shortly get no condition.
    """
    if gang.phase is Phase.SOLVING:
        return f"gang {gang.label} was not answered by placement yet, which is solving it"
    if gang.phase is not Phase.QUEUED or not position:
        return ""
    ahead = position - 1
    groups = "no gang group is" if not ahead else "1 gang group is" if ahead == 1 else f"{ahead} gang groups are"
    return f"gang {gang.label} was not tried yet; {groups} ahead of it in the queue"


def stage_of(gang: Gang, phase: Phase) -> Stage:
    """Returns the stage of a gang in this phase."""
    return Stage.PREEMPTED if gang.eviction.preempted_by and not gang.permit.granted else _STAGES[phase]


def progress_of(gang: Gang, cache: Cache) -> Progress | None:
    """Returns the progress of a gang; None while its declaration is unknown."""
    facts = gang.facts
    if facts is None:
        return None
    tree = cache.trees.get(facts.tree)
    return Progress(
        facts=facts,
        stage=stage_of(gang, gang.phase),
        members=_members(gang, cache, tree),
        reason=reason(gang),
        root=tree.name if tree is not None else "",
        levels=tree.level_names if tree is not None else (),
        began=gang.timing.ready_unix,
        ended=gang.timing.bound_unix,
        solver_seconds=gang.attempts.solver_seconds,
        preemptor=gang.eviction.preempted_by if not gang.permit.granted else "",
    )


def _members(gang: Gang, cache: Cache, tree: TopologyTree | None) -> tuple[MemberProgress, ...]:
    """Lists members that stay or have succeeded, by name."""
    ranks = dict(gang.permit.record.ranks) if gang.permit.record is not None else {}
    tries = gang.permit.attempts if gang.permit.granted else gang.attempts.total
    domains: dict[str, tuple[str, ...]] = {"": ()}
    members = []
    for pod in sorted(gang.pods.values(), key=lambda pod: (pod.name, pod.uid)):
        if pod.deleting or pod.phase is PodPhase.FAILED or pod.uid in gang.eviction.pods:
            continue
        node = pod.node or reserved_node(gang, pod)
        if node not in domains:
            facts = cache.ledger.nodes.get(node)
            above = cache.trees.above(tree, facts) if tree is not None and facts is not None else None
            domains[node] = tuple(above or ())
        bound = bool(pod.node) or pod.uid in gang.acknowledged
        rank = ranks.get(pod.uid)
        members.append(MemberProgress(pod.uid, pod.name, node, domains[node], rank, tries, bound))
    return tuple(members)


def in_order(cache: Cache, namespace: str = "") -> Slices[list[str]]:
    """Ids of all gangs, or of those in a namespace: pending ones in queue order, then running ones, then ended
    ones. Gangs that are deleted between the slices are left out, or not.
    """
    keys: dict[Group, QueueKey] = {}
    runs: list[list[tuple[int, QueueKey, str]]] = []
    for ids in parts(tuple(cache.gangs)):
        run = []
        for id_ in ids:
            gang = cache.gangs.get(id_)
            if gang is None or (namespace and id_.split("/", 2)[1] != namespace):
                continue
            if (key := keys.get(gang.group)) is None:
                key = keys[gang.group] = gang.group.key
            run.append((_RANKS.get(gang.phase, 0), key, id_))
        runs.append(sorted(run))
        yield
    merged: list[str] = []
    for *_, id_ in merge(*runs):
        merged.append(id_)
        if len(merged) % OBJECTS == 0:
            yield
    return merged


def ahead_of(queue: Queue, gang: Gang) -> Slices[tuple[int, list[str]]]:
    """Returns the gang's position in the queue from 1 (0: not queued) and the ids of gangs ahead, the nearest first."""
    if gang.group not in queue:
        return 0, []
    own = (gang.group.key, gang.group.id)
    nearest: list[tuple[QueueKey, str]] = []
    ahead = 0
    for groups in parts(tuple(queue.groups.values())):
        positions = [(group.key, group.id) for group in groups if group in queue]
        before = [position for position in positions if position < own]
        ahead += len(before)
        nearest = nlargest(MAX_AHEAD, chain(nearest, before))
        yield
    there = [group for _, id_ in nearest if (group := queue.groups.get(id_)) is not None]
    return ahead + 1, [member.id for group in there for member in group.gangs][:MAX_AHEAD]


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
    if pod.uid in gang.hold.marked or pod.uid in gang.hold.marking:
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


def nodes_with_nominated_capacity(cache: Cache, gang: Gang) -> int:
    """Number of nodes with capacity that is nominated for its group."""
    nomination = cache.nominations.get(gang.group)
    return len({node for node, _ in nomination.capacity}) if nomination is not None else 0


def evicted_for(cache: Cache, gang: Gang) -> list[str]:
    """Ids of gangs that are evicted for its group."""
    nomination = cache.nominations.get(gang.group)
    if nomination is None:
        return []
    evicted = [other for other in cache.gangs.values() if other.eviction.pods]
    return sorted(other.id for other in evicted if other.eviction.preemptor == nomination.owner)


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
        helps += _lacked(gang)
    elif not gang.placed_singly and not facts.blocked and gang.counted < gang.required:
        helps += missing_members(gang)
        helps += _lacked(gang)
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


def _lacked(gang: Gang) -> list[str]:
    """What the last attempt lacked of a gang that is not tried now; it may lack that again."""
    explanation = gang.group.solve.explanation
    if explanation is None or explanation.gang not in ("", gang.id):
        return []
    return [f"besides, what it lacked at its last attempt: {explanation.remedy or explanation.summary}"]


def _of(resource: str, amount: int) -> str:
    units = in_units(resource, amount)
    return f"{units} of" if units.endswith("B") else units
