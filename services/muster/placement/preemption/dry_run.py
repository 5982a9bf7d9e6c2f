"""Dry run of a preemption: tests whether a group fits once given victims are evicted, many times per selection."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.solver import members_interact
from muster.placement.preemption.victim_table import VictimTable
from muster.placement.solve.algorithms import has_place
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.instance import Part, is_constrained, is_homogeneous
from muster.placement.state.capacity import MAX_FITS, CapacityState, ClassCapacity
from muster.placement.state.filters import USABLE
from muster.placement.state.nodes import Bool

MAX_STEPS_PER_RUN: Final = 2_000
MAX_STEPS: Final = 30_000
"""Budget of exact searches, per dry run and for all dry runs together; about 5 microseconds a step."""
_EFFORT_HETEROGENEOUS: Final = 20
_EFFORT_INTERACTING: Final = 100
_ENTRIES_PER_EFFORT: Final = 5_000
"""A dry run by counting costs one effort per so many entries. Groups whose members have to be seated cost more: those
that are heterogeneous or constrained, and those whose members interact.
"""
EXCLUDED: Final = 2**58
"""Subtracted from the free amounts of nodes that are out of bounds whatever is evicted: more than any node has of any
resource, and far from the limits of int64.
"""


class ClassNeed:
    """Members of one class that must be seated, and where they fit.

    - `needed`: members that must be seated even if all members of other classes are.
    - `usable`: bool[nodes]; nodes of the victim table that pass the filters and are not excluded.
    - `now`: int64[all rows]; seats if no pod is evicted. `elsewhere`: their sum on nodes outside the victim table.

    `caps` bounds the members on each row by inter-pod rules, at best once pods are evicted; None without rules.
    """

    def __init__(self, of_class: ClassCapacity, needed: int, rows: Int64, open_: Bool, caps: Int64 | None) -> None:
        self.needed = needed
        self.usable: Bool = (of_class.filters.reason[rows] == USABLE) & open_
        self.now: Int64 = of_class.fits if caps is None else np.minimum(of_class.alone, caps)
        self.elsewhere = int(self.now.sum()) - int(self.now[rows].sum())
        self._caps = None if caps is None else caps[rows]
        self._columns = of_class.columns
        self._amounts = of_class.amounts[:, None]

    def fits(self, free: Int64, at: Int64 | slice = slice(None)) -> Int64:
        """Seats given free amounts, int64[resources, some], on the nodes `at`."""
        fits: Int64 = np.maximum((free[self._columns] // self._amounts).min(axis=0, initial=MAX_FITS), 0)
        if self._caps is not None:
            fits = np.minimum(fits, self._caps[at])
        return fits * self.usable[at]


class EffortSpent(Exception):
    """The allowed efforts are used up."""


class DryRun:
    """One group with its hard constraints, one capacity state, one victim table. Every run leaves the state unchanged.

    `free` is int64[resources, nodes], free amounts on the nodes of the table; `needs` has one element per class of the
    group. Effort is counted, about 50 microseconds each, instead of time, so that every replica finds the same victims.
    """

    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part], table: VictimTable) -> None:
        self.state = state
        self.group = group
        self.parts = parts
        self.table = table
        self.free: Int64 = state.free[:, table.rows]
        must_seat = _must_seat(group, parts)
        open_: Bool = np.all(self.free > -EXCLUDED // 2, axis=0)
        self._interacting = members_interact(state, parts)
        caps_are_exact = not table.tracked_kinds and not self._interacting
        caps = _caps(state, must_seat) if caps_are_exact else _caps_upper_bound(state, must_seat, table)
        self.needs = [
            ClassNeed(state.of(each), needed, table.rows, open_, caps.get(each)) for each, needed in must_seat.items()
        ]
        self.members = sum(part.wanted for part in parts)
        self._counting_suffices = is_homogeneous(parts) and not is_constrained(group) and (caps_are_exact or not caps)
        self._steps_left = MAX_STEPS
        self._efforts_left = 0

    def restricted_to(self, table: VictimTable) -> "DryRun":
        """The same dry run with a smaller table."""
        return DryRun(self.state, self.group, self.parts, table)

    def limit_effort(self, efforts: int) -> None:
        """Allow this much more effort."""
        self._efforts_left = efforts

    def spend(self, efforts: int) -> None:
        """Count effort. Raises EffortSpent, and OutOfTime."""
        self.state.limit.check()
        self._efforts_left -= efforts
        if self._efforts_left < 0:
            raise EffortSpent

    def useful(self) -> Bool:
        """Entries on nodes that some member may use, bool[entries]."""
        useful: Bool = np.logical_or.reduce([need.usable for need in self.needs])[self.table.node]
        return useful

    def fits(self, victims: Int64) -> bool:
        """All minimums fit once the victims are evicted.

        Raises EffortSpent.
        """
        self.spend(1 + len(victims) // _ENTRIES_PER_EFFORT)
        free = self.free + self.table.freed_by(victims)
        if any(need.elsewhere + int(need.fits(free).sum()) < need.needed for need in self.needs):
            return False
        return self._counting_suffices or self._seats_group(victims)

    def _seats_group(self, victims: Int64) -> bool:
        self.spend(_EFFORT_INTERACTING if self._interacting else _EFFORT_HETEROGENEOUS)
        checkpoint = self.state.checkpoint()
        self.table.evict(self.state, victims)
        budget = Budget(min(MAX_STEPS_PER_RUN, self._steps_left), self.state.limit)
        granted = budget.left
        try:
            return has_place(self.state, self.group, self.parts, budget)
        finally:
            self._steps_left -= granted - max(0, budget.left)
            self.state.rollback(checkpoint)


def _required_rules(state: CapacityState, class_ids: Iterable[str]) -> dict[str, InterPodRules]:
    rules = {class_id: state.of(class_id).inter_pod for class_id in class_ids}
    return {class_id: each for class_id, each in rules.items() if each is not None and each.required}


def _caps(state: CapacityState, class_ids: Iterable[str]) -> dict[str, Int64]:
    """For classes with required inter-pod rules, the members that these allow on each node."""
    return {class_id: rules.caps() for class_id, rules in _required_rules(state, class_ids).items()}


def _caps_upper_bound(state: CapacityState, class_ids: Iterable[str], table: VictimTable) -> dict[str, Int64]:
    """Upper bound of the same, whatever is evicted and whichever members of the group are placed."""
    rules = _required_rules(state, class_ids)
    if not rules:
        return {}
    checkpoint = state.checkpoint()
    table.evict(state, table.count)
    caps = {class_id: each.caps_upper_bound() for class_id, each in rules.items()}
    state.rollback(checkpoint)
    return caps


def _must_seat(group: SolveGroup, parts: Sequence[Part]) -> Counter[str]:
    """Members of each class that the minimums need even if all members of other classes are seated."""
    must_seat: Counter[str] = Counter()
    for index, gang in enumerate(group.gangs):
        wanted = sum(part.wanted for part in parts if part.gang == index)
        for part in parts:
            if part.gang == index:
                must_seat[part.class_id] += max(0, gang.minimum - (wanted - part.wanted))
    return must_seat
