"""Nothing goes that need not: what was found to go is put back as far as the group still has a place then."""

from collections.abc import Callable, Sequence

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.dry_run import DryRun, EffortSpent
from muster.placement.state.nodes import Bool


def reprieve(trial: DryRun, removed: Int64, allowance: Sequence[int], efforts: int) -> Int64:
    """What goes after whole gangs, then spare pods one by one, were put back where that can be, the last ones first."""
    entries = removed > 0
    if not entries.any():
        return removed
    trial = trial.among(trial.candidates.only(entries))
    trial.allow(efforts)
    needed = removed.copy()
    needed[entries] = _Back(trial, removed[entries], allowance).put()
    return needed


class _Back:
    def __init__(self, trial: DryRun, removed: Int64, allowance: Sequence[int]) -> None:
        self._trial = trial
        self._removed = removed
        self._allowance = np.array(allowance, np.int64)

    def put(self) -> Int64:
        try:
            self._put_gangs()
            self._put_spare_pods()
        except EffortSpent:
            pass  # what goes is enough, if perhaps not all of it needed
        return self._removed

    def _put_gangs(self) -> None:
        gang = self._trial.candidates.gang
        whole = np.unique(gang[self._whole()])
        removed = self._removed
        self._put_last(len(whole), lambda back: np.where(np.isin(gang, whole[back]), 0, removed))

    def _put_spare_pods(self) -> None:
        in_order = self._trial.candidates.in_order
        spare = np.where(self._whole(), 0, self._removed)
        entry = np.repeat(in_order, spare[in_order])
        removed = self._removed
        self._put_last(len(entry), lambda back: removed - np.bincount(entry[back], minlength=len(removed)))

    def _whole(self) -> Bool:
        """Entries of gangs that lose more than they can spare."""
        gang = self._trial.candidates.gang
        lost = np.bincount(gang, self._removed, len(self._allowance))
        whole: Bool = (lost > self._allowance)[gang]
        return whole

    def _put_last(self, units: int, without: Callable[[Bool], Int64]) -> None:
        """Put back units from the last, in steps that grow as long as all of a step can be put back; `without` says
        what goes when some of the units are back.
        """
        back: Bool = np.zeros(units, np.bool_)
        end, step = units, 1
        while end:
            attempt = back.copy()
            attempt[max(0, end - step) : end] = True
            removed = without(attempt)
            if self._trial.fits(removed):
                self._removed, back = removed, attempt
                end, step = max(0, end - step), 2 * step
            elif step > 1:
                step = 1
            else:
                end -= 1
