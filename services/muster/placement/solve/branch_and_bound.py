"""Branch and bound for small heterogeneous groups: finds a solution or proves that there is none, within a budget.

Nodes are filled one after another, with every maximal filling: others need not be tried, since a member can alfillings
move to an earlier node on which it fits. The members left to place after a node determine everything that follows, so
each such state is visited once. A presolve reduces group and cluster to the nodes that matter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.instance import Part, Solution
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.time_limit import UNLIMITED, TimeLimit

Counts = tuple[int, ...]
"""Members per part."""


@dataclass(frozen=True)
class Bin:
    """A node: `free` per resource, and how many members of each part fit if it is empty otherwise."""

    free: tuple[int, ...]
    most: Counts


@dataclass(frozen=True)
class PackingInstance:
    """`wanted[p]` members of part p request `asks[p]` per resource; gang g may leave out `slack[g]` of its members.

    Parts that fit least come first; `gang[p]` is the gang of a part.
    """

    asks: tuple[tuple[int, ...], ...]
    wanted: Counts
    gang: Counts
    slack: tuple[int, ...]
    bins: tuple[Bin, ...]


class OutOfBudget(Exception):
    """The search exceeded its budget; a solution may exist."""


class Budget:
    """Steps left; steps and not seconds, so that every replica gives the same answer. The time limit is for searches
    whose steps take longer than was thought.
    """

    def __init__(self, steps: int, limit: TimeLimit = UNLIMITED) -> None:
        self.left = steps
        self._limit = limit

    def spend(self, steps: int = 1) -> None:
        """Raises OutOfBudget, and OutOfTime."""
        self._limit.check()
        self.left -= steps
        if self.left < 0:
            raise OutOfBudget

    def spend_if_left(self, steps: int) -> None:
        """Spend the steps of a part of a search at once. Raises OutOfBudget, before any is spent, and OutOfTime."""
        self._limit.check()
        if steps > self.left:
            raise OutOfBudget
        self.left -= steps


def search(instance: PackingInstance, budget: Budget) -> list[Counts] | None:
    """Members of each part for each bin; None: proved infeasible.

    Raises OutOfBudget.
    """
    return _Search(instance, budget).run()


class _Search:
    def __init__(self, instance: PackingInstance, budget: Budget) -> None:
        self._instance = instance
        self._budget = budget
        self._may_leave_out = any(instance.slack)
        self._infeasible_states: set[tuple[int, Counts]] = set()
        self._fillings: dict[tuple[tuple[int, ...], Counts], list[Counts]] = {}
        bins, parts = instance.bins, range(len(instance.wanted))
        self._seats_from = _suffix_sums([each.most for each in bins], len(parts))
        self._free_from = _suffix_sums([each.free for each in bins], len(instance.asks[0]))
        self._gangs = [[p for p in parts if instance.gang[p] == g] for g in range(len(instance.slack))]
        # per resource and gang, parts by request, largest first: the order in which slack leaves out members
        self._by_request = [
            [sorted(ours, key=lambda p: -instance.asks[p][r]) for ours in self._gangs]
            for r in range(len(instance.asks[0]))
        ]

    def run(self) -> list[Counts] | None:
        chosen: list[Counts] = []
        if not self._fill(0, self._instance.wanted, chosen):
            return None
        none = (0,) * len(self._instance.wanted)
        return chosen + [none] * (len(self._instance.bins) - len(chosen))

    def _fill(self, at: int, left: Counts, chosen: list[Counts]) -> bool:
        self._budget.spend()
        if self._within_slack(left):
            return True
        if at == len(self._instance.bins) or (at, left) in self._infeasible_states:
            return False
        if not self._is_infeasible(at, left):
            here = self._instance.bins[at]
            for counts in self._maximal_fillings(here.free, tuple(map(min, left, here.most))):
                chosen.append(counts)
                if self._fill(at + 1, tuple(have - put for have, put in zip(left, counts, strict=True)), chosen):
                    return True
                chosen.pop()
        self._infeasible_states.add((at, left))
        return False

    def _within_slack(self, left: Counts) -> bool:
        """The slack covers the members left to place."""
        if not self._may_leave_out:
            return not any(left)
        slack = self._instance.slack
        return all(sum([left[p] for p in ours]) <= slack[g] for g, ours in enumerate(self._gangs))

    def _is_infeasible(self, at: int, left: Counts) -> bool:
        """Relaxation: the remaining bins have too few seats, or too little of a resource."""
        seats, free, slack = self._seats_from[at], self._free_from[at], self._instance.slack
        for g, ours in enumerate(self._gangs):
            if sum([left[p] - seats[p] for p in ours if left[p] > seats[p]]) > slack[g]:
                return True
        for r, by_gang in enumerate(self._by_request):
            requested = 0
            for g, ours in enumerate(by_gang):
                spare = slack[g]
                for p in ours:
                    out = min(spare, left[p])
                    spare -= out
                    requested += (left[p] - out) * self._instance.asks[p][r]
            if requested > free[r]:
                return True
        return False

    def _maximal_fillings(self, free: tuple[int, ...], most: Counts) -> list[Counts]:
        fillings = self._fillings.get((free, most))
        if fillings is None:
            fillings = self._fillings[free, most] = list(self._fill_bin(free, most, 0, ()))
        return fillings

    def _fill_bin(self, free: Sequence[int], most: Counts, part: int, chosen: Counts) -> Iterator[Counts]:
        self._budget.spend()
        asks = self._instance.asks
        if part == len(most):
            if not any(chosen[p] < most[p] and _fits(asks[p], free) for p in range(part)):
                yield chosen
            return
        ask = asks[part]
        fits = min([most[part], *(have // want for have, want in zip(free, ask, strict=True) if want)])
        # for the last part, only the largest count is maximal
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
"""Limits of the exact search; larger groups exceed its budget and are left to the upper bounds."""


@dataclass(frozen=True)
class Presolved:
    """A reduced instance and the mapping of its solution to nodes.

    `order[i]` is the part with index i in the instance, `rows[b]` the node of bin b. `complete`: the reduction lost
    nothing, so that infeasibility of the instance proves infeasibility in the cluster.
    """

    instance: PackingInstance
    order: tuple[int, ...]
    rows: tuple[int, ...]
    complete: bool

    def solution(self, answer: Sequence[Counts], parts: Sequence[Part]) -> Solution:
        """The bins' members as seats of parts."""
        solution = Solution([0] * len(parts))
        table = np.array(answer, np.int64)  # int64[bins, parts of the instance]
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
    """A solution, not reserved, with at least `required[gang]` members; if there is none, whether that is proved."""
    reduced = presolve(state, parts, order, required)
    if reduced is None:
        return None, False
    try:
        answer = search(reduced.instance, budget)
    except OutOfBudget:
        return None, False
    return (None, reduced.complete) if answer is None else (reduced.solution(answer, parts), False)


def presolve(
    state: CapacityState, parts: Sequence[Part], order: Sequence[int], required: Sequence[int]
) -> Presolved | None:
    """The instance for `required[gang]` members, parts in `order`, those that fit least first; None: too large."""
    members = sum(part.wanted for part in parts)
    if members > MAX_MEMBERS:
        return None
    class_capacities = [state.of(parts[index].class_id) for index in order]
    wanted = np.array([parts[index].wanted for index in order], np.int64)
    asks = np.array([each.vector(len(state.free)) for each in class_capacities])  # int64[parts, resources]
    requested = np.flatnonzero(asks.any(axis=0))
    asks = asks[:, requested]
    most = np.minimum(np.array([each.fits for each in class_capacities]), wanted[:, None])  # int64[parts, rows]
    rows = np.flatnonzero(most.any(axis=0))
    rows = rows[np.argsort(state.nodes.rank[rows])]
    total = (asks * wanted[:, None]).sum(axis=0)  # the request of all members: more free capacity is no better
    free = np.clip(state.free[requested[:, None], rows].T, 0, total)  # int64[rows, resources]
    bins = np.hstack((most[:, rows].T, free))
    chosen, complete = undominated_bins(bins, len(order), members)
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
        complete,
    )


def undominated_bins(bins: Int64, parts: int, members: int, most_bins: int = MAX_BINS) -> tuple[Int64, bool]:
    """Rows of `bins` to search, the tightest first, and whether the others are dominated.

    A bin lists how many members of each of `parts` fit, then what is free of each resource; more is never worse. Of
    equal bins, at most as many as there are members are useful; a bin is dominated if `members` others are at least as
    good.
    """
    if not len(bins):
        return np.zeros(0, np.int64), True
    kinds, index = np.unique(bins, axis=0, return_inverse=True)
    copies = [np.flatnonzero(index == kind)[:members] for kind in range(len(kinds))]
    size = kinds[:, parts:] / np.maximum(kinds[:, parts:].max(axis=0), 1)
    by_size = sorted(range(len(kinds)), key=lambda kind: (float(size[kind].sum()), kinds[kind].tolist()))
    if sum(map(len, copies)) > most_bins and len(kinds) <= MAX_KINDS_COMPARED:
        counts = np.array([len(each) for each in copies])
        better: Bool = np.all(kinds[:, None, :] <= kinds[None, :, :], axis=2)  # [kind, kind at least as good]
        np.fill_diagonal(better, False)
        useless = better @ counts >= members
        by_size = [kind for kind in by_size if not useless[kind]]
    chosen = np.concatenate([copies[kind] for kind in by_size])
    return chosen[-most_bins:], len(chosen) <= most_bins
