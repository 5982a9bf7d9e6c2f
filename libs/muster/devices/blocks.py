"""Blocks of device groups that share counters, such as the partitions of one card."""

from typing import NamedTuple

from muster.devices.instance import Shape


class Block(NamedTuple):
    """Groups that share counters. Blocks of one kind differ in nothing but their state."""

    kind: int
    groups: tuple[int, ...]
    counters: tuple[int, ...]


def blocks_of(shape: Shape) -> list[Block]:
    """The connected components of groups and counters."""
    block_of: dict[int, int] = {}
    blocks: dict[int, tuple[list[int], list[int]]] = {}
    for number, group in enumerate(shape.groups):
        joined = sorted({block_of[counter] for counter, _ in group.consumes if counter in block_of})
        target = joined[0] if joined else number
        groups, counters = blocks.setdefault(target, ([], []))
        for each in joined[1:]:
            more_groups, more_counters = blocks.pop(each)
            groups += more_groups
            counters += more_counters
        groups.append(number)
        counters += [counter for counter, _ in group.consumes if counter not in block_of]
        block_of |= dict.fromkeys(counters, target)
    kinds: dict[tuple[object, ...], int] = {}
    found = []
    for groups, counters in blocks.values():
        groups.sort()
        places = {counter: place for place, counter in enumerate(counters)}
        kind = tuple(
            (each.selected, each.usable, each.values, each.total, tuple((places[key], n) for key, n in each.consumes))
            for each in (shape.groups[group] for group in groups)
        )
        found.append(Block(kinds.setdefault(kind, len(kinds)), tuple(groups), tuple(counters)))
    return found
