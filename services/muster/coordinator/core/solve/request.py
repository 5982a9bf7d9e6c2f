"""What placement is asked about a group."""

from collections import Counter

from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.gang.state import EquivalenceKey
from muster.coordinator.core.preemption.nomination import longest_run
from muster.gangs.solve import PodsOnNode, Role, SolveGang, SolveGroup


def to_place(group: Group) -> SolveGroup:
    """The waiting members by class; gangs that need nothing more are left out."""
    return SolveGroup(group.id, tuple(_gang_to_place(gang) for gang in group.gangs_to_place), partial=group.accumulates)


def equivalence_key(group: Group, asked: SolveGroup) -> EquivalenceKey:
    """What is asked for the group, without its names, whether others may be evicted for it, and how long it runs: that
    decides what room it may use until somebody else needs it.
    """
    gangs = ((gang.minimum, gang.roles, gang.tree, gang.constraints, gang.placed) for gang in asked.gangs)
    return (may_preempt(group), longest_run(group), asked.partial, *gangs)


def may_preempt(group: Group) -> bool:
    """None of its gangs, and of the members that it has to place, says that nothing is to be evicted for it."""
    to_seat = group.gangs_to_place
    if any(gang.facts is not None and gang.facts.never_preempts for gang in to_seat):
        return False
    return not any(pod.never_preempts for gang in to_seat for pod in gang.pending.values())


def _gang_to_place(gang: Gang) -> SolveGang:
    counts = Counter(pod.class_id for pod in gang.pending.values())
    roles = tuple(Role(class_id, count) for class_id, count in sorted(counts.items()))
    minimum, facts = min(gang.minimum, len(gang.pending)), gang.facts
    avoided = tuple(sorted(gang.bind.avoided_nodes))
    if facts is None or not gang.constraints:
        return SolveGang(gang.id, minimum, roles, facts.tree if facts is not None else "", avoided=avoided)
    return SolveGang(gang.id, minimum, roles, facts.tree, gang.constraints, placed(gang), avoided)


def placed(gang: Gang) -> tuple[PodsOnNode, ...]:
    """Members that have a place already, by node and class."""
    running = ((gang.pods[uid].node, gang.pods[uid].class_id) for uid in gang.bound)
    decided = ((seat.node, seat.class_id) for seat in (*gang.unbound_seats, *gang.acknowledged.values()))
    counts = Counter((*running, *decided))
    return tuple(PodsOnNode(node, class_id, count) for (node, class_id), count in sorted(counts.items()))
