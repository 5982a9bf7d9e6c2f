"""Takes as many spare pods from fewer gangs: each gang that shrinks may have to restart."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.preemption.dry_run import DryRun, EffortSpent, VictimTable
from muster.placement.preemption.spare_pods import SparePods

_MAX_TRIALS: Final = 16
"""Selections that are tried, of each kind."""


def from_fewer_gangs(dry_run: DryRun, allowed: Int64, victims: Int64, max_efforts: int) -> Int64:
    """Victims with no more pods, of no higher levels, that shrink fewer gangs; `victims` if none are found. Gangs that
    are evicted whole stay the same.
    """
    table, spare = dry_run.table, np.array([gang.spare for gang in dry_run.table.gangs], np.int64)
    lost = table.pods_by_gang(victims)
    whole = np.flatnonzero(lost > spare)
    dry_run.limit_effort(max_efforts)
    try:
        if (found := _from_one(dry_run, allowed, victims, whole, spare)) is not None:
            return found
        return _from_fewer(dry_run, allowed, victims, whole)
    except EffortSpent:
        return victims


def _from_one(dry_run: DryRun, allowed: Int64, victims: Int64, whole: Int64, spare: Int64) -> Int64 | None:
    table = dry_run.table
    shrunk = _shrunk(table, victims, whole)
    if len(shrunk) < 2:
        return None
    pods = int(table.pods_by_gang(victims)[shrunk].sum())
    level = min(table.gangs[gang].level for gang in shrunk)
    enough = (gang for gang in range(len(spare)) if spare[gang] >= pods and table.gangs[gang].level <= level)
    for _, gang in zip(range(_MAX_TRIALS), (gang for gang in enough if gang not in whole), strict=False):
        found = _select(dry_run, np.where(np.isin(table.gang, [gang, *whole]), allowed, 0), whole)
        if found is not None and found.sum() <= victims.sum():
            return found
    return None


def _from_fewer(dry_run: DryRun, allowed: Int64, victims: Int64, whole: Int64) -> Int64:
    """Spares one gang after the other, that which loses fewest pods first."""
    table = dry_run.table
    level = table.level
    for gang in list(_spareable(table, victims, whole))[:_MAX_TRIALS]:
        shrunk = _shrunk(table, victims, whole)
        if len(shrunk) < 2:
            break
        others = np.isin(table.gang, [each for each in (*shrunk, *whole) if each != gang])
        more = np.where(level <= table.gangs[gang].level, allowed, victims)
        found = _select(dry_run, np.where(others, more, 0), whole)
        if found is not None and found.sum() <= victims.sum():
            victims = found
    return victims


def _spareable(table: VictimTable, victims: Int64, whole: Int64) -> Iterator[int]:
    lost = table.pods_by_gang(victims)
    yield from sorted(_shrunk(table, victims, whole), key=lambda gang: (int(lost[gang]), -gang))


def _shrunk(table: VictimTable, victims: Int64, whole: Int64) -> list[int]:
    """Gangs that lose spare pods."""
    shrunk: list[int] = np.setdiff1d(np.flatnonzero(table.pods_by_gang(victims)), whole).tolist()
    return shrunk


def _select(dry_run: DryRun, allowed: Int64, whole: Int64) -> Int64 | None:
    return SparePods(dry_run, allowed).select(whole.tolist())
