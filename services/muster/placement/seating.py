"""Seats members that mind one another: by levels of domains where one label is all they mind, else one by one."""

from itertools import islice
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.levelling import Levelling, Within, moving_rules
from muster.placement.packing import Seats, choose, fewest_nodes
from muster.placement.parts import Attempt, Part
from muster.placement.regions import Region, common_domains
from muster.placement.room import ClassRoom, Room

_ONE: Final = np.array([1])


def seat(room: Room, index: int, part: Part, wanted: int, region: Region, attempt: Attempt) -> int:
    """Take room for up to `wanted` more members of a part; returns how many got it."""
    seated = 0
    for domain in _domains(room, part, region):
        of_class = room.of(part.class_id)
        if _one_by_one(of_class):
            while seated < wanted and _seat_one(room, index, part, domain, attempt):
                seated += 1
            break
        rows, counts = _seats(room, of_class, wanted, domain)
        if len(rows):
            _take(room, of_class, index, (rows, counts), attempt)
            seated = int(counts.sum())
            break
    return seated


def _domains(room: Room, part: Part, region: Region) -> list[Region]:
    """Where members that want to be together can be; as good as any where the next ones are."""
    regions = common_domains(room, [part], region)
    if regions is None:
        return [region]
    return [*islice(regions, 1)]


def _one_by_one(of_class: ClassRoom) -> bool:
    """Where a member goes matters to the next one in more ways than one."""
    limits = of_class.limits
    if limits is None:
        return False
    return limits.couples_softly() or len({rule.key for rule in moving_rules(limits)}) > 1


def _seats(room: Room, of_class: ClassRoom, wanted: int, region: Region) -> Seats:
    moving = moving_rules(of_class.limits)
    if moving:
        levelling = Levelling(of_class, moving[0].key, moving, region)
        return levelling.seats(room, min(wanted, levelling.most))
    if region is None:
        return choose(room, of_class, wanted, fewest_nodes)
    return choose(room, Within(np.where(region, of_class.fits, 0), of_class.dislike), wanted, fewest_nodes)


def _seat_one(room: Room, index: int, part: Part, region: Region, attempt: Attempt) -> bool:
    """Seat a member where it is liked most, then where spreading wants it first, then on the tightest node."""
    of_class = room.of(part.class_id)
    fits = of_class.fits if region is None else np.where(region, of_class.fits, 0)
    rows = np.flatnonzero(fits > 0)
    if not len(rows):
        return False
    rows = _least(rows, of_class.dislike[rows])
    for rule in of_class.limits.spread if of_class.limits is not None else ():
        counts, _ = rule.counts()
        rows = _least(rows, counts[rule.domains.codes[rows]])
    open_fits = np.zeros_like(fits)
    open_fits[rows] = fits[rows]
    key = room.keys(Within(open_fits, of_class.dislike)).min(keepdims=True)
    _take(room, of_class, index, (room.rows_of(key), _ONE), attempt)
    return True


def _least(rows: Int64, values: Int64) -> Int64:
    least: Int64 = rows[values == values.min()]
    return least


def _take(room: Room, of_class: ClassRoom, index: int, seats: Seats, attempt: Attempt) -> None:
    room.take(of_class, *seats)
    attempt.seats.append((index, seats))
    attempt.placed[index] += int(seats[1].sum())
