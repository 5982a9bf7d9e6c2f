"""Divides members over few domains: the same as `divide` for one segment, where lists are faster than arrays."""

from collections.abc import Sequence
from typing import Final

FEW: Final = 96
"""Domains up to which it is faster."""


def pack_few(caps: Sequence[int], wanted: int, *, one: bool) -> list[int] | None:
    """Few domains: the tightest that holds all, or the roomiest and the tightest that holds the rest."""
    counts = [0] * len(caps)
    whole = [(cap, at) for at, cap in enumerate(caps) if cap >= wanted]
    if whole:
        counts[min(whole)[1]] = wanted
        return counts
    if one:
        return None
    left = wanted
    roomiest_first = sorted(range(len(caps)), key=lambda at: (-caps[at], at))
    for nth, at in enumerate(roomiest_first):
        if caps[at] > left:
            if left:
                counts[min((caps[at], at) for at in roomiest_first[nth:] if caps[at] >= left)[1]] = left
            return counts
        counts[at] = caps[at]
        left -= caps[at]
    return None if left else counts


def level_few(
    caps: Sequence[int], wanted: int, parts: int, difference: int | None, *, partition: bool
) -> list[int] | None:
    """As evenly as room allows over `parts` domains, or as many as there can be; `difference` as in `divide`."""
    order = sorted(range(len(caps)), key=lambda at: (caps[at], at), reverse=True)
    room = [caps[at] for at in order if caps[at]]
    if difference is not None:
        numbers = range(min(parts, len(room), wanted), 0, -1)
        even = next((number for number in numbers if _is_even(room, wanted, number, difference)), 0)
        if not even or (partition and even != parts):
            return None
        parts = even
    else:
        parts = min(parts, len(room), wanted)
        while partition and parts < len(room) and sum(room[:parts]) < wanted:
            parts += 1
    if sum(room[:parts]) < wanted:
        return None
    return _fill(caps, order, wanted, parts)


def _fill(caps: Sequence[int], order: Sequence[int], wanted: int, parts: int) -> list[int]:
    counts = [0] * len(caps)
    rest, sharing = wanted, parts
    while sharing and caps[order[sharing - 1]] * sharing <= rest:
        sharing -= 1
        counts[order[sharing]] = caps[order[sharing]]
        rest -= caps[order[sharing]]
    if sharing:
        each, more = divmod(rest, sharing)
        least = max(1, each + (more > 0))
        able = [at for at in order if caps[at] >= least and not counts[at]]
        for turn, at in enumerate(sorted(able[len(able) - sharing :])):
            counts[at] = each + (turn < more)
    return counts


def _is_even(room: Sequence[int], wanted: int, parts: int, difference: int) -> bool:
    each, more = divmod(wanted, parts)
    return room[parts - 1] >= each and (not more or (difference > 0 and room[more - 1] > each))
