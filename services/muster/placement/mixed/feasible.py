"""Whether a group has a place at all as its hard constraints ask; soft ones have no say."""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.solver import find_interacting, members_interact
from muster.placement.mixed.constrained import has_any_place
from muster.placement.mixed.mixed import seat_minimums
from muster.placement.mixed.search import Budget
from muster.placement.room.parts import Part, alike
from muster.placement.room.room import Room
from muster.placement.shapes.shaped import NoSeats, seats_for

_SHAPES: Final = (LevelPolicy.PACK, LevelPolicy.SPREAD, LevelPolicy.PARTITION)


def only_hard(group: SolveGroup) -> SolveGroup:
    """The group without soft constraints that do not matter to what is hard.

    Hard shapes are kept within each domain of the levels above that have a constraint, so levels stay where there are
    any, with their shapes, and only soft ranges and factors go.
    """
    gangs = (structs.replace(gang, constraints=_hard_of(gang.constraints)) for gang in group.gangs)
    return structs.replace(group, gangs=tuple(gangs))


def _hard_of(constraints: Sequence[LevelConstraint]) -> tuple[LevelConstraint, ...]:
    if not any(each.hard and each.policy in _SHAPES for each in constraints):
        return tuple(each for each in constraints if each.hard)
    kept = [each for each in constraints if each.hard or each.policy in _SHAPES]
    levels = dict.fromkeys(each.level for each in constraints)
    shaped = {each.level for each in kept}
    return *kept, *(LevelConstraint(level, LevelPolicy.PACK) for level in levels if level not in shaped)


def is_constrained(group: SolveGroup) -> bool:
    """It asks for more than room."""
    return any(gang.constraints for gang in group.gangs)


def has_place(room: Room, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """All minimums have a place together, as far as the budget reaches to tell. Nothing stays taken."""
    if members_interact(room, parts):
        return find_interacting(room, group, parts, budget) is not None
    if not is_constrained(group):
        mark = room.mark()
        seated = seat_minimums(room, group, parts, budget) is not None
        room.undo(mark)
        return seated
    if len(group.gangs) == 1 and alike(parts):
        seats = seats_for(room, group.gangs[0], parts[0], budget)
        if not isinstance(seats, NoSeats) or seats.proved:
            return not isinstance(seats, NoSeats)
    return has_any_place(room, group, parts, budget)
