"""Solve requests: pending members by class, with the constraints that placement needs."""

from collections import Counter

from muster.coordinator.core.gang.gang import EquivalenceKey, Gang, Group
from muster.coordinator.core.preemption.nomination import longest_run, may_preempt
from muster.gangs.solve import PodsOnNode, Role, SolveGang, SolveGroup


def to_place(group: Group) -> SolveGroup:
    """The solve request of a group: pending members by class, of gangs that need seats."""
    return SolveGroup(group.id, tuple(_gang_to_place(gang) for gang in group.gangs_to_place), partial=group.accumulates)


def equivalence_key(group: Group, asked: SolveGroup) -> EquivalenceKey:
    """The request without names, whether pods may be evicted for the group, and how long it runs, on which depends
    which nominated capacity it may use (backfill). A right to preempt that is not the priority is part of it: in a
    class, who is ahead in the queue may evict at least as much.
    """
    gangs = ((gang.minimum, gang.roles, gang.tree, gang.constraints, gang.placed) for gang in asked.gangs)
    right = group.right if group.right != group.priority else None
    return (may_preempt(group), right, longest_run(group), asked.partial, *gangs)


def demand(group: Group) -> Counter[str]:
    """Members of the group to place, by class."""
    return Counter(pod.class_id for gang in group.gangs_to_place for pod in gang.pending.values())


def _gang_to_place(gang: Gang) -> SolveGang:
    counts = Counter(pod.class_id for pod in gang.pending.values())
    roles = tuple(Role(class_id, count) for class_id, count in sorted(counts.items()))
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
