"""Exact search for a place for few members of unequal classes: finds one, or proves that there is none, in a budget.

Node by node it tries every way to fill a node to which nothing more could be added; no others need be tried, since a
member may always move to an earlier node that has room for it. What is left to place after a node decides all that
follows, so that each such state is looked at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.instance import Part, Solution
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool

Counts = tuple[int, ...]
"""Members per part."""


@dataclass(frozen=True)
class Bin:
    """A node: `free` per resource, and how many of each part it may take at most when empty of the others."""

    free: tuple[int, ...]
    most: Counts


@dataclass(frozen=True)
class PackingInstance:
    """`wanted[p]` members that ask `asks[p]` per resource; gang g may leave out `slack[g]` of its members.

    The hardest parts come first; `gang[p]` is the gang of a part.
    """

    asks: tuple[tuple[int, ...], ...]
    wanted: Counts
    gang: Counts
    slack: tuple[int, ...]
    bins: tuple[Bin, ...]


class OutOfBudget(Exception):
    """The search was given up; there may be a place."""


class Budget:
    """Steps that may be spent: steps and not seconds, so that every replica gives the same answer."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise OutOfBudget


def search(instance: PackingInstance, budget: Budget) -> list[Counts] | None:
    """Members of each part for each bin; None: proved that there is no way.

    Raises OutOfBudget.
    """
    return _Search(instance, budget).run()


class _Search:
    def __init__(self, instance: PackingInstance, budget: Budget) -> None:
        self._puzzle = instance
        self._budget = budget
        self._may_leave_out = any(instance.slack)
        self._dead: set[tuple[int, Counts]] = set()
        self._fillings: dict[tuple[tuple[int, ...], Counts], list[Counts]] = {}
        bins, parts = instance.bins, range(len(instance.wanted))
        self._seats_from = _suffix_sums([each.most for each in bins], len(parts))
        self._free_from = _suffix_sums([each.free for each in bins], len(instance.asks[0]))
        self._gangs = [[p for p in parts if instance.gang[p] == g] for g in range(len(instance.slack))]
        # per resource and gang, parts by how much they ask, most first: what slack leaves out to ask for the least
        self._greediest = [
            [sorted(ours, key=lambda p: -instance.asks[p][r]) for ours in self._gangs]
            for r in range(len(instance.asks[0]))
        ]

    def run(self) -> list[Counts] | None:
        chosen: list[Counts] = []
        if not self._fill(0, self._puzzle.wanted, chosen):
            return None
        none = (0,) * len(self._puzzle.wanted)
        return chosen + [none] * (len(self._puzzle.bins) - len(chosen))

    def _fill(self, at: int, left: Counts, chosen: list[Counts]) -> bool:
        self._budget.spend()
        if self._enough(left):
            return True
        if at == len(self._puzzle.bins) or (at, left) in self._dead:
            return False
        if not self._hopeless(at, left):
            here = self._puzzle.bins[at]
            for counts in self._ways_to_fill(here.free, tuple(map(min, left, here.most))):
                chosen.append(counts)
                if self._fill(at + 1, tuple(have - put for have, put in zip(left, counts, strict=True)), chosen):
                    return True
                chosen.pop()
        self._dead.add((at, left))
        return False

    def _enough(self, left: Counts) -> bool:
        """What is left to place may be left out."""
        if not self._may_leave_out:
            return not any(left)
        slack = self._puzzle.slack
        return all(sum([left[p] for p in ours]) <= slack[g] for g, ours in enumerate(self._gangs))

    def _hopeless(self, at: int, left: Counts) -> bool:
        """The bins from here on have too few seats or too little of a resource."""
        seats, free, slack = self._seats_from[at], self._free_from[at], self._puzzle.slack
        for g, ours in enumerate(self._gangs):
            if sum([left[p] - seats[p] for p in ours if left[p] > seats[p]]) > slack[g]:
                return True
        for r, by_gang in enumerate(self._greediest):
            asked = 0
            for g, ours in enumerate(by_gang):
                spare = slack[g]
                for p in ours:
                    out = min(spare, left[p])
                    spare -= out
                    asked += (left[p] - out) * self._puzzle.asks[p][r]
            if asked > free[r]:
                return True
        return False

    def _ways_to_fill(self, free: tuple[int, ...], most: Counts) -> list[Counts]:
        ways = self._fillings.get((free, most))
        if ways is None:
            ways = self._fillings[free, most] = list(self._fill_bin(free, most, 0, ()))
        return ways

    def _fill_bin(self, free: Sequence[int], most: Counts, part: int, chosen: Counts) -> Iterator[Counts]:
        self._budget.spend()
        asks = self._puzzle.asks
        if part == len(most):
            if not any(chosen[p] < most[p] and _fits(asks[p], free) for p in range(part)):
                yield chosen
            return
        ask = asks[part]
        fits = min([most[part], *(have // want for have, want in zip(free, ask, strict=True) if want)])
        # the last part need not be tried with fewer than fit: something could be added
        for count in range(fits, -1 if part + 1 < len(most) else fits - 1, -1):
            after = [have - count * want for have, want in zip(free, ask, strict=True)]
            yield from self._fill_bin(after, most, part + 1, (*chosen, count))


def _fits(ask: Sequence[int], free: Sequence[int]) -> bool:
    return all(want <= have for want, have in zip(ask, free, strict=True) if want)


def _suffix_sums(rows: Sequence[tuple[int, ...]], width: int) -> list[tuple[int, ...]]:
    sums = [(0,) * width]
    for row in reversed(rows):
        sums.append(tuple(a + b for a, b in zip(sums[-1], row, strict=True)))
    return sums[::-1]


MAX_MEMBERS: Final = 64
MAX_BINS: Final = 128
MAX_KINDS_COMPARED: Final = 600
"""Beyond these an exact search has no hope within its budget; large gangs are left to the counting proofs."""


@dataclass(frozen=True)
class Presolved:
    """A puzzle and how to read its answer.

    `order[i]` is the part that the puzzle calls i, `rows[b]` the node that it calls b. `whole`: what was cut away
    cannot matter, so that a proof for the puzzle is one for the cluster.
    """

    instance: PackingInstance
    order: tuple[int, ...]
    rows: tuple[int, ...]
    whole: bool

    def solution(self, answer: Sequence[Counts], parts: Sequence[Part]) -> Solution:
        """The answer as seats of parts."""
        solution = Solution([0] * len(parts))
        table = np.array(answer, np.int64)  # int64[bins, parts of the puzzle]
        rows = np.array(self.rows, np.int64)
        for index, part in enumerate(self.order):
            used = np.flatnonzero(table[:, index])
            if len(used):
                solution.seats.append((part, (rows[used], table[used, index])))
                solution.placed[part] = int(table[:, index].sum())
        return solution


def search_exactly(
    state: CapacityState, parts: Sequence[Part], order: Sequence[int], required: Sequence[int], budget: Budget
) -> tuple[Solution | None, bool]:
    """Seats, not taken yet, for `required[gang]` members at least; if there are none, whether that is proved."""
    problem = presolve(state, parts, order, required)
    if problem is None:
        return None, False
    try:
        answer = search(problem.instance, budget)
    except OutOfBudget:
        return None, False
    return (None, problem.whole) if answer is None else (problem.solution(answer, parts), False)


def presolve(
    state: CapacityState, parts: Sequence[Part], order: Sequence[int], required: Sequence[int]
) -> Presolved | None:
    """The puzzle to place `required[gang]` members; parts in `order`, the hardest first. None: too large to try."""
    members = sum(part.wanted for part in parts)
    if members > MAX_MEMBERS:
        return None
    class_capacities = [state.of(parts[index].class_id) for index in order]
    wanted = np.array([parts[index].wanted for index in order], np.int64)
    asks = np.array([each.vector(len(state.free)) for each in class_capacities])  # int64[parts, resources]
    asked = np.flatnonzero(asks.any(axis=0))
    asks = asks[:, asked]
    most = np.minimum(np.array([each.fits for each in class_capacities]), wanted[:, None])  # int64[parts, rows]
    rows = np.flatnonzero(most.any(axis=0))
    rows = rows[np.argsort(state.nodes.rank[rows])]
    enough = (asks * wanted[:, None]).sum(axis=0)  # more of a resource than all members ask is as good as that
    free = np.clip(state.free[asked[:, None], rows].T, 0, enough)  # int64[rows, resources]
    bins = np.hstack((most[:, rows].T, free))
    chosen, whole = undominated_bins(bins, len(order), members)
    return Presolved(
        PackingInstance(
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


def undominated_bins(bins: Int64, parts: int, members: int, most_bins: int = MAX_BINS) -> tuple[Int64, bool]:
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
    if sum(map(len, copies)) > most_bins and len(kinds) <= MAX_KINDS_COMPARED:
        counts = np.array([len(each) for each in copies])
        better: Bool = np.all(kinds[:, None, :] <= kinds[None, :, :], axis=2)  # [this kind, at least as good]
        np.fill_diagonal(better, False)
        useless = better @ counts >= members
        by_size = [kind for kind in by_size if not useless[kind]]
    chosen = np.concatenate([copies[kind] for kind in by_size])
    return chosen[-most_bins:], len(chosen) <= most_bins
