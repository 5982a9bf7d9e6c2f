"""Proofs by counting that members cannot all be placed; cheap, and silent where only a search could tell."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from muster.placement.parts import Part
from muster.placement.room import Room

_ROUNDING: Final = 1 + 1e-12
"""Sums are floats, which cannot wrap around; exact below 2**53, and beyond that this keeps a proof a proof."""


def impossible(room: Room, parts: Sequence[Part], required: Sequence[int]) -> bool:
    """Proved that the gangs cannot all have `required[gang]` members placed."""
    return _too_few_seats(room, parts, required) or _too_little_free(room, parts, required)


def _too_few_seats(room: Room, parts: Sequence[Part], required: Sequence[int]) -> bool:
    """Each class alone in the cluster: too few of its members fit."""
    seats = {class_id: int(room.of(class_id).fits.sum()) for class_id in {part.class_id for part in parts}}
    must_seat: Counter[str] = Counter()
    for gang, needed in enumerate(required):
        ours = [part for part in parts if part.gang == gang]
        if sum(min(part.wanted, seats[part.class_id]) for part in ours) < needed:
            return True
        wanted = sum(part.wanted for part in ours)
        for part in ours:
            must_seat[part.class_id] += max(0, needed - (wanted - part.wanted))
    return any(count > seats[class_id] for class_id, count in must_seat.items())


def _too_little_free(room: Room, parts: Sequence[Part], required: Sequence[int]) -> bool:
    """Each resource by itself: the members that ask least of it ask more than nodes that take any of them have."""
    rooms = {part.class_id: room.of(part.class_id) for part in parts}
    useful = np.logical_or.reduce([of_class.fits > 0 for of_class in rooms.values()])
    resources = len(room.free)
    for column in range(resources):
        asked = 0
        for gang, needed in enumerate(required):
            least = sorted(
                (int(rooms[p.class_id].vector(resources)[column]), p.wanted) for p in parts if p.gang == gang
            )
            for amount, wanted in least:
                asked += amount * min(wanted, needed)
                needed -= min(wanted, needed)
        free = float(np.maximum(room.free[column, useful], 0).sum(dtype=np.float64))
        if asked > free * _ROUNDING:
            return True
    return False
