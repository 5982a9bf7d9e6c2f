"""Proofs by counting that members cannot all be placed; cheap, and silent where only a search could tell."""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import numpy as np

from muster.placement.solve.division import Divider, Growing
from muster.placement.solve.instance import Ground, Part
from muster.placement.solve.level_rules import Shape, relaxed
from muster.placement.state.capacity import Room

_ROUNDING: Final = 1 + 1e-12
"""Sums are floats, which cannot wrap around; exact below 2**53, and beyond that this keeps a proof a proof."""


def impossible(room: Room, parts: Sequence[Part], required: Sequence[int]) -> bool:
    """Proved that the gangs cannot all have `required[gang]` members placed."""
    return _too_few_seats(room, parts, required) or _too_little_free(room, parts, required)


def too_little_within(ground: Ground, required: Sequence[int]) -> bool:
    """Proved that hard constraints let some gang not have `required[gang]` members, whatever the others get."""
    return any(
        _too_few_as_asked(ground, gang, needed)
        or _no_domain_for_all(ground, gang, needed)
        or _too_few_of_a_class(ground, gang, needed)
        for gang, needed in enumerate(required)
    )


def _too_few_as_asked(ground: Ground, gang: int, needed: int) -> bool:
    """Members of all classes together, as if they did not need room beside one another."""
    ours = [part.gang == gang for part in ground.parts]
    caps = ground.fits[ours].sum(axis=0)
    rules = relaxed(ground.asked[gang].rules)[-1]
    tiers = ground.tree.tiers([rule.level for rule in rules], len(caps))
    held = ground.placed[gang]
    if held.any():
        return Growing(rules, tiers, caps, held).capacity < needed
    wanted = sum(part.wanted for part in ground.parts if part.gang == gang)
    return Divider(rules, tiers, caps, wanted).capacity < needed


def _no_domain_for_all(ground: Ground, gang: int, needed: int) -> bool:
    """All must be in one domain, and none has the seats for each class alone."""
    levels = ground.tree.levels
    packed = list(takewhile(lambda rule: rule.shape is Shape.PACK and rule.shape_is_hard, ground.asked[gang].rules))
    if not packed:
        return False
    of = levels[packed[-1].level].of if packed[-1].level < len(levels) else np.arange(len(ground.tree.rows))
    parts = [(index, part.wanted) for index, part in enumerate(ground.parts) if part.gang == gang]
    wanted = sum(count for _, count in parts)
    seats = [np.bincount(of, ground.fits[index]) for index, _ in parts]
    must = [max(0, needed - (wanted - count)) for _, count in parts]
    enough = np.all([have >= count for have, count in zip(seats, must, strict=True)], axis=0)
    return not bool((enough & (np.sum(seats, axis=0) >= needed)).any())


def _too_few_of_a_class(ground: Ground, gang: int, needed: int) -> bool:
    """Hard shapes let some class have fewer seats than it must, since they let it use so many domains only."""
    rules, levels = ground.asked[gang].rules, ground.tree.levels
    limited = [rule for rule in rules if rule.shape_is_hard and rule.shape is not Shape.SPREAD]
    parts = [(index, part.wanted) for index, part in enumerate(ground.parts) if part.gang == gang]
    wanted = sum(count for _, count in parts)
    if not limited or not len(ground.tree.rows):
        return False
    for index, count in parts:
        caps, at = ground.fits[index], np.arange(len(ground.tree.rows))
        for rule, above in zip(rules[::-1], [*rules[-2::-1], None], strict=True):
            owner = levels[above.level].of[at] if above is not None else np.zeros(len(at), np.int64)
            starts = np.flatnonzero(np.diff(owner, prepend=-1))
            if rule in limited:
                order = np.lexsort((-caps, owner))
                place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
                caps = np.where(place < (1 if rule.shape is Shape.PACK else rule.parts), caps[order], 0)
            caps, at = np.add.reduceat(caps, starts), at[starts]
        if int(caps[0]) < needed - (wanted - count):
            return True
    return False


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
