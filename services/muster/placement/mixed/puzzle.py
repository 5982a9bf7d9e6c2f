"""Cuts a mixed group and the cluster down to what an exact search has to look at, and puts its answer back on nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.mixed.search import Bin, Budget, Counts, OutOfBudget, Puzzle, search
from muster.placement.room.nodes import Bool
from muster.placement.room.parts import Attempt, Part
from muster.placement.room.room import Room

MOST_MEMBERS: Final = 64
MOST_BINS: Final = 128
MOST_KINDS_COMPARED: Final = 600
"""Beyond these an exact search has no hope within its budget; large gangs are left to the counting proofs."""


@dataclass(frozen=True)
class Cut:
    """A puzzle and how to read its answer.

    `order[i]` is the part that the puzzle calls i, `rows[b]` the node that it calls b. `whole`: what was cut away
    cannot matter, so that a proof for the puzzle is one for the cluster.
    """

    puzzle: Puzzle
    order: tuple[int, ...]
    rows: tuple[int, ...]
    whole: bool

    def attempt(self, answer: Sequence[Counts], parts: Sequence[Part]) -> Attempt:
        """The answer as seats of parts."""
        attempt = Attempt([0] * len(parts))
        table = np.array(answer, np.int64)  # int64[bins, parts of the puzzle]
        rows = np.array(self.rows, np.int64)
        for index, part in enumerate(self.order):
            used = np.flatnonzero(table[:, index])
            if len(used):
                attempt.seats.append((part, (rows[used], table[used, index])))
                attempt.placed[part] = int(table[:, index].sum())
        return attempt


def find(
    room: Room, parts: Sequence[Part], order: Sequence[int], required: Sequence[int], budget: Budget
) -> tuple[Attempt | None, bool]:
    """Seats, not taken yet, for `required[gang]` members at least; if there are none, whether that is proved."""
    problem = cut(room, parts, order, required)
    if problem is None:
        return None, False
    try:
        answer = search(problem.puzzle, budget)
    except OutOfBudget:
        return None, False
    return (None, problem.whole) if answer is None else (problem.attempt(answer, parts), False)


def cut(room: Room, parts: Sequence[Part], order: Sequence[int], required: Sequence[int]) -> Cut | None:
    """The puzzle to place `required[gang]` members; parts in `order`, the hardest first. None: too large to try."""
    members = sum(part.wanted for part in parts)
    if members > MOST_MEMBERS:
        return None
    rooms = [room.of(parts[index].class_id) for index in order]
    wanted = np.array([parts[index].wanted for index in order], np.int64)
    asks = np.array([each.vector(len(room.free)) for each in rooms])  # int64[parts, resources]
    asked = np.flatnonzero(asks.any(axis=0))
    asks = asks[:, asked]
    most = np.minimum(np.array([each.fits for each in rooms]), wanted[:, None])  # int64[parts, rows]
    rows = np.flatnonzero(most.any(axis=0))
    rows = rows[np.argsort(room.nodes.rank[rows])]
    enough = (asks * wanted[:, None]).sum(axis=0)  # more of a resource than all members ask is as good as that
    free = np.clip(room.free[asked[:, None], rows].T, 0, enough)  # int64[rows, resources]
    bins = np.hstack((most[:, rows].T, free))
    chosen, whole = worth_trying(bins, len(order), members)
    return Cut(
        Puzzle(
            asks=tuple(map(tuple, asks.tolist())),
            wanted=tuple(wanted.tolist()),
            gang=tuple(parts[index].gang for index in order),
            slack=tuple(
                sum(part.wanted for part in parts if part.gang == gang) - needed for gang, needed in enumerate(required)
            ),
            bins=tuple(Bin(tuple(b[len(order) :]), tuple(b[: len(order)])) for b in bins[chosen].tolist()),
        ),
        tuple(order),
        tuple(rows[chosen].tolist()),
        whole,
    )


def worth_trying(bins: Int64, parts: int, members: int, most_bins: int = MOST_BINS) -> tuple[Int64, bool]:
    """Rows of `bins` to search, the tightest first, and whether the others cannot matter.

    A bin is how many of each of `parts` it may take, then what it has free of each resource; more is never worse.
    Of equal bins more than there are members are of no use, nor is one that `members` others are at least as good as.
    """
    if not len(bins):
        return np.zeros(0, np.int64), True
    kinds, index = np.unique(bins, axis=0, return_inverse=True)
    copies = [np.flatnonzero(index == kind)[:members] for kind in range(len(kinds))]
    size = kinds[:, parts:] / np.maximum(kinds[:, parts:].max(axis=0), 1)
    by_size = sorted(range(len(kinds)), key=lambda kind: (float(size[kind].sum()), kinds[kind].tolist()))
    if sum(map(len, copies)) > most_bins and len(kinds) <= MOST_KINDS_COMPARED:
        counts = np.array([len(each) for each in copies])
        better: Bool = np.all(kinds[:, None, :] <= kinds[None, :, :], axis=2)  # [this kind, at least as good]
        np.fill_diagonal(better, False)
        useless = better @ counts >= members
        by_size = [kind for kind in by_size if not useless[kind]]
    chosen = np.concatenate([copies[kind] for kind in by_size])
    return chosen[-most_bins:], len(chosen) <= most_bins
