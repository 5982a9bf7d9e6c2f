"""Groups whose members are all of one class: counting how many fit settles it."""

from collections.abc import Sequence

from muster.gangs.solve import SolveGroup
from muster.placement.answers import NotPlaced, Placed
from muster.placement.explain import Explainer
from muster.placement.room.packing import fewest_nodes
from muster.placement.room.parts import Attempt, Part, assignments_of, take
from muster.placement.room.room import Room


def place_equal(room: Room, group: SolveGroup, parts: Sequence[Part], explainer: Explainer) -> Placed | NotPlaced:
    """Place every gang's minimum and as many more as have room, first gangs first."""
    class_id = parts[0].class_id
    room_for = int(room.of(class_id).fits.sum())
    spare = room_for - sum(gang.minimum for gang in group.gangs)
    if spare < 0:
        for index, gang in enumerate(group.gangs):
            if gang.minimum > room_for:
                return NotPlaced(True, explainer.too_many(group, index, class_id, fit=room_for))
            room_for -= gang.minimum
    attempt = Attempt([0] * len(parts))
    for index, part in enumerate(parts):
        minimum = group.gangs[part.gang].minimum
        extra = min(spare, part.wanted - minimum)
        spare -= extra
        take(room, index, part, minimum + extra, fewest_nodes, attempt)
    return Placed(assignments_of(room, group, parts, attempt))
