"""What placement is asked about a group."""

from collections import Counter

from muster.coordinator.core.model import Gang, Group, Shape
from muster.gangs.placing import GangToPlace, GroupToPlace, Role


def to_place(group: Group) -> GroupToPlace:
    """The waiting members by class; gangs that need nothing more are left out."""
    return GroupToPlace(group.id, tuple(_gang_to_place(gang) for gang in group.to_seat), partial=group.accumulates)


def shape_of(group: Group, asked: GroupToPlace) -> Shape:
    """What is asked for the group, without its names, and whether others may be evicted for it."""
    return (may_preempt(group), asked.partial, *((gang.minimum, gang.roles) for gang in asked.gangs))


def may_preempt(group: Group) -> bool:
    """None of the members that it has to place says that nothing is to be evicted for it."""
    return not any(pod.never_preempts for gang in group.to_seat for pod in gang.waiting.values())


def _gang_to_place(gang: Gang) -> GangToPlace:
    counts = Counter(pod.class_id for pod in gang.waiting.values())
    roles = tuple(Role(class_id, count) for class_id, count in sorted(counts.items()))
    return GangToPlace(gang.id, min(gang.minimum, len(gang.waiting)), roles)
