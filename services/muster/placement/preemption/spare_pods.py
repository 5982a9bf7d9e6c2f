"""Which pods go one by one: of every gang no more than it can spare, and never one that is of no use."""

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.dry_run import DryRun
from muster.placement.preemption.economy import spare_for

_GANGS_VARIED: Final = 7
_CHOICES_TRIED: Final = 200
"""Of the ways to choose among the pods of gangs that can spare some of them but not all; of more gangs there are more
ways than would be tried.
"""


class Spare:
    """Spare pods among those allowed. `most` are those of each entry that may go if no others of their gang do, `first`
    the first of each gang; pods that are of no use to the group are left out.

    `allowance` is how many pods each gang can spare; those that cannot spare all that are of use are `limited`.
    """

    def __init__(self, trial: DryRun, allowed: Int64) -> None:
        candidates = trial.candidates
        self.allowance = [gang.spare for gang in candidates.gangs]
        self._trial = trial
        self._allowed = allowed
        spare = np.array(self.allowance, np.int64)[candidates.gang]
        useful: Int64 = np.where(trial.useful(), allowed, 0)
        self.most: Int64 = np.minimum(useful, spare)
        self.first = _first(trial, self.most, self.allowance)
        totals = np.bincount(candidates.gang, useful, len(self.allowance)).tolist()
        self.limited = [gang for gang, total in enumerate(totals) if total > self.allowance[gang]]

    def beside(self, whole: Sequence[int]) -> Int64 | None:
        """What goes if these gangs go whole and spare pods of others besides; None if no place is found then.

        Raises EffortSpent.
        """
        trial, gang = self._trial, self._trial.candidates.gang
        goes_whole = np.isin(gang, whole)
        removed: Int64 = np.where(goes_whole, self._allowed, 0)
        if not self.most.any():
            return removed if whole and trial.fits(removed) else None
        available: Int64 = np.where(goes_whole, 0, self.most)
        if not trial.fits(removed + available):
            return None
        found = spare_for(trial, removed, available, self.allowance)
        if found is not None and trial.fits(found):
            return found
        for choice in self._choices(available):
            if trial.fits(removed + choice):
                return removed + choice
        return None

    def first_beside(self, whole: Sequence[int]) -> Int64 | None:
        """As `beside`, but the first pods of each gang go whether they are needed or not."""
        goes_whole = np.isin(self._trial.candidates.gang, whole)
        removed: Int64 = np.where(goes_whole, self._allowed, self.first)
        return removed if self._trial.fits(removed) else None

    def _choices(self, available: Int64) -> Iterator[Int64]:
        """Ways to choose as many as each gang can spare: the first pods of each, then others as far as that goes."""
        candidates = self._trial.candidates
        first = np.minimum(self.first, available)
        yield first
        if len(self.limited) > _GANGS_VARIED:
            return
        in_order = candidates.in_order
        of_gang, held = candidates.gang[in_order], available[in_order]
        totals = np.bincount(candidates.gang, available, len(self.allowance))
        binding = [gang for gang in self.limited if totals[gang] > self.allowance[gang]]
        entries = [in_order[(of_gang == gang) & (held > 0)] for gang in binding]
        ways = [
            list(islice(_ways(available[each].tolist(), self.allowance[gang]), _CHOICES_TRIED))
            for gang, each in zip(binding, entries, strict=True)
        ]
        for way in islice(product(*ways), _CHOICES_TRIED):
            choice = first.copy()
            for each, counts in zip(entries, way, strict=True):
                choice[each] = counts
            yield choice


def _first(trial: DryRun, available: Int64, allowance: Sequence[int]) -> Int64:
    in_order = trial.candidates.in_order
    gang, held = trial.candidates.gang[in_order], available[in_order]
    before = held.cumsum() - held
    before -= before[np.searchsorted(gang, gang)]
    first: Int64 = np.zeros(len(available), np.int64)
    first[in_order] = np.clip(np.array(allowance, np.int64)[gang] - before, 0, held)
    return first


def _ways(held: Sequence[int], spare: int) -> Iterator[tuple[int, ...]]:
    """Ways to take `spare` from these, the first ones first."""
    if not held:
        if not spare:
            yield ()
        return
    for count in range(min(held[0], spare), max(0, spare - sum(held[1:])) - 1, -1):
        for others in _ways(held[1:], spare - count):
            yield (count, *others)
