"""Exact search for members that mind one another: they come one by one, each where the rules let it go at that time.

For few members and few kinds of nodes it finds the best that can be had, or proves what cannot.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.instance import Instance
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.instance import Part, Solution, minimums_reached
from muster.placement.state.capacity import CapacityState, ClassCapacity

MAX_MEMBERS: Final = 16
MAX_NODES: Final = 64
"""Beyond these a search has no hope within its budget."""
_NODES_PER_STEP: Final = 4
"""Nodes that are looked at for what one step of other searches costs."""

Accept = Callable[[Solution], bool]
"""Whether an attempt keeps what is asked of it as a whole."""

_State = tuple[object, ...]


def branch_and_bound(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    budget: Budget,
    accept: Accept,
    best: Solution | None,
) -> tuple[Solution | None, bool]:
    """The attempt with most members that is accepted and reaches all minimums, and whether none has more; `best` is one
    that is known.
    """
    if sum(part.wanted for part in parts) > MAX_MEMBERS:
        return best, False
    search = _BranchAndBound(state, group, parts, budget, accept, best)
    if len(search.rows) > MAX_NODES:
        return best, False
    try:
        search.go(0)
    except OutOfBudget:
        return search.best, False
    return search.best, True


class _BranchAndBound:
    """`rows` are the nodes on which some member fits if nobody minds it, by name."""

    def __init__(
        self,
        state: CapacityState,
        group: SolveGroup,
        parts: Sequence[Part],
        budget: Budget,
        accept: Accept,
        best: Solution | None,
    ) -> None:
        self.best = best
        self._group = group
        self._parts = parts
        self._budget = budget
        self._accept = accept
        self._members = sum(part.wanted for part in parts)
        class_capacities = [state.of(part.class_id) for part in parts]
        useful = np.logical_or.reduce([of_class.alone > 0 for of_class in class_capacities])
        rows = np.flatnonzero(useful)
        self.rows: Int64 = rows[np.argsort(state.nodes.rank[rows])]
        few = self.rows[:MAX_NODES]
        self._kinds = _kinds(state, group, class_capacities, few)
        self._miniature = Instance(state, parts, few)
        self._steps = 1 + len(few) // _NODES_PER_STEP
        self._any_order = any(_loosens(of_class) for of_class in class_capacities)
        self._placed: dict[int, list[int]] = {}  # index into rows -> members of each part
        self._counts = [0] * len(parts)
        self._seen: set[_State] = set()

    def go(self, first_part: int) -> None:
        """Try all ways to go on, parts from this one on unless a later one may help an earlier one."""
        self._budget.spend(self._steps)
        self._note()
        for index in range(0 if self._any_order else first_part, len(self._parts)):
            if self._counts[index] < self._parts[index].wanted and self._worth_it(index):
                for at in self._choices(index):
                    self._step(index, at)
                    if self._done():
                        return

    def _step(self, index: int, at: int) -> None:
        here = self._placed.setdefault(at, [0] * len(self._parts))
        here[index] += 1
        self._counts[index] += 1
        state = self._state(index)
        if state not in self._seen:
            self._seen.add(state)
            self._miniature.put(index, at, 1)
            self.go(index)
            self._miniature.put(index, at, -1)
        self._counts[index] -= 1
        here[index] -= 1
        if not any(here):
            del self._placed[at]

    def _choices(self, index: int) -> list[int]:
        """Nodes for the next member of a part, one of each kind that is used alike."""
        unlike: dict[_State, int] = {}
        for at in self._miniature.nodes:
            unlike.setdefault((self._kinds[at], tuple(self._placed.get(at, ()))), at)
        return [at for at in unlike.values() if self._miniature.may_go(index, at)]

    def _worth_it(self, first_part: int) -> bool:
        """More members may yet be placed than in the best attempt, and all minimums be reached."""
        if self._any_order:
            first_part = 0
        reach = list(self._counts)
        for index in range(first_part, len(self._parts)):
            missing = self._parts[index].wanted - self._counts[index]
            if missing:
                reach[index] += self._miniature.seats(index, missing, by_rules=not self._any_order)
        hoped = Solution(reach)
        if not minimums_reached(self._group, self._parts, hoped):
            return False
        return self.best is None or hoped.total > self.best.total

    def _note(self) -> None:
        solution = Solution(list(self._counts))
        if self.best is not None and solution.total <= self.best.total:
            return
        if not minimums_reached(self._group, self._parts, solution):
            return
        for index in range(len(self._parts)):
            used = [(at, here[index]) for at, here in sorted(self._placed.items()) if here[index]]
            if used:
                places, counts = np.array(used).T
                solution.seats.append((index, (self.rows[places], counts)))
        if self._accept(solution):
            self.best = solution

    def _done(self) -> bool:
        return self.best is not None and self.best.total == self._members

    def _state(self, index: int) -> _State:
        """What is placed, whichever of equal nodes it is on, and which parts may go on."""
        placed = sorted((self._kinds[at], tuple(here)) for at, here in self._placed.items())
        return (0 if self._any_order else index, *placed)


def _loosens(of_class: ClassCapacity) -> bool:
    """Where the class may go may become more as members are placed."""
    limits = of_class.inter_pod
    return limits is not None and bool(limits.spread or limits.together)


def _kinds(
    state: CapacityState, group: SolveGroup, class_capacities: Sequence[ClassCapacity], rows: Int64
) -> list[int]:
    """Numbers that are equal for nodes that can stand for one another, by index into `rows`."""
    facts: list[list[object]] = [
        state.free[:, rows].T.tolist(),
        *(each.alone[rows].tolist() for each in class_capacities),
    ]
    for gang in group.gangs:
        tree = state.trees.get(gang.tree) if gang.constraints else None
        if tree is not None:
            facts.extend(level.of[tree.place[rows]].tolist() for level in tree.levels)
    keys: set[str] = set()
    for limits in [each.inter_pod for each in class_capacities if each.inter_pod is not None]:
        facts.append(limits.caps()[rows].tolist())
        facts.extend(tally.on[rows].tolist() for tally in limits.pod_counts)
        facts.extend(rule.included()[rows].tolist() for rule in limits.spread)
        keys.update(limits.keys)
    for key in sorted(keys):
        domains = state.nodes.domains(key)
        alone = np.bincount(domains.codes, minlength=domains.size) == 1
        names = np.where(alone, -1, np.arange(domains.size))
        names[0] = 0
        facts.append(names[domains.codes[rows]].tolist())
    numbers: dict[str, int] = {}
    return [numbers.setdefault(repr(each), len(numbers)) for each in zip(*facts, strict=True)]
