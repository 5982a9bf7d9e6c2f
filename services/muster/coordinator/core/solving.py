"""What placement is asked for a gang group."""

from collections import Counter
from dataclasses import dataclass

from muster.coordinator.core.model import Gang, Group
from muster.gangs.placing import GangToPlace, GroupToPlace, Role


@dataclass(slots=True, frozen=True)
class Attempt:
    """A solve under way: the groups, and what was asked for each, by group id."""

    solve_id: int
    groups: list[Group]
    asked: dict[str, GroupToPlace]
    began: float


def to_solve(group: Group) -> GroupToPlace:
    """The waiting members by class; gangs that need nothing more are left out."""
    return GroupToPlace(group.id, tuple(_gang_to_solve(gang) for gang in group.gangs if gang.waiting))


def _gang_to_solve(gang: Gang) -> GangToPlace:
    counts = Counter(pod.class_id for pod in gang.waiting.values())
    roles = tuple(Role(class_id, count) for class_id, count in sorted(counts.items()))
    return GangToPlace(gang.id, min(gang.minimum, len(gang.waiting)), roles)
