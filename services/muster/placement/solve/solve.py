"""The main path: a batch of groups in order, each placed whole or not at all, on what the ones before it left free."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.solve import Assignment, PotentialVictim, SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.inter_pod.solver import (
    members_interact,
    place_by_preferences,
    place_interacting,
    place_interacting_partly,
    preferences_interact,
)
from muster.placement.preemption.preemption import place_by_preemption
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.feasibility import only_hard, place_partly
from muster.placement.solve.heterogeneous import place_heterogeneous
from muster.placement.solve.homogeneous import place_homogeneous, place_homogeneous_constrained
from muster.placement.solve.instance import (
    Answer,
    NotPlaced,
    Part,
    PartiallyPlaced,
    Placed,
    assignments_of,
    is_homogeneous,
    parts_of,
)
from muster.placement.solve.packing import choose, tightest_first
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nominated import NO_NOMINATIONS, NominatedAmounts

STEPS_PER_GROUP: Final = 10_000
STEPS_PER_BATCH: Final = 30_000
"""What exact searches may spend: about 5 microseconds a step. Gangs of 10 on 4 nodes that quick tries cannot place take
some hundred steps, of 16 on 6 nodes up to 3,000."""


def solve(
    state: CapacityState,
    groups: Sequence[SolveGroup],
    kept: NominatedAmounts = NO_NOMINATIONS,
    potential_victims: Sequence[PotentialVictim] = (),
) -> Iterator[Answer]:
    """An answer per group, in order. What is placed stays taken in `room`; the caller undoes it when done.

    What is `kept` for others has been taken already. If anything is `potential_victims` there may be one group only.
    Between
    two answers the caller may pause, as long as nobody else touches the room.
    """
    batch = _Batch(state, kept, potential_victims)
    if potential_victims:
        yield from map(batch.place, groups)
        return
    for single, run in groupby(groups, key=batch.is_single):
        some = list(run)
        yield from batch.place_singles(some) if single else map(batch.place, some)


def _is_single(group: SolveGroup) -> bool:
    """The group is one pod."""
    [first, *others] = group.gangs
    one_pod = len(first.roles) == 1 and first.roles[0].wanted == 1
    return one_pod and not others and not first.constraints and not first.avoided


def _class_of(single: SolveGroup) -> str:
    return single.gangs[0].roles[0].class_id


class _Batch:
    """One batch. Groups that ask what one asked that failed fail likewise, as long as nothing was placed since."""

    def __init__(
        self, state: CapacityState, kept: NominatedAmounts, potential_victims: Sequence[PotentialVictim]
    ) -> None:
        self._state = state
        self._nominated = kept
        self._potential_victims = potential_victims
        self._explainer = Explainer(state, kept)
        self._steps_left = STEPS_PER_BATCH
        self._failed: dict[tuple[object, ...], tuple[NotPlaced, int]] = {}

    def is_single(self, group: SolveGroup) -> bool:
        """The group is one pod, and does not mind others like it."""
        if not _is_single(group):
            return False
        limits = self._state.of(_class_of(group)).inter_pod
        return limits is None or not (limits.members_interact() or limits.preferences_interact())

    def place(self, group: SolveGroup) -> Answer:
        failed = self._failed_before(group)
        if failed is not None and not group.partial:
            return failed
        parts = parts_of(group)
        budget = Budget(min(STEPS_PER_GROUP, self._steps_left))
        granted = budget.left
        answer: Answer = failed or self._place_avoiding(group, parts) or self._place_whole(group, parts, budget)
        if isinstance(answer, NotPlaced):
            self._remember(group, answer)
            if self._potential_victims:
                answer = self._place_by_preemption(group, parts, answer)
            if isinstance(answer, NotPlaced) and group.partial:
                answer = self._place_partly(group, parts, answer, budget)
        self._steps_left -= granted - max(0, budget.left)
        if not isinstance(answer, NotPlaced):
            self._failed.clear()
        return answer

    def place_singles(self, groups: list[SolveGroup]) -> Iterator[Answer]:
        """Single pods. Where all have room their order does not matter, and each class is seated in one go."""
        nodes = self._seat_all(groups)
        if nodes is not None:
            yield from map(_placed, groups, nodes)
            return
        for class_id, run in groupby(groups, key=_class_of):
            equal = list(run)
            nodes = self._seat(class_id, len(equal))
            yield from map(_placed, equal, nodes)
            yield from map(self.place, equal[len(nodes) :])

    def _seat_all(self, groups: list[SolveGroup]) -> list[str] | None:
        """A node for each of the pods, hardest classes first; None, and nothing taken, if not all have room."""
        counts = Counter(map(_class_of, groups))
        seats = {class_id: int(self._state.of(class_id).fits.sum()) for class_id in counts}
        checkpoint = self._state.checkpoint()
        nodes: dict[str, Iterator[str]] = {}
        for class_id in sorted(counts, key=lambda class_id: (seats[class_id], class_id)):
            seated = self._seat(class_id, counts[class_id])
            if len(seated) < counts[class_id]:
                self._state.rollback(checkpoint)
                return None
            nodes[class_id] = iter(seated)
        return [next(nodes[_class_of(group)]) for group in groups]

    def _seat(self, class_id: str, wanted: int) -> list[str]:
        """Nodes for up to so many equal pods, each where it would have gone if they had come one by one."""
        state = self._state
        of_class = state.of(class_id)
        rows, counts = choose(state, of_class, wanted, tightest_first)
        if len(rows):
            state.reserve(of_class, rows, counts)
            self._failed.clear()
        return [state.nodes.name(row) for row in np.repeat(rows, counts).tolist()]

    def _place_whole(self, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Placed | NotPlaced:
        """What is soft keeps nobody from a place: if none is found, only what is hard counts."""
        answer = self._place_as_asked(group, parts, budget)
        simpler = only_hard(group)
        if isinstance(answer, Placed) or answer.proved or simpler == group:
            return answer
        more = Budget(min(STEPS_PER_GROUP, self._steps_left))
        granted = more.left
        found = self._place_as_asked(simpler, parts, more)
        self._steps_left -= granted - max(0, more.left)
        return found if isinstance(found, Placed) else replace(answer, proved=found.proved)

    def _place_as_asked(self, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Placed | NotPlaced:
        if members_interact(self._state, parts):
            return place_interacting(self._state, group, parts, self._explainer, budget)
        if not any(gang.constraints for gang in group.gangs) and preferences_interact(self._state, parts):
            placed = place_by_preferences(self._state, group, parts)
            if placed is not None:
                return placed
        if len(group.gangs) == 1 and group.gangs[0].constraints and is_homogeneous(parts):
            return place_homogeneous_constrained(self._state, group, parts, self._explainer, budget)
        if is_homogeneous(parts) and not any(gang.constraints for gang in group.gangs):
            return place_homogeneous(self._state, group, parts, self._explainer)
        return place_heterogeneous(self._state, group, parts, self._explainer, budget)

    def _place_avoiding(self, group: SolveGroup, parts: Sequence[Part]) -> Placed | None:
        """A place without nodes that are rather to be avoided, if there is one."""
        names = {name for gang in group.gangs for name in gang.avoided}
        rows = sorted(row for name in names if (row := self._state.nodes.row(name)) is not None)
        if not rows:
            return None
        at = np.array(rows, np.int64)
        free = np.maximum(self._state.free[:, at], 0)
        self._state.change_free(at, -free)
        answer = self._place_whole(group, parts, Budget(STEPS_PER_GROUP))
        self._state.change_free(at, free)
        return answer if isinstance(answer, Placed) else None

    def _place_by_preemption(self, group: SolveGroup, parts: Sequence[Part], present: NotPlaced) -> Placed | NotPlaced:
        def place() -> Placed | NotPlaced:
            return self._place_whole(group, parts, Budget(STEPS_PER_GROUP))

        return place_by_preemption(self._state, group, parts, self._potential_victims, self._nominated, place, present)

    def _place_partly(
        self, group: SolveGroup, parts: Sequence[Part], whole: NotPlaced, budget: Budget
    ) -> PartiallyPlaced | NotPlaced:
        if members_interact(self._state, parts):
            solution = place_interacting_partly(self._state, group, parts)
        else:
            solution = place_partly(self._state, group, parts, budget)
        if solution is None:
            return whole
        return PartiallyPlaced(assignments_of(self._state, group, parts, solution), whole.explanation)

    def _failed_before(self, group: SolveGroup) -> NotPlaced | None:
        known = self._failed.get(_shape(group))
        if known is None:
            return None
        answer, gang_index = known
        return replace(answer, explanation=replace(answer.explanation, gang=group.gangs[gang_index].id))

    def _remember(self, group: SolveGroup, answer: NotPlaced) -> None:
        gang_ids = [gang.id for gang in group.gangs]
        self._failed[_shape(group)] = answer, gang_ids.index(answer.explanation.gang)


def _shape(group: SolveGroup) -> tuple[object, ...]:
    return tuple((gang.minimum, gang.roles, gang.tree, gang.constraints, gang.placed) for gang in group.gangs)


def _placed(single: SolveGroup, node: str) -> Placed:
    return Placed((Assignment(single.gangs[0].id, 0, node, 1),))
