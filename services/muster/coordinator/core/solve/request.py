"""Solve requests: pending members by kind, with the constraints that placement needs."""

from collections import Counter

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.gang.gang import EquivalenceKey, Gang, Group
from muster.coordinator.core.preemption.nomination import longest_run, may_preempt
from muster.gangs.solve import PodsOnNode, Role, SolveGang, SolveGroup


def to_place(group: Group, ledger: Ledger) -> SolveGroup:
    """The solve request of a group: pending members by kind, of gangs that need seats."""
    gangs = tuple(_gang_to_place(gang, ledger) for gang in group.gangs_to_place)
    return SolveGroup(group.id, gangs, partial=group.accumulates)


def equivalence_key(group: Group, request: SolveGroup) -> EquivalenceKey:
    """The request without names, whether pods may be evicted for the group, and how long it runs, on which depends
    which nominated capacity it may use (backfill). A right to preempt that is not the priority is part of it: in a
    class, who is ahead in the queue may evict at least as much.
    """
    gangs = ((gang.minimum, gang.roles, gang.tree, gang.constraints, gang.placed) for gang in request.gangs)
    right = group.right if group.right != group.priority else None
    return (may_preempt(group), right, longest_run(group), request.partial, *gangs)


def demand(group: Group) -> Counter[str]:
    """Members of the group to place, by class."""
    return Counter(pod.class_id for gang in group.gangs_to_place for pod in gang.pending.values())


def kinds_to_place(group: Group, ledger: Ledger) -> set[str]:
    """Kinds of the members of the group to place."""
    pending = {(pod.class_id, pod.label_set) for gang in group.gangs_to_place for pod in gang.pending.values()}
    return {ledger.kind(class_id, label_set) for class_id, label_set in pending}


def _gang_to_place(gang: Gang, ledger: Ledger) -> SolveGang:
    pending = Counter((pod.class_id, pod.label_set) for pod in gang.pending.values())
    counts: Counter[str] = Counter()
    for (class_id, label_set), count in pending.items():
        counts[ledger.kind(class_id, label_set)] += count
    roles = tuple(Role(kind, count) for kind, count in sorted(counts.items()))
    minimum, facts = min(gang.minimum, len(gang.pending)), gang.facts
    avoided = tuple(sorted(gang.bind.avoided_nodes))
    if facts is None or not gang.constraints:
        return SolveGang(gang.id, minimum, roles, facts.tree if facts is not None else "", avoided=avoided)
    return SolveGang(gang.id, minimum, roles, facts.tree, gang.constraints, placed(gang), avoided)


def placed(gang: Gang) -> tuple[PodsOnNode, ...]:
    """Members that have a seat or are bound, by node and class."""
    running = ((gang.pods[uid].node, gang.pods[uid].class_id) for uid in gang.bound)
    decided = ((seat.node, seat.class_id) for seat in (*gang.unbound_seats, *gang.acknowledged.values()))
    counts = Counter((*running, *decided))
    return tuple(PodsOnNode(node, class_id, count) for (node, class_id), count in sorted(counts.items()))
