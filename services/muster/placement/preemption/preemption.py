"""Who has to go so that a group has a place: the lowest levels, spare pods, few gangs, and nobody for nothing.

Nobody goes for soft constraints.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.solve import PotentialVictim, SolveGroup
from muster.placement.preemption.dry_run import DryRun, EffortSpent
from muster.placement.preemption.fewest import fewest_gangs
from muster.placement.preemption.holds import Holds
from muster.placement.preemption.one_domain import confinement, who_goes_near, who_goes_of_one_domain
from muster.placement.preemption.reprieve import reprieve
from muster.placement.preemption.spare_pods import Spare
from muster.placement.preemption.victim_table import VictimTable, victim_table
from muster.placement.preemption.whole_gangs import greedy_gangs
from muster.placement.solve.feasibility import only_hard
from muster.placement.solve.instance import NotPlaced, Part, Placed
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nominated import NominatedAmounts

_EFFORTS: Final = 5_000
"""For each stage of a removal; a quarter of a second, which only the largest come near."""
_EFFORTS_PER_MEMBER: Final = 8
"""More where members are seated one by one."""
_EFFORTS_FOR_FEWEST: Final = 600
"""For trying sets of gangs, whose number has no end."""

PlaceWhole = Callable[[], Placed | NotPlaced]
"""Places the group in the room as it is then."""


def place_by_preemption(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    potential_victims: Sequence[PotentialVictim],
    kept: NominatedAmounts,
    place: PlaceWhole,
    present: NotPlaced,
) -> Placed | NotPlaced:
    """Place a group that has no place at `present`, if it has one once some of the potential_victims pods are gone."""
    candidates = victim_table(state, potential_victims, kept)
    if not len(candidates):
        return present
    checkpoint = state.checkpoint()
    candidates.let_go(state, candidates.count)
    answer = place()
    state.rollback(checkpoint)
    if isinstance(answer, NotPlaced):
        summary = f"even if all that may be removed were gone: {answer.explanation.summary}"
        return replace(answer, explanation=replace(answer.explanation, summary=summary))
    removed = _who_goes_for(state, only_hard(group), parts, candidates, answer)
    if removed is None:
        return NotPlaced(False, present.explanation)
    candidates.let_go(state, removed)
    answer = place()
    if isinstance(answer, NotPlaced):
        state.rollback(checkpoint)
        return NotPlaced(False, present.explanation)
    return replace(answer, victims=candidates.answer(removed))


def _who_goes_for(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], candidates: VictimTable, if_all_went: Placed
) -> Int64 | None:
    confined = confinement(state, group)
    if confined is not None:
        return who_goes_of_one_domain(state, group, parts, candidates, confined, _who_goes)
    return who_goes_near(
        state, group, parts, candidates, (assignment.node for assignment in if_all_went.assignments), _who_goes
    )


def _who_goes(trial: DryRun) -> Int64 | None:
    """How many pods of each entry go; None if that is too hard to tell, which leaves all of them where they are."""
    trial.allow(_EFFORTS)
    allowed = _lowest_levels(trial)
    if not trial.fits(allowed):
        return None
    spare = Spare(trial, allowed)
    trial.allow(_EFFORTS + _EFFORTS_PER_MEMBER * trial.members)
    removed = _unless_spent(lambda: spare.beside(()))
    if removed is None:
        removed = _some_gangs(trial, allowed, spare)
    return reprieve(trial, removed, spare.allowance, _EFFORTS)


def _lowest_levels(trial: DryRun) -> Int64:
    """All pods of the levels that suffice, by entry."""
    candidates = trial.candidates
    level_of = np.array([gang.level for gang in candidates.gangs], np.int64)[candidates.gang]
    levels = np.unique(level_of)

    def up_to(index: int) -> Int64:
        pods: Int64 = np.where(level_of <= levels[index], candidates.count, 0)
        return pods

    return up_to(bisect_left(range(len(levels) - 1), True, key=lambda index: trial.fits(up_to(index))))


def _some_gangs(trial: DryRun, allowed: Int64, spare: Spare) -> Int64:
    """What goes if gangs have to go whole: as few as can be found; in the worst case all that is allowed."""
    trial.allow(_EFFORTS_FOR_FEWEST)
    holds = Holds(trial, spare.limited, spare.most, allowed - spare.most)
    removed = _unless_spent(lambda: fewest_gangs(holds, spare.beside))
    if removed is not None:
        return removed
    trial.allow(_EFFORTS)
    holds = Holds(trial, spare.limited, spare.first, allowed - spare.first)
    removed = _unless_spent(lambda: greedy_gangs(holds, spare.first_beside))
    if removed is None:
        return allowed
    lost = np.bincount(trial.candidates.gang, removed, len(spare.allowance))
    whole = np.flatnonzero(lost > spare.allowance).tolist()
    trial.allow(_EFFORTS + _EFFORTS_PER_MEMBER * trial.members)
    fewer_pods = _unless_spent(lambda: spare.beside(whole))
    return removed if fewer_pods is None else fewer_pods


def _unless_spent(search: Callable[[], Int64 | None]) -> Int64 | None:
    try:
        return search()
    except EffortSpent:
        return None
