"""Whether a group would have a place if some pods were gone: asked many times while it is sought who has to go."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.solver import members_interact
from muster.placement.preemption.victim_table import VictimTable
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.feasibility import has_place, is_constrained
from muster.placement.solve.instance import Part, is_homogeneous
from muster.placement.state.capacity import MAX_FITS, CapacityState, ClassCapacity
from muster.placement.state.filters import USABLE
from muster.placement.state.nodes import Bool

STEPS_PER_TRIAL: Final = 2_000
STEPS_FOR_ALL: Final = 30_000
"""What trials may spend on exact searches, about 5 microseconds a step."""
_EFFORT_OF_MIXED: Final = 20
_EFFORT_OF_COUPLED: Final = 100
_ENTRIES_PER_EFFORT: Final = 5_000
"""A trial by counting is one effort for so many entries; for a mixed group, or one under constraints, whose members
have to be seated, it is so many more."""
NOTHING_FREE: Final = 2**58
"""Taken from what is free on nodes on which there is to be no room whoever goes: more of any resource than a node has,
and far from what an int64 can hold."""


class ClassNeed:
    """How many members of one class must have a seat, and where they have one: `usable` is bool[nodes]; so is `open_`,
    where there is room at all once pods have gone. `now` is int64[all rows], seats that there are if none has gone, and
    `caps` how many members other pods allow on each at best, when pods have gone; None if they have no say.
    """

    def __init__(self, state: ClassCapacity, needed: int, rows: Int64, open_: Bool, caps: Int64 | None) -> None:
        self.state = state
        self.needed = needed
        self.usable: Bool = (state.filters.reason[rows] == USABLE) & open_
        self.now: Int64 = state.fits if caps is None else np.minimum(state.alone, caps)
        self.elsewhere = int(self.now.sum()) - int(self.now[rows].sum())
        self._caps = None if caps is None else caps[rows]
        self._columns = state.columns
        self._amounts = state.amounts[:, None]

    def fits(self, free: Int64, at: Int64 | slice = slice(None)) -> Int64:
        """Seats where so much is free: `free` is int64[resources, some], `at` the nodes meant."""
        fits: Int64 = np.maximum((free[self._columns] // self._amounts).min(axis=0, initial=MAX_FITS), 0)
        if self._caps is not None:
            fits = np.minimum(fits, self._caps[at])
        return fits * self.usable[at]


class EffortSpent(Exception):
    """More efforts were made than were allowed."""


class DryRun:
    """One group with its hard constraints, one room, and pods that may go. Nothing stays taken or freed.

    `free` is what is free on the candidates' nodes, int64[resources, nodes]; `needs` has each class of the group once.
    Efforts are counted, about 50 microseconds each: counts and not seconds, so that every replica answers the same.
    """

    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part], candidates: VictimTable) -> None:
        self.state = state
        self.group = group
        self.parts = parts
        self.candidates = candidates
        self.free: Int64 = state.free[:, candidates.rows]
        must_seat = _must_seat(group, parts)
        open_: Bool = np.all(self.free > -NOTHING_FREE // 2, axis=0)
        self._is_coupled = members_interact(state, parts)
        settled = not candidates.minded and not self._is_coupled
        caps = _caps(state, must_seat) if settled else _caps_at_best(state, must_seat, candidates)
        self.needs = [
            ClassNeed(state.of(each), needed, candidates.rows, open_, caps.get(each))
            for each, needed in must_seat.items()
        ]
        self.members = sum(part.wanted for part in parts)
        self._counting_settles_it = is_homogeneous(parts) and not is_constrained(group) and (settled or not caps)
        self._steps_left = STEPS_FOR_ALL
        self._efforts_left = 0

    def among(self, candidates: VictimTable) -> "DryRun":
        """The same for some of the candidates."""
        return DryRun(self.state, self.group, self.parts, candidates)

    def allow(self, efforts: int) -> None:
        """Make so many more efforts and no more."""
        self._efforts_left = efforts

    def spend(self, efforts: int) -> None:
        """Count efforts. Raises EffortSpent."""
        self._efforts_left -= efforts
        if self._efforts_left < 0:
            raise EffortSpent

    def useful(self) -> Bool:
        """Whether some member of the group may go where the entry is, bool[entries]."""
        useful: Bool = np.logical_or.reduce([need.usable for need in self.needs])[self.candidates.at]
        return useful

    def fits(self, removed: Int64) -> bool:
        """All minimums have room once so many pods of each entry are gone.

        Raises EffortSpent.
        """
        self.spend(1 + len(removed) // _ENTRIES_PER_EFFORT)
        free = self.free + self.candidates.freed(removed)
        if any(need.elsewhere + int(need.fits(free).sum()) < need.needed for need in self.needs):
            return False
        return self._counting_settles_it or self._seated(removed)

    def _seated(self, removed: Int64) -> bool:
        self.spend(_EFFORT_OF_COUPLED if self._is_coupled else _EFFORT_OF_MIXED)
        checkpoint = self.state.checkpoint()
        self.candidates.let_go(self.state, removed)
        budget = Budget(min(STEPS_PER_TRIAL, self._steps_left))
        granted = budget.left
        try:
            return has_place(self.state, self.group, self.parts, budget)
        finally:
            self._steps_left -= granted - max(0, budget.left)
            self.state.rollback(checkpoint)


def _caps(state: CapacityState, class_ids: Iterable[str]) -> dict[str, Int64]:
    """Of classes that mind other pods, how many members these allow on each node."""
    limits = {class_id: state.of(class_id).inter_pod for class_id in class_ids}
    return {class_id: each.caps() for class_id, each in limits.items() if each is not None and each.required}


def _caps_at_best(state: CapacityState, class_ids: Iterable[str], candidates: VictimTable) -> dict[str, Int64]:
    """The same when all candidates have gone, whoever of the group comes to help."""
    limits = {class_id: state.of(class_id).inter_pod for class_id in class_ids}
    limited = {class_id: each for class_id, each in limits.items() if each is not None and each.required}
    if not limited:
        return {}
    checkpoint = state.checkpoint()
    candidates.let_go(state, candidates.count)
    caps = {class_id: each.caps_upper_bound() for class_id, each in limited.items()}
    state.rollback(checkpoint)
    return caps


def _must_seat(group: SolveGroup, parts: Sequence[Part]) -> Counter[str]:
    """How many members of each class must have a seat even if all others had one."""
    must_seat: Counter[str] = Counter()
    for index, gang in enumerate(group.gangs):
        wanted = sum(part.wanted for part in parts if part.gang == index)
        for part in parts:
            if part.gang == index:
                must_seat[part.class_id] += max(0, gang.minimum - (wanted - part.wanted))
    return must_seat
