"""The main path: a batch of groups in order, each placed whole or not at all, on what the ones before it left free."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.placing import GroupToPlace, Run
from muster.placement.answers import Answer, NotPlaced, Placed
from muster.placement.explain import Explainer
from muster.placement.mixed import place_mixed
from muster.placement.packing import choose, fewest_nodes, tightest_first
from muster.placement.parts import Attempt, Part, parts_of, runs_of, take
from muster.placement.room import Room
from muster.placement.search import Budget

STEPS_PER_GROUP: Final = 10_000
STEPS_PER_BATCH: Final = 30_000
"""What exact searches may spend: about 5 microseconds a step. Gangs of 10 on 4 nodes that quick tries cannot place take
some hundred steps, of 16 on 6 nodes up to 3,000."""


def solve(room: Room, groups: Sequence[GroupToPlace]) -> Iterator[Answer]:
    """An answer per group, in order. What is placed stays taken in `room`; the caller undoes it when done.

    Between two answers the caller may pause, as long as nobody else touches the room.
    """
    batch = _Batch(room)
    for single, run in groupby(groups, key=_is_single):
        alike = list(run)
        yield from batch.place_singles(alike) if single else map(batch.place, alike)


def _is_single(group: GroupToPlace) -> bool:
    """The group is one pod."""
    return len(group.gangs) == 1 and len(group.gangs[0].roles) == 1 and group.gangs[0].roles[0].wanted == 1


def _class_of(single: GroupToPlace) -> str:
    return single.gangs[0].roles[0].class_id


class _Batch:
    """One batch. Groups that ask what one asked that failed fail likewise, as long as nothing was placed since."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._explainer = Explainer(room)
        self._steps_left = STEPS_PER_BATCH
        self._failed: dict[tuple[object, ...], tuple[NotPlaced, int]] = {}

    def place(self, group: GroupToPlace) -> Answer:
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

    def place_singles(self, groups: list[GroupToPlace]) -> Iterator[Answer]:
        """Single pods. Where all have room their order does not matter, and each class is seated in one go."""
        nodes = self._seat_all(groups)
        if nodes is not None:
            yield from map(_placed, groups, nodes)
            return
        for class_id, run in groupby(groups, key=_class_of):
            equal = list(run)
            nodes = self._seat(class_id, len(equal))
            yield from map(_placed, equal, nodes)
            yield from map(self.place, equal[len(nodes) :])

    def _seat_all(self, groups: list[GroupToPlace]) -> list[str] | None:
        """A node for each of the pods, hardest classes first; None, and nothing taken, if not all have room."""
        counts = Counter(map(_class_of, groups))
        seats = {class_id: int(self._room.of(class_id).fits.sum()) for class_id in counts}
        mark = self._room.mark()
        nodes: dict[str, Iterator[str]] = {}
        for class_id in sorted(counts, key=lambda class_id: (seats[class_id], class_id)):
            seated = self._seat(class_id, counts[class_id])
            if len(seated) < counts[class_id]:
                self._room.undo(mark)
                return None
            nodes[class_id] = iter(seated)
        return [next(nodes[_class_of(group)]) for group in groups]

    def _seat(self, class_id: str, wanted: int) -> list[str]:
        """Nodes for up to so many equal pods, each where it would have gone if they had come one by one."""
        room = self._room
        of_class = room.of(class_id)
        rows, counts = choose(room, of_class, wanted, tightest_first)
        if len(rows):
            room.take(of_class, rows, counts)
            self._failed.clear()
        return [room.nodes.name(row) for row in np.repeat(rows, counts).tolist()]

    def _place_equal(self, group: GroupToPlace, parts: Sequence[Part]) -> Answer:
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


def _placed(single: GroupToPlace, node: str) -> Placed:
    return Placed((Run(single.gangs[0].id, 0, node, 1),))
