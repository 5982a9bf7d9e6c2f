"""What is in the way of a group under constraints whose members differ, or that is of several gangs."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.placing import Explanation, GangToPlace, GroupToPlace
from muster.placement.advice import best_domain, soften, telling_level
from muster.placement.explain import Explainer
from muster.placement.parts import Attempt, Part
from muster.placement.room import Room
from muster.placement.search import Budget
from muster.placement.trees import Tree

_STEPS_PER_CHANGE: Final = 2_000
"""For telling whether one softer constraint would do."""


def hindrance(
    room: Room,
    group: GroupToPlace,
    parts: Sequence[Part],
    explainer: Explainer,
    best: Attempt,
    has_place: Callable[[GroupToPlace, Budget], bool],
) -> Explanation:
    """Of the first gang that lacks members in the `best` attempt, and which of its constraints to give up if that does.

    `has_place` tells whether another group of the same parts would have a place.
    """
    lacking = (index for index, gang in enumerate(group.gangs) if best.of_gang(parts, index) < gang.minimum)
    at = next(lacking, 0)
    gang = group.gangs[at]
    tree = room.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not checked"
    explanation = explainer.stuck(group, parts, at, _part_in_the_way(parts, at, best), best)

    def fits(softer: GangToPlace) -> bool:
        gangs = (softer if index == at else each for index, each in enumerate(group.gangs))
        return has_place(replace(group, gangs=tuple(gangs)), Budget(_STEPS_PER_CHANGE))

    domain, domain_fit = _best_domain(room, tree, gang, [part for part in parts if part.gang == at])
    explanation = replace(explanation, best_domain=domain, best_domain_fit=domain_fit)
    softer = soften(gang, tree.level_names, fits)
    if not softer:
        return explanation
    summary = f"{explanation.fit} of {gang.minimum} members fit as the hard constraints ask"
    if domain:
        summary += f"; {domain} has room for {domain_fit} of them"
    return replace(explanation, summary=f"{summary}; {softer}", remedy=softer, nodes_lost=(), short_by=())


def _part_in_the_way(parts: Sequence[Part], gang: int, best: Attempt) -> int:
    ours = [index for index, part in enumerate(parts) if part.gang == gang]
    lacking = [index for index in ours if best.placed[index] < parts[index].wanted]
    return (lacking or ours)[0]


def _best_domain(room: Room, tree: Tree, gang: GangToPlace, parts: Sequence[Part]) -> tuple[str, int]:
    """Where most members fit by each class alone, no more of one than there are."""
    level = telling_level(tree, gang.constraints)
    if not len(tree.rows) or not 0 <= level < len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    seats = sum(
        np.minimum(np.add.reduceat(room.of(part.class_id).fits[tree.rows], starts), part.wanted) for part in parts
    )
    caps = np.zeros(len(tree.rows), np.int64)
    caps[starts] = np.minimum(seats, gang.minimum)
    return best_domain(tree, level, caps)
