"""What would let a gang start that has no place: the domain in which it comes nearest, and the smallest change."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.placing import GangToPlace
from muster.placement.easing import ask_less, one_each
from muster.placement.eligibility import ABSENT, USABLE
from muster.placement.room import ClassRoom, Room
from muster.placement.trees import Tree
from muster.topology.constraints import in_words

_AS_GOOD: Final = (LevelPolicy.RANGE, LevelPolicy.FACTOR, LevelPolicy.PARTITION, LevelPolicy.SPREAD, LevelPolicy.PACK)
"""Of hard constraints of one level, what is proposed first to be made soft."""


def best_domain(tree: Tree, level: int, caps: Int64) -> tuple[str, int]:
    """The domain of a level in which most members fit, as a path, and how many; ("", 0) where there is nothing to say.

    `caps` is int64[nodes of the tree]: members that fit on each.
    """
    if not len(caps) or level >= len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    fit = np.add.reduceat(caps, starts)
    best = int(fit.argmax())
    return (tree.path(level, best), int(fit[best])) if fit[best] else ("", 0)


def telling_level(tree: Tree, constraints: Sequence[LevelConstraint]) -> int:
    """The level whose best domain says most: that of the lowest hard pack above the nodes, else the lowest of all."""
    names = tree.level_names[:-1]
    packed = [
        names.index(each.level)
        for each in constraints
        if each.hard and each.policy is LevelPolicy.PACK and each.level in names
    ]
    return max(packed, default=len(names) - 1)


def soften(gang: GangToPlace, level_names: Sequence[str], fits: Callable[[GangToPlace], bool]) -> str:
    """Which one hard constraint to make soft, of the lowest level possible; "" if no single one is in the way."""
    hard = [each for each in gang.constraints if each.hard]
    for each in sorted(hard, key=lambda each: (-level_names.index(each.level), _AS_GOOD.index(each.policy))):
        softer = tuple(replace(other, hard=False) if other == each else other for other in gang.constraints)
        if fits(replace(gang, constraints=softer)):
            return f'it would fit if the constraint "{in_words(each)}" were soft'
    return ""


def make_room(room: Room, of_class: ClassRoom, missing: int) -> str:
    """Where `missing` more members could go: on nodes that they may not use now, or on how many more nodes; or what of
    other pods they should not mind.
    """
    here = min(missing, 1) if one_each(of_class) else missing
    if of_class.coupled or not one_each(of_class):
        less = ask_less(of_class, missing)
        if less or of_class.coupled:
            return less
    on_lost = _on_lost_nodes(room, of_class, missing, here)
    if on_lost:
        return on_lost
    usable = np.flatnonzero(of_class.eligibility.reason == USABLE)
    if not len(usable):
        return ""
    offers = room.capacity.allocatable[usable][:, of_class.columns]
    each = (offers // of_class.amounts).min(axis=1, initial=here)
    most = int(each.max())
    if not most:
        return "no node that they may use is large enough for one of them, even if it were empty"
    alike = usable[each == most]
    name = room.nodes.name(int(alike[room.nodes.rank[alike].argmin()]))
    nodes = -(-missing // most)
    return f'it would fit with {nodes} more node{"s" if nodes > 1 else ""} like "{name}", empty'


def _on_lost_nodes(room: Room, of_class: ClassRoom, missing: int, here: int) -> str:
    judge = of_class.eligibility
    found: list[tuple[int, str]] = []
    for code in np.unique(judge.reason).tolist():
        if code in (USABLE, ABSENT):
            continue
        rows = np.flatnonzero(judge.reason == code)
        free = np.maximum(room.free[of_class.columns[:, None], rows], 0)
        fits = (free // of_class.amounts[:, None]).min(axis=0, initial=here)
        if int(fits.sum()) >= missing:
            found.append((int((fits > 0).sum()), judge.reasons[code]))
    if not found:
        return ""
    nodes, reason = min(found)
    these = "node" if nodes == 1 else f"{nodes} nodes"
    return f'it would fit if its pods could use the {these} lost to "{reason}"'
