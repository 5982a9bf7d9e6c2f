"""What a group under constraints has before it: its rules, one tree, and where its members fit and already are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import SolveGang
from muster.placement.room.nodes import Bool
from muster.placement.room.parts import Part
from muster.placement.room.room import Room
from muster.placement.room.trees import Tree
from muster.placement.shapes.rules import Rule


@dataclass(frozen=True)
class Asked:
    """One gang of a group: what is to be placed, and its rules from the top down."""

    gang: SolveGang
    rules: tuple[Rule, ...]

    @property
    def asks(self) -> bool:
        """It asks something of the tree; who does not may be anywhere, also outside."""
        return any(rule.counts for rule in self.rules)

    @property
    def inside_only(self) -> bool:
        """It may not use nodes outside of its tree."""
        return any(rule.is_hard for rule in self.rules[:-1])


@dataclass(frozen=True)
class Ground:
    """One group on one tree. `fits` is int64[parts, places], `placed` int64[gangs, places]: members that fit on each of
    the tree's nodes, no more than are wanted, and those that are there. `size` is int64[places], how much fits at all,
    so that small domains can be told from large ones. `whole`: no place has been left out.
    """

    room: Room
    tree: Tree
    asked: Sequence[Asked]
    parts: Sequence[Part]
    fits: Int64
    placed: Int64
    size: Int64
    whole: bool = True

    def most(self, gang: int) -> int:
        """Members that a gang can have in all, those counted that have a place already."""
        wanted = sum(part.wanted for part in self.parts if part.gang == gang)
        return wanted + sum(pods.count for pods in self.asked[gang].gang.placed)

    @property
    def places(self) -> int:
        """How many places have room."""
        return int(self.fits.any(axis=0).sum())

    def only(self, places: Bool) -> "Ground":
        """The same without room on the other places."""
        return replace(self, fits=np.where(places, self.fits, 0), whole=False)


def ground_of(room: Room, tree: Tree, asked: Sequence[Asked], parts: Sequence[Part]) -> Ground:
    """All that the group may use of its tree."""
    all_fits: Int64 = np.array([room.of(part.class_id).fits[tree.rows] for part in parts])
    fits: Int64 = np.minimum(all_fits, np.array([part.wanted for part in parts])[:, None])
    for index, part in enumerate(parts):
        if asked[part.gang].inside_only:
            fits[index, tree.inside :] = 0
    placed = np.zeros((len(asked), len(tree.rows)), np.int64)
    for gang, one in enumerate(asked):
        for pods in one.gang.placed:
            place = tree.place_of(pods.node)
            if place is not None:
                placed[gang, place] += pods.count
    return Ground(room, tree, asked, parts, fits, placed, all_fits.sum(axis=0))
