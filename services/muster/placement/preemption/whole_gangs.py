"""Selects gangs to be evicted whole: the fewest by exact enumeration, or few by a greedy heuristic."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.dry_run import ClassNeed, DryRun

MAX_CELLS: Final = 1_500_000
"""Work of the enumeration, in usages times sets: about 20 nanoseconds each, enough for pairs of 300 gangs of 8."""
_OVERHEAD_CELLS: Final = 2_000
"""Fixed work per set."""
_UNREACHABLE: Final = 2**62

Accept = Callable[[Sequence[int]], Int64 | None]
"""The victims if these gangs are evicted whole (indexes into the request), None if the group does not fit even then."""


class GangUsage:
    """Amounts that gangs hold on the nodes that a group may use; freed only if the gang is evicted whole.

    A usage is one gang on one node; usages are sorted by node, then by gang.

    - `gangs`: indexes of the gangs in the request, in its order.
    - `gang`, `node`: int64[usages]; index into `gangs`, and index of the node in the victim table.
    - `amounts`: int64[resources, usages].
    - `free`: int64[resources, nodes]; free once the pods that are evicted in any case are gone.
    """

    def __init__(self, dry_run: DryRun, gangs: Sequence[int], evicted: Int64, rest: Int64) -> None:
        """`evicted` pods of each entry are evicted in any case, `rest` only with their gang."""
        table = dry_run.table
        self.gangs = gangs
        self.needs = dry_run.needs
        entries = np.flatnonzero((rest > 0) & dry_run.useful() & np.isin(table.gang, gangs))
        gang, node = np.searchsorted(gangs, table.gang[entries]), table.node[entries]
        first = np.flatnonzero(np.diff(node * len(gangs) + gang, prepend=-1))
        amounts = table.amounts[:, entries] * rest[entries]
        self.gang: Int64 = gang[first]
        self.node: Int64 = node[first]
        self.amounts: Int64 = np.add.reduceat(amounts, first, axis=1) if len(first) else amounts
        self.free: Int64 = dry_run.free + table.freed_by(evicted)
        self.rank: Int64 = dry_run.state.nodes.rank[table.rows]
        self._by_gang = np.argsort(self.gang, kind="stable")
        self._gang_from = np.searchsorted(self.gang[self._by_gang], np.arange(len(gangs) + 1))
        self._node_from = np.searchsorted(self.node, np.arange(len(table.rows) + 1))

    def __len__(self) -> int:
        return len(self.gang)

    def of_gangs(self, gangs: Sequence[int]) -> Int64:
        """Usages of these gangs."""
        spans = [self._by_gang[self._gang_from[gang] : self._gang_from[gang + 1]] for gang in gangs]
        return np.concatenate(spans) if spans else np.zeros(0, np.int64)

    def on_nodes(self, nodes: Int64) -> Int64:
        """Usages on these nodes, given in ascending order."""
        spans = [np.arange(self._node_from[node], self._node_from[node + 1]) for node in nodes.tolist()]
        return np.concatenate(spans) if spans else np.zeros(0, np.int64)

    def gains(self, need: ClassNeed, free: Int64, now: Int64, usages: Int64 | slice = slice(None)) -> Int64:
        """Seats gained per usage if its gang is evicted next, given free amounts and current seats by node."""
        node = self.node[usages]
        gains: Int64 = need.fits(free[:, node] + self.amounts[:, usages], node) - now[node]
        return gains

    def by_gang(self, gains: Int64) -> Int64:
        """Sums over the usages of each gang."""
        return np.bincount(self.gang, gains, len(self.gangs)).astype(np.int64)


def fewest_gangs(usage: GangUsage, accept: Accept) -> Int64 | None:
    """The victims if the fewest gangs are evicted whole, of equally small sets the first; None if too many sets exist.

    `usage.free` must be an upper bound on what is free once spare pods of other gangs are evicted. Propagates
    exceptions of `accept`.
    """
    cells = MAX_CELLS
    for size in range(1, len(usage.gangs) + 1):
        cells -= comb(len(usage.gangs), size - 1) * (len(usage) + _OVERHEAD_CELLS)
        if cells < 0 and size > 1:
            return None
        for chosen in _promising_sets(usage, size):
            victims = accept([usage.gangs[index] for index in chosen])
            if victims is not None:
                return victims
    return None


def _promising_sets(usage: GangUsage, size: int) -> Iterator[tuple[int, ...]]:
    """Sets of gangs that free enough seats for each class by itself, in order."""
    for first in combinations(range(len(usage.gangs)), size - 1):
        free = usage.free.copy()
        for gang in first:
            of_gang = usage.of_gangs([gang])
            free[:, usage.node[of_gang]] += usage.amounts[:, of_gang]
        start = first[-1] + 1 if first else 0
        for last in (start + np.flatnonzero(_suffices(usage, free)[start:])).tolist():
            yield (*first, last)


def _suffices(usage: GangUsage, free: Int64) -> Int64:
    """Gangs whose eviction gives every class by itself the seats it needs: int64[gangs] of 0 and 1."""
    suffices: Int64 = np.ones(len(usage.gangs), np.int64)
    for need in usage.needs:
        if suffices.any():
            now = need.fits(free)
            seats = need.elsewhere + int(now.sum()) + usage.by_gang(usage.gains(need, free, now))
            suffices &= seats >= need.needed
    return suffices


def few_gangs(usage: GangUsage, accept: Accept) -> Int64 | None:
    """The victims if gangs are evicted whole, the most helpful first; not necessarily the fewest. None if no set is
    accepted.

    Propagates exceptions of `accept`.
    """
    return _Greedy(usage).search(accept)


class _Greedy:
    """Consumes `usage`: the amounts of evicted gangs become 0.

    By class of the group: `_now`, seats on each node; `_gain`, seats that each gang would free if evicted next;
    `_cost`, gangs to evict for one more seat on each node, and `_last`, the last of their usages. Costs are computed
    on demand.
    """

    def __init__(self, usage: GangUsage) -> None:
        self._usage = usage
        self._needs = usage.needs
        self._free = usage.free.copy()
        self._evicted = np.zeros(len(usage.gangs), np.bool_)
        self._now = [need.fits(self._free) for need in self._needs]
        self._gain = [
            usage.by_gang(usage.gains(need, self._free, now)) for need, now in zip(self._needs, self._now, strict=True)
        ]
        self._cost: dict[int, Int64] = {}
        self._last: dict[int, Int64] = {}

    def search(self, accept: Accept) -> Int64 | None:
        targets = [need.needed for need in self._needs]
        while True:
            missing = self._missing(targets)
            if max(missing) > 0 and not self._evicted.all():
                self._evict(self._most_helpful(missing))
                continue
            chosen = [gang for gang, evicted in zip(self._usage.gangs, self._evicted, strict=True) if evicted]
            victims = accept(chosen)
            if victims is not None or self._evicted.all():
                return victims
            # each class has its seats by itself, but not yet all classes together
            targets = [count + max(1, count // 8) for count in targets]

    def _missing(self, targets: Sequence[int]) -> list[int]:
        return [
            count - need.elsewhere - int(now.sum())
            for count, need, now in zip(targets, self._needs, self._now, strict=True)
        ]

    def _most_helpful(self, missing: Sequence[int]) -> list[int]:
        """The gang that frees most of the missing seats; if no gang frees any, the gangs to evict for one seat."""
        score = np.zeros(len(self._evicted), np.int64)
        for count, gain in zip(missing, self._gain, strict=True):
            score += np.clip(gain, 0, max(count, 0))
        score[self._evicted] = -1
        best = int(score.argmax())
        return [best] if score[best] > 0 else self._for_one_seat(int(np.argmax(missing)))

    def _for_one_seat(self, index: int) -> list[int]:
        """The fewest gangs that free one seat for a class; the first remaining gang if no node can offer one."""
        if index not in self._cost:
            nodes = len(self._usage.rank)
            self._cost[index], self._last[index] = np.full(nodes, _UNREACHABLE), np.zeros(nodes, np.int64)
            self._update_cost(index, np.arange(nodes), np.arange(len(self._usage)))
        cost, last = self._cost[index], self._last[index]
        if not len(cost) or cost.min() == _UNREACHABLE:
            return [int(np.flatnonzero(~self._evicted)[0])]
        cheapest = np.flatnonzero(cost == cost.min())
        order = np.lexsort((self._usage.rank[cheapest], self._usage.gang[last[cheapest]]))
        node = cheapest[order[:1]]
        here = self._usage.on_nodes(node)
        here = here[here <= last[node[0]]]
        return [gang for gang in self._usage.gang[here].tolist() if not self._evicted[gang]]

    def _update_cost(self, index: int, nodes: Int64, usages: Int64) -> None:
        """Recompute `_cost` for some nodes, given all usages on them."""
        need, gang, at = self._needs[index], self._usage.gang[usages], self._usage.node[usages]
        self._cost[index][nodes] = _UNREACHABLE
        if not len(usages):
            return
        first = np.searchsorted(at, at)
        amounts, left = self._usage.amounts[:, usages], ~self._evicted[gang]
        sums = amounts.cumsum(axis=1)
        within = sums - (sums - amounts)[:, first]
        enough = need.fits(self._free[:, at] + within, at) > self._now[index][at]
        counted = left.cumsum()
        gangs = np.where(enough, counted - (counted - left)[first], _UNREACHABLE)
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        places = at[starts]
        self._cost[index][places] = np.minimum.reduceat(gangs, starts)
        ends = np.minimum.reduceat(np.where(enough, np.arange(len(usages)), len(usages) - 1), starts)
        self._last[index][places] = usages[ends]

    def _evict(self, chosen: Sequence[int]) -> None:
        """Free the usages of the gangs and update everything about the nodes concerned."""
        freed = self._usage.of_gangs(chosen)
        nodes = np.unique(self._usage.node[freed])
        touched = self._usage.on_nodes(nodes)
        gang = self._usage.gang[touched]
        for need, now, gain in zip(self._needs, self._now, self._gain, strict=True):
            np.subtract.at(gain, gang, self._usage.gains(need, self._free, now, touched))
        for column, amounts in enumerate(self._usage.amounts[:, freed]):
            np.add.at(self._free[column], self._usage.node[freed], amounts)
        self._usage.amounts[:, freed] = 0
        self._evicted[list(chosen)] = True
        for need, now, gain in zip(self._needs, self._now, self._gain, strict=True):
            now[nodes] = need.fits(self._free[:, nodes], nodes)
            np.add.at(gain, gang, self._usage.gains(need, self._free, now, touched))
        for index in self._cost:
            self._update_cost(index, nodes, touched)
