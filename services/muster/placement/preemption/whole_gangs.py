"""Few gangs that have to go whole, when trying sets of them would take too long: those that help most go first."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.fewest import Accept
from muster.placement.preemption.holds import Holds

_NOWHERE: Final = 2**62


def greedy_gangs(holds: Holds, accept: Accept) -> Int64 | None:
    """What goes if some of the gangs go whole: few, perhaps not the fewest. None if nothing is accepted.

    Raises what `accept` does.
    """
    return _Greedy(holds).search(accept)


class _Greedy:
    """Takes the holds over: what has gone holds nothing any more.

    By class of the group: `_now` seats on each node, `_gain` seats that each gang would give if it went next,
    `_cost` how many gangs have to go for one seat more on each node and `_last` the last of their holds. Costs are
    known only of classes for which they were needed.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._needs = holds.needs
        self._free = holds.free.copy()
        self._gone = np.zeros(len(holds.gangs), np.bool_)
        self._now = [need.fits(self._free) for need in self._needs]
        self._gain = [
            holds.by_gang(holds.gains(need, self._free, now)) for need, now in zip(self._needs, self._now, strict=True)
        ]
        self._cost: dict[int, Int64] = {}
        self._last: dict[int, Int64] = {}

    def search(self, accept: Accept) -> Int64 | None:
        wanted = [need.needed for need in self._needs]
        while True:
            lacking = self._lacking(wanted)
            if max(lacking) > 0 and not self._gone.all():
                self._let_go(self._most_helpful(lacking))
                continue
            removed = accept([gang for gang, gone in zip(self._holds.gangs, self._gone, strict=True) if gone])
            if removed is not None or self._gone.all():
                return removed
            # by itself each class has its seats, but they do not have them together yet
            wanted = [count + max(1, count // 8) for count in wanted]

    def _lacking(self, wanted: Sequence[int]) -> list[int]:
        return [
            count - need.elsewhere - int(now.sum())
            for count, need, now in zip(wanted, self._needs, self._now, strict=True)
        ]

    def _most_helpful(self, lacking: Sequence[int]) -> list[int]:
        """The gang that gives most of what is lacking; if none gives any, those that have to go for one seat."""
        score = np.zeros(len(self._gone), np.int64)
        for count, gain in zip(lacking, self._gain, strict=True):
            score += np.clip(gain, 0, max(count, 0))
        score[self._gone] = -1
        best = int(score.argmax())
        return [best] if score[best] > 0 else self._for_one_seat(int(np.argmax(lacking)))

    def _for_one_seat(self, index: int) -> list[int]:
        """The gangs that have to go for a member of a class where fewest have to; nowhere: the first that is left."""
        if index not in self._cost:
            nodes = len(self._holds.rank)
            self._cost[index], self._last[index] = np.full(nodes, _NOWHERE), np.zeros(nodes, np.int64)
            self._count_gangs(index, np.arange(nodes), np.arange(len(self._holds)))
        cost, last = self._cost[index], self._last[index]
        if not len(cost) or cost.min() == _NOWHERE:
            return [int(np.flatnonzero(~self._gone)[0])]
        cheapest = np.flatnonzero(cost == cost.min())
        order = np.lexsort((self._holds.rank[cheapest], self._holds.gang[last[cheapest]]))
        node = cheapest[order[:1]]
        here = self._holds.on_nodes(node)
        here = here[here <= last[node[0]]]
        return [gang for gang in self._holds.gang[here].tolist() if not self._gone[gang]]

    def _count_gangs(self, index: int, nodes: Int64, holds: Int64) -> None:
        """Bring `_cost` up to date for some nodes, given all holds on them."""
        need, gang, at = self._needs[index], self._holds.gang[holds], self._holds.at[holds]
        self._cost[index][nodes] = _NOWHERE
        if not len(holds):
            return
        first = np.searchsorted(at, at)
        amounts, left = self._holds.amounts[:, holds], ~self._gone[gang]
        sums = amounts.cumsum(axis=1)
        within = sums - (sums - amounts)[:, first]
        enough = need.fits(self._free[:, at] + within, at) > self._now[index][at]
        counted = left.cumsum()
        gangs = np.where(enough, counted - (counted - left)[first], _NOWHERE)
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        places = at[starts]
        self._cost[index][places] = np.minimum.reduceat(gangs, starts)
        ends = np.minimum.reduceat(np.where(enough, np.arange(len(holds)), len(holds) - 1), starts)
        self._last[index][places] = holds[ends]

    def _let_go(self, chosen: Sequence[int]) -> None:
        """Free what the gangs hold and bring up to date what is known of the nodes that they were on."""
        held = self._holds.of_gangs(chosen)
        nodes = np.unique(self._holds.at[held])
        touched = self._holds.on_nodes(nodes)
        gang = self._holds.gang[touched]
        for need, now, gain in zip(self._needs, self._now, self._gain, strict=True):
            np.subtract.at(gain, gang, self._holds.gains(need, self._free, now, touched))
        for column, amounts in enumerate(self._holds.amounts[:, held]):
            np.add.at(self._free[column], self._holds.at[held], amounts)
        self._holds.amounts[:, held] = 0
        self._gone[list(chosen)] = True
        for need, now, gain in zip(self._needs, self._now, self._gain, strict=True):
            now[nodes] = need.fits(self._free[:, nodes], nodes)
            np.add.at(gain, gang, self._holds.gains(need, self._free, now, touched))
        for index in self._cost:
            self._count_gangs(index, nodes, touched)
