"""Reprieves victims: removes from the set every whole gang and every spare pod that the group does not need evicted."""

from collections.abc import Callable, Sequence

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.dry_run import DryRun, EffortSpent
from muster.placement.state.nodes import Bool


def reprieve(dry_run: DryRun, victims: Int64, spare: Sequence[int], max_efforts: int) -> Int64:
    """The remaining victims after whole gangs, then single spare pods, are reprieved, the last in request order first.

    `spare` is how many pods each gang can spare.
    """
    entries = victims > 0
    if not entries.any():
        return victims
    dry_run = dry_run.restricted_to(dry_run.table.restricted_to(entries))
    dry_run.limit_effort(max_efforts)
    remaining = victims.copy()
    remaining[entries] = _Reprieve(dry_run, victims[entries], spare).run()
    return remaining


class _Reprieve:
    def __init__(self, dry_run: DryRun, victims: Int64, spare: Sequence[int]) -> None:
        self._dry_run = dry_run
        self._table = dry_run.table
        self._victims = victims
        self._spare = np.array(spare, np.int64)

    def run(self) -> Int64:
        try:
            self._reprieve_gangs()
            self._reprieve_spare_pods()
        except EffortSpent:
            pass  # the remaining victims suffice, though some may be unneeded
        return self._victims

    def _reprieve_gangs(self) -> None:
        gang = self._table.gang
        whole = np.unique(gang[self._evicted_whole()])
        victims = self._victims
        self._reprieve_from_last(len(whole), lambda units: np.where(np.isin(gang, whole[units]), 0, victims))

    def _reprieve_spare_pods(self) -> None:
        in_order = self._table.request_order
        spare = np.where(self._evicted_whole(), 0, self._victims)
        entry = np.repeat(in_order, spare[in_order])
        victims = self._victims
        self._reprieve_from_last(len(entry), lambda units: victims - np.bincount(entry[units], minlength=len(victims)))

    def _evicted_whole(self) -> Bool:
        """Entries of gangs that lose more pods than they can spare."""
        lost = self._table.pods_by_gang(self._victims)
        whole: Bool = (lost > self._spare)[self._table.gang]
        return whole

    def _reprieve_from_last(self, units: int, victims_without: Callable[[Bool], Int64]) -> None:
        """Reprieve units from the last one on, in steps that double as long as a whole step can be reprieved.

        `victims_without` gives the victims that remain if some of the units are reprieved.
        """
        reprieved: Bool = np.zeros(units, np.bool_)
        end, step = units, 1
        while end:
            attempt = reprieved.copy()
            attempt[max(0, end - step) : end] = True
            victims = victims_without(attempt)
            if self._dry_run.fits(victims):
                self._victims, reprieved = victims, attempt
                end, step = max(0, end - step), 2 * step
            elif step > 1:
                step = 1
            else:
                end -= 1
