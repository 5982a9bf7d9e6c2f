"""What gangs hold on nodes that a group may use, as arrays: what each one's going would give."""

from collections.abc import Sequence

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.dry_run import ClassNeed, DryRun


class Holds:
    """A hold is what one gang holds on one node and gives back only as a whole.

    `gangs` are those asked about, in the order of the request. Holds are sorted by node, then gang: `gang` is an index
    into `gangs`, `at` that of the node, both int64[holds]; `amounts` is int64[resources, holds]. `free` is what is free
    on the nodes once the pods that may go anyway have gone, int64[resources, nodes].
    """

    def __init__(self, trial: DryRun, gangs: Sequence[int], spared: Int64, rest: Int64) -> None:
        """`spared` pods of each entry go anyway, `rest` only with their gang."""
        candidates = trial.candidates
        self.gangs = gangs
        self.needs = trial.needs
        held = np.flatnonzero((rest > 0) & trial.useful() & np.isin(candidates.gang, gangs))
        gang, at = np.searchsorted(gangs, candidates.gang[held]), candidates.at[held]
        first = np.flatnonzero(np.diff(at * len(gangs) + gang, prepend=-1))
        amounts = candidates.amounts[:, held] * rest[held]
        self.gang: Int64 = gang[first]
        self.at: Int64 = at[first]
        self.amounts: Int64 = np.add.reduceat(amounts, first, axis=1) if len(first) else amounts
        self.free: Int64 = trial.free + candidates.freed(spared)
        self.rank: Int64 = trial.state.nodes.rank[candidates.rows]
        self._by_gang = np.argsort(self.gang, kind="stable")
        self._gang_from = np.searchsorted(self.gang[self._by_gang], np.arange(len(gangs) + 1))
        self._node_from = np.searchsorted(self.at, np.arange(len(candidates.rows) + 1))

    def __len__(self) -> int:
        return len(self.gang)

    def of_gangs(self, gangs: Sequence[int]) -> Int64:
        """Holds of these gangs."""
        spans = [self._by_gang[self._gang_from[gang] : self._gang_from[gang + 1]] for gang in gangs]
        return np.concatenate(spans) if spans else np.zeros(0, np.int64)

    def on_nodes(self, nodes: Int64) -> Int64:
        """Holds on these nodes, which are in order."""
        spans = [np.arange(self._node_from[node], self._node_from[node + 1]) for node in nodes.tolist()]
        return np.concatenate(spans) if spans else np.zeros(0, np.int64)

    def gains(self, need: ClassNeed, free: Int64, now: Int64, holds: Int64 | slice = slice(None)) -> Int64:
        """Seats that each hold gives if it goes next: `free` is what is free, `now` the seats there are, by node."""
        at = self.at[holds]
        gains: Int64 = need.fits(free[:, at] + self.amounts[:, holds], at) - now[at]
        return gains

    def by_gang(self, gains: Int64) -> Int64:
        """Sums over the holds of each gang."""
        return np.bincount(self.gang, gains, len(self.gangs)).astype(np.int64)
