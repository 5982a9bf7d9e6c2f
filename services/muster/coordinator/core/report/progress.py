"""The progress of a gang as its dialect reports it, computed when it is written."""

from typing import Final

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Phase
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.report.reasons import reason
from muster.dialects.progress import MemberProgress, Progress, Stage
from muster.gangs.facts import PodFacts, PodPhase, TopologyTree

_STAGES: Final = {
    Phase.GATHERING: Stage.GATHERING,
    Phase.QUEUED: Stage.READY,
    Phase.SOLVING: Stage.READY,
    Phase.WAITING: Stage.READY,
    Phase.PERMITTED: Stage.ASSIGNED,
    Phase.BINDING: Stage.PERMITTED,
    Phase.REPAIRING: Stage.PERMITTED,
    Phase.SATISFIED: Stage.BOUND,
    Phase.TIMED_OUT: Stage.TIMED_OUT,
}


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
        levels=tuple(level.name for level in tree.levels) if tree is not None else (),
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
        node = _node(gang, pod)
        if node not in domains:
            facts = cache.ledger.nodes.get(node)
            above = cache.trees.above(tree, facts) if tree is not None and facts is not None else None
            domains[node] = tuple(above or ())
        bound = bool(pod.node) or pod.uid in gang.acknowledged
        rank = ranks.get(pod.uid)
        members.append(MemberProgress(pod.uid, pod.name, node, domains[node], rank, tries, bound))
    return tuple(members)


def _node(gang: Gang, pod: PodFacts) -> str:
    """Returns the node that a pod is bound to or has a seat on; "" if none."""
    if pod.node:
        return pod.node
    if (held := gang.seats.get(pod.uid)) is not None:
        return held.seat.node
    return seat.node if (seat := gang.acknowledged.get(pod.uid)) is not None else ""
