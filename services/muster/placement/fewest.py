"""The fewest gangs that have to go whole: exactly where few are enough, else those that help most first."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.trial import ClassNeed, Trial

EXACT_CELLS: Final = 1_500_000
"""What the exact search may look at, in gangs times nodes: some 20 nanoseconds each."""
_OVERHEAD_CELLS: Final = 2_000
"""What looking at the gangs once costs besides."""

Accept = Callable[[Sequence[int]], Int64 | None]
"""What goes if these gangs go whole (indexes into the request), or None if the group has no place then either."""


def fewest_gangs(trial: Trial, gangs: Sequence[int], spared: Int64, rest: Int64, accept: Accept) -> Int64 | None:
    """What goes if the fewest of the gangs go whole, of those the first; None if nothing is accepted, or too many would
    have to be looked at.

    At most `spared` pods of each entry may go anyway, `rest` goes only with its gang. Raises Spent.
    """
    return _Yields(trial, gangs, spared, rest).exactly(accept)


def few_gangs(trial: Trial, gangs: Sequence[int], spared: Int64, rest: Int64, accept: Accept) -> Int64 | None:
    """As `fewest_gangs`, but only by what helps most first: few gangs, perhaps not the fewest."""
    return _Yields(trial, gangs, spared, rest).greedily(accept)


class _Yields:
    """What each gang's going gives. A hold is what one gang holds on one node.

    `gangs` are those asked about, in the order of the request. Holds are sorted by node, then gang: `_gang` is an index
    into `gangs`, `_at` that of the node, `_amounts` int64[resources, holds]. `_free` is what is free on the
    nodes, `_gone` which gangs have gone; `_gain` is int64[classes, gangs], seats that one gang more would give.
    """

    def __init__(self, trial: Trial, gangs: Sequence[int], spared: Int64, rest: Int64) -> None:
        candidates = trial.candidates
        self._needs = trial.needs
        self.gangs = gangs
        held = np.flatnonzero((rest > 0) & trial.useful() & np.isin(candidates.gang, gangs))
        gang, at = np.searchsorted(gangs, candidates.gang[held]), candidates.at[held]
        first = np.flatnonzero(np.diff(at * len(self.gangs) + gang, prepend=-1))
        self._gang: Int64 = gang[first]
        self._at: Int64 = at[first]
        amounts = candidates.amounts[:, held] * rest[held]
        self._amounts: Int64 = np.add.reduceat(amounts, first, axis=1) if len(first) else amounts
        by_gang = np.argsort(self._gang, kind="stable")
        self._of_gang = np.split(by_gang, np.searchsorted(self._gang[by_gang], np.arange(1, len(self.gangs))))
        self._from = np.searchsorted(self._at, np.arange(len(candidates.rows) + 1))
        self._rank: Int64 = trial.room.nodes.rank[candidates.rows]
        self._free: Int64 = trial.free + candidates.freed(spared)
        self._gone = np.zeros(len(self.gangs), np.bool_)
        self._cells = EXACT_CELLS

    # -- exactly

    def exactly(self, accept: Accept) -> Int64 | None:
        """One gang, two, ... as long as all sets of that size can be looked at."""
        for size in range(1, len(self.gangs) + 1):
            self._cells -= comb(len(self.gangs), size - 1) * (len(self._at) + _OVERHEAD_CELLS)
            if self._cells < 0 and size > 1:
                return None
            for chosen in self._sets(size):
                removed = accept([self.gangs[index] for index in chosen])
                if removed is not None:
                    return removed
        return None

    def _sets(self, size: int) -> Iterator[tuple[int, ...]]:
        """Sets of gangs that may do, in order."""
        for first in combinations(range(len(self.gangs)), size - 1):
            free = self._free_without(first)
            enough = np.ones(len(self.gangs), np.bool_)
            for need in self._needs:
                now = need.fits(free)
                seats = need.elsewhere + int(now.sum()) + self._gain_of_all(need, free, now)
                enough &= seats >= need.needed
            start = first[-1] + 1 if first else 0
            for last in (start + np.flatnonzero(enough[start:])).tolist():
                yield (*first, last)

    def _free_without(self, gangs: Sequence[int]) -> Int64:
        free = self._free.copy()
        for gang in gangs:
            holds = self._of_gang[gang]
            free[:, self._at[holds]] += self._amounts[:, holds]
        return free

    def _gain_of_all(self, need: ClassNeed, free: Int64, now: Int64) -> Int64:
        gain = need.fits(free[:, self._at] + self._amounts, self._at) - now[self._at]
        return np.bincount(self._gang, gain, len(self.gangs)).astype(np.int64)

    # -- greedily

    def greedily(self, accept: Accept) -> Int64 | None:
        """Gang by gang, those that give most of what is still lacking."""
        wanted = [need.needed for need in self._needs]
        now = [need.fits(self._free) for need in self._needs]
        gain = np.array([self._gain_of_all(n, self._free, f) for n, f in zip(self._needs, now, strict=True)])
        gain = gain.reshape(len(self._needs), len(self.gangs))
        while True:
            lacking = [
                count - need.elsewhere - int(fits.sum())
                for count, need, fits in zip(wanted, self._needs, now, strict=True)
            ]
            if max(lacking) <= 0:
                removed = accept([gang for gang, gone in zip(self.gangs, self._gone, strict=True) if gone])
                if removed is not None or self._gone.all():
                    return removed
                wanted = [count + max(1, count // 8) for count in wanted]  # by themselves they fit, together not yet
                continue
            score = np.minimum(gain, np.maximum(lacking, 0)[:, None]).sum(axis=0)
            score[self._gone] = -1
            best = int(score.argmax()) if len(score) else 0
            if not len(score) or score[best] < 0:
                return accept(self.gangs)
            chosen = [best] if score[best] > 0 else self._for_one_seat(self._needs[int(np.argmax(lacking))])
            self._let_go(chosen, now, gain)

    def _let_go(self, chosen: Sequence[int], now: list[Int64], gain: Int64) -> None:
        """Free what the gangs hold and bring up to date what is known of the nodes that they were on."""
        holds = np.concatenate([self._of_gang[gang] for gang in chosen])
        if not len(holds):
            self._gone[list(chosen)] = True
            return
        nodes = np.unique(self._at[holds])
        touched = np.concatenate([np.arange(self._from[node], self._from[node + 1]) for node in nodes.tolist()])
        at, gang = self._at[touched], self._gang[touched]
        for index, need in enumerate(self._needs):
            before = need.fits(self._free[:, at] + self._amounts[:, touched], at) - now[index][at]
            np.subtract.at(gain[index], gang, before)
        for column, amounts in enumerate(self._amounts[:, holds]):
            np.add.at(self._free[column], self._at[holds], amounts)
        self._amounts[:, holds] = 0
        self._gone[list(chosen)] = True
        for index, need in enumerate(self._needs):
            now[index][nodes] = need.fits(self._free[:, nodes], nodes)
            after = need.fits(self._free[:, at] + self._amounts[:, touched], at) - now[index][at]
            np.add.at(gain[index], gang, after)

    def _for_one_seat(self, need: ClassNeed) -> list[int]:
        """The gangs that have to go for one member where fewest have to; if that is nowhere, the first that is left."""
        left = np.flatnonzero(~self._gone[self._gang] & need.usable[self._at])
        if len(left):
            at, amounts = self._at[left], self._amounts[:, left]
            first = np.searchsorted(at, at)
            sums = amounts.cumsum(axis=1)
            within = sums - (sums[:, first] - amounts[:, first])
            enough = need.fits(self._free[:, at] + within, at) > need.fits(self._free)[at]
            if enough.any():
                needed = np.where(enough, np.arange(len(left)) - first + 1, len(left) + 1)
                end = int(np.lexsort((self._rank[at], self._gang[left], needed))[0])
                return list(map(int, self._gang[left[first[end] : end + 1]]))
        return [int(np.flatnonzero(~self._gone)[0])]
