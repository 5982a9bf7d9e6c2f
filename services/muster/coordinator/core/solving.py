"""What placement is asked for a gang group."""

from collections import Counter
from dataclasses import dataclass

from muster.coordinator.core.events import GangToSolve, GroupToSolve, Role
from muster.coordinator.core.model import Gang, Group


@dataclass(slots=True, frozen=True)
class Attempt:
    """A solve under way: the groups, and what was asked for each, by group id."""

    solve_id: int
    groups: list[Group]
    asked: dict[str, GroupToSolve]
    began: float


def to_solve(group: Group) -> GroupToSolve:
    """The waiting members by class; gangs that need nothing more are left out."""
    return GroupToSolve(group.id, tuple(_gang_to_solve(gang) for gang in group.gangs if gang.waiting))


def _gang_to_solve(gang: Gang) -> GangToSolve:
    counts = Counter(pod.class_id for pod in gang.waiting.values())
    roles = tuple(Role(class_id, count) for class_id, count in sorted(counts.items()))
    return GangToSolve(gang.id, min(gang.minimum, len(gang.waiting)), roles)
