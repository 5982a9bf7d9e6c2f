"""A group taken apart for the search: members of one gang that are equal are one part, whatever their roles."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.gangs.solve import Assignment, SolveGroup
from muster.placement.room.packing import Choice, Seats, choose
from muster.placement.room.room import Room


@dataclass(frozen=True)
class Part:
    """Members of one class of one gang, in the order of the gang's roles."""

    gang: int
    class_id: str
    wanted: int
    roles: tuple[tuple[int, int], ...]
    """(index of the role, how many it wants)."""


@dataclass
class Attempt:
    """What was taken for the parts of a group: `placed[p]` members of part p, at `seats`."""

    placed: list[int]
    seats: list[tuple[int, Seats]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.placed)

    def of_gang(self, parts: Sequence[Part], gang: int) -> int:
        """How many members of a gang are placed."""
        return sum(count for part, count in zip(parts, self.placed, strict=True) if part.gang == gang)


def parts_of(group: SolveGroup) -> list[Part]:
    """Parts of the group in the order of its gangs and roles."""
    parts = []
    for gang_index, gang in enumerate(group.gangs):
        by_class: dict[str, list[tuple[int, int]]] = {}
        for role_index, role in enumerate(gang.roles):
            by_class.setdefault(role.class_id, []).append((role_index, role.wanted))
        for class_id, roles in by_class.items():
            parts.append(Part(gang_index, class_id, sum(wanted for _, wanted in roles), tuple(roles)))
    return parts


def alike(parts: Sequence[Part]) -> bool:
    """All members are of one class."""
    return all(part.class_id == parts[0].class_id for part in parts)


def minimums_reached(group: SolveGroup, parts: Sequence[Part], attempt: Attempt) -> bool:
    """Every gang of the group has its minimum."""
    return all(attempt.of_gang(parts, index) >= gang.minimum for index, gang in enumerate(group.gangs))


def take(room: Room, part_index: int, part: Part, wanted: int, choice: Choice, attempt: Attempt) -> int:
    """Take room for up to `wanted` more members of a part; returns how many got it."""
    of_class = room.of(part.class_id)
    rows, counts = choose(room, of_class, wanted, choice)
    if not len(rows):
        return 0
    room.take(of_class, rows, counts)
    attempt.seats.append((part_index, (rows, counts)))
    placed = int(counts.sum())
    attempt.placed[part_index] += placed
    return placed


def retake(room: Room, parts: Sequence[Part], attempt: Attempt) -> None:
    """Take again what an attempt had taken before it was undone."""
    for index, (rows, counts) in attempt.seats:
        room.take(room.of(parts[index].class_id), rows, counts)


def assignments_of(room: Room, group: SolveGroup, parts: Sequence[Part], attempt: Attempt) -> tuple[Assignment, ...]:
    """The attempt in the words of the answer, by gang, role and node name. First roles get their members first."""
    seats: list[list[Seats]] = [[] for _ in parts]
    for index, taken in attempt.seats:
        seats[index].append(taken)
    assignments: list[Assignment] = []
    for part, taken_by_part in zip(parts, seats, strict=True):
        if taken_by_part:
            assignments.extend(_assignments_of_part(room, group.gangs[part.gang].id, part, taken_by_part))
    return tuple(assignments)


def _assignments_of_part(room: Room, gang: str, part: Part, seats: list[Seats]) -> list[Assignment]:
    rows = np.concatenate([rows for rows, _ in seats]) if len(seats) > 1 else seats[0][0]
    counts = np.concatenate([counts for _, counts in seats]) if len(seats) > 1 else seats[0][1]
    by_rank: dict[int, int] = {}
    for rank, count in zip(room.nodes.rank[rows].tolist(), counts.tolist(), strict=True):
        by_rank[rank] = by_rank.get(rank, 0) + count
    order = room.nodes.order
    assignments = []
    roles = iter(part.roles)
    role, open_seats = next(roles)
    for rank in sorted(by_rank):
        count, node = by_rank[rank], room.nodes.name(int(order[rank]))
        while count:
            if not open_seats:
                role, open_seats = next(roles)
            here = min(count, open_seats)
            assignments.append(Assignment(gang, role, node, here))
            count -= here
            open_seats -= here
    return assignments
