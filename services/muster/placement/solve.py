"""The main path: a batch of groups in order, each placed whole or not at all, on what the ones before it left free."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.placement.explain import Explainer
from muster.placement.groups import Answer, Group, NotPlaced, Placed, Run
from muster.placement.mixed import place_mixed
from muster.placement.packing import choose, fewest_nodes, tightest_first
from muster.placement.parts import Attempt, Part, parts_of, runs_of, take
from muster.placement.room import Room
from muster.placement.search import Budget

STEPS_PER_GROUP: Final = 20_000
STEPS_PER_BATCH: Final = 60_000
"""What exact searches may spend; a step takes a few microseconds, so that no batch holds up others for long."""


def solve(room: Room, groups: Sequence[Group]) -> Iterator[Answer]:
    """An answer per group, in order. What is placed stays taken in `room`; the caller undoes it when done.

    Between two answers the caller may pause, as long as nobody else touches the room.
    """
    batch = _Batch(room)
    for class_id, run in groupby(groups, key=_single_class):
        if class_id is None:
            yield from map(batch.place, run)
        else:
            yield from batch.place_singles(class_id, list(run))


def _single_class(group: Group) -> str | None:
    """Class of the only member of the group; None if it has more."""
    if len(group.gangs) == 1 and len(group.gangs[0].roles) == 1 and group.gangs[0].roles[0].wanted == 1:
        return group.gangs[0].roles[0].class_id
    return None


class _Batch:
    """One batch. Groups that ask what one asked that failed fail likewise, as long as nothing was placed since."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._explainer = Explainer(room)
        self._steps_left = STEPS_PER_BATCH
        self._failed: dict[tuple[object, ...], tuple[NotPlaced, int]] = {}

    def place(self, group: Group) -> Answer:
        shape = tuple((gang.minimum, gang.roles) for gang in group.gangs)
        known = self._failed.get(shape)
        if known is not None:
            answer, gang_index = known
            return replace(answer, explanation=replace(answer.explanation, gang=group.gangs[gang_index].id))
        parts = parts_of(group)
        if all(part.class_id == parts[0].class_id for part in parts):
            answered = self._place_equal(group, parts)
        else:
            budget = Budget(min(STEPS_PER_GROUP, self._steps_left))
            granted = budget.left
            answered = place_mixed(self._room, group, parts, self._explainer, budget)
            self._steps_left -= granted - max(0, budget.left)
        if isinstance(answered, NotPlaced):
            gang_ids = [gang.id for gang in group.gangs]
            self._failed[shape] = answered, gang_ids.index(answered.explanation.gang)
        else:
            self._failed.clear()
        return answered

    def place_singles(self, class_id: str, groups: list[Group]) -> Iterator[Answer]:
        """Equal pods that come one by one: the seats are chosen in one go, each where it would have gone alone."""
        room = self._room
        of_class = room.of(class_id)
        rows, counts = choose(room, of_class, len(groups), tightest_first)
        if len(rows):
            room.take(of_class, rows, counts)
            self._failed.clear()
        nodes = [room.nodes.name(row) for row in np.repeat(rows, counts).tolist()]
        for group, node in zip(groups, nodes, strict=False):
            yield Placed((Run(group.gangs[0].id, 0, node, 1),))
        yield from map(self.place, groups[len(nodes) :])

    def _place_equal(self, group: Group, parts: Sequence[Part]) -> Answer:
        """All members are of one class, so that counting how many fit settles it."""
        room = self._room
        class_id = parts[0].class_id
        room_for = int(room.of(class_id).fits.sum())
        spare = room_for - sum(gang.minimum for gang in group.gangs)
        if spare < 0:
            for index, gang in enumerate(group.gangs):
                if gang.minimum > room_for:
                    return NotPlaced(True, self._explainer.too_many(group, index, class_id, fit=room_for))
                room_for -= gang.minimum
        attempt = Attempt([0] * len(parts))
        for index, part in enumerate(parts):
            minimum = group.gangs[part.gang].minimum
            extra = min(spare, part.wanted - minimum)
            spare -= extra
            take(room, index, part, minimum + extra, fewest_nodes, attempt)
        return Placed(runs_of(room, group, parts, attempt))
