"""Selects the victims for a group that does not fit: lowest levels first, spare pods before whole gangs, fewest gangs,
and no pod that is not needed.

Soft constraints never cause an eviction.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.solve import PotentialVictim, SolveGroup
from muster.placement.preemption.dry_run import DryRun, EffortSpent, VictimTable, victim_table
from muster.placement.preemption.fewer_gangs import from_fewer_gangs
from muster.placement.preemption.one_domain import packed_gang, victims_in_one_domain, victims_near
from muster.placement.preemption.spare_pods import SparePods
from muster.placement.preemption.whole_gangs import GangUsage, few_gangs, fewest_gangs
from muster.placement.solve.instance import NotPlaced, Part, Placed
from muster.placement.solve.level_rules import only_hard
from muster.placement.state.capacity import CapacityState, NominatedAmounts
from muster.placement.state.nodes import Bool

_EFFORTS: Final = 5_000
"""For each stage of a selection: a quarter of a second, which only the largest instances reach."""
_EFFORTS_PER_MEMBER: Final = 8
"""Added where members are seated one by one."""
_EFFORTS_FOR_FEWEST: Final = 600
"""For the enumeration of sets of gangs, which is unbounded otherwise."""

Place = Callable[[], Placed | NotPlaced]
"""Places the whole group in the current capacity state."""


def place_by_preemption(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    potential_victims: Sequence[PotentialVictim],
    nominated: NominatedAmounts,
    place: Place,
    not_placed: NotPlaced,
) -> Placed | NotPlaced:
    """Place a group with victims; if no victims make it fit, it is not placed. `not_placed` is the answer without
    preemption.
    """
    table = victim_table(state, potential_victims, nominated)
    if not len(table):
        return not_placed
    checkpoint = state.checkpoint()
    table.evict(state, table.count)
    with_all_victims = place()
    state.rollback(checkpoint)
    if isinstance(with_all_victims, NotPlaced):
        summary = f"even if all potential victims were evicted: {with_all_victims.explanation.summary}"
        return replace(with_all_victims, explanation=replace(with_all_victims.explanation, summary=summary))
    victims = _select(state, only_hard(group), parts, table, with_all_victims)
    if victims is None:
        return NotPlaced(False, not_placed.explanation)
    table.evict(state, victims)
    answer = place()
    if isinstance(answer, NotPlaced):
        state.rollback(checkpoint)
        return NotPlaced(False, not_placed.explanation)
    return replace(answer, victims=table.victim_gangs(victims))


def _select(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], table: VictimTable, with_all_victims: Placed
) -> Int64 | None:
    packed = packed_gang(state, group)
    if packed is not None:
        return victims_in_one_domain(state, group, parts, table, packed, _select_victims)
    nodes = (assignment.node for assignment in with_all_victims.assignments)
    return victims_near(state, group, parts, table, nodes, _select_victims)


def _select_victims(dry_run: DryRun) -> Int64 | None:
    """The victims, int64[entries]; None if the effort did not suffice to find out, so that no pod is evicted."""
    dry_run.limit_effort(_EFFORTS)
    allowed = _lowest_levels(dry_run)
    if not dry_run.fits(allowed):
        return None
    spare_pods = SparePods(dry_run, allowed)
    dry_run.limit_effort(_EFFORTS + _EFFORTS_PER_MEMBER * dry_run.members)
    victims = _unless_spent(spare_pods.select)
    if victims is None:
        victims = _with_whole_gangs(dry_run, allowed, spare_pods)
    victims = reprieve(dry_run, victims, spare_pods.spare, _EFFORTS)
    return from_fewer_gangs(dry_run, allowed, victims, _EFFORTS)


def _lowest_levels(dry_run: DryRun) -> Int64:
    """All pods of as few preemption levels as suffice, the lowest first: int64[entries]."""
    table = dry_run.table
    level_of = table.level
    levels = np.unique(level_of)

    def up_to(index: int) -> Int64:
        pods: Int64 = np.where(level_of <= levels[index], table.count, 0)
        return pods

    return up_to(bisect_left(range(len(levels) - 1), True, key=lambda index: dry_run.fits(up_to(index))))


def _with_whole_gangs(dry_run: DryRun, allowed: Int64, spare_pods: SparePods) -> Int64:
    """Victims when spare pods do not suffice: as few whole gangs as can be found, at worst all pods allowed."""
    dry_run.limit_effort(_EFFORTS_FOR_FEWEST)
    usage = GangUsage(dry_run, spare_pods.limited, spare_pods.most, allowed - spare_pods.most)
    victims = _unless_spent(lambda: fewest_gangs(usage, spare_pods.select))
    if victims is not None:
        return victims
    dry_run.limit_effort(_EFFORTS)
    usage = GangUsage(dry_run, spare_pods.limited, spare_pods.first, allowed - spare_pods.first)
    victims = _unless_spent(lambda: few_gangs(usage, spare_pods.select_first))
    if victims is None:
        return allowed
    lost = dry_run.table.pods_by_gang(victims)
    whole = np.flatnonzero(lost > spare_pods.spare).tolist()
    dry_run.limit_effort(_EFFORTS + _EFFORTS_PER_MEMBER * dry_run.members)
    with_fewer_pods = _unless_spent(lambda: spare_pods.select(whole))
    return victims if with_fewer_pods is None else with_fewer_pods


def _unless_spent(search: Callable[[], Int64 | None]) -> Int64 | None:
    try:
        return search()
    except EffortSpent:
        return None


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
