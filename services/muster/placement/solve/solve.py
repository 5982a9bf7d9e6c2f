"""Main path of placement: answers a batch of groups in order, each on what the earlier ones left free.

Per group: reuse of an earlier proof, avoided nodes left out, the algorithm of the dispatch table, preemption, and a
partial placement. Runs of single pods are placed class by class at once.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.solve import Assignment, PotentialVictim, SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.preemption.preemption import place_by_preemption
from muster.placement.solve.algorithms import STEPS_PER_GROUP, place_by_table, place_partial
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.instance import (
    Answer,
    NotPlaced,
    Part,
    PartiallyPlaced,
    Placed,
    assignments_of,
    cut_off,
    parts_of,
)
from muster.placement.solve.level_rules import only_hard
from muster.placement.solve.packing import choose, tightest_first
from muster.placement.state.capacity import NO_NOMINATIONS, CapacityState, NominatedAmounts
from muster.placement.state.time_limit import LimitExceeded

STEPS_PER_BATCH: Final = 30_000
"""Budget of exact searches for all groups of a batch."""


def solve(
    state: CapacityState,
    groups: Sequence[SolveGroup],
    nominated: NominatedAmounts = NO_NOMINATIONS,
    potential_victims: Sequence[PotentialVictim] = (),
) -> Iterator[Answer]:
    """One answer per group, in order. Placed groups keep their reservations in `state`; the caller rolls them back.

    `nominated` capacity is withheld already. With `potential_victims` there is one group only. Groups that exceed their
    share of `state.limit` are not placed. Raises Abandoned.
    """
    batch = _Batch(state, nominated, potential_victims, len(groups))
    if potential_victims:
        yield from map(batch.place, groups)
        return
    for single, run in groupby(groups, key=batch.is_single):
        some = list(run)
        yield from batch.place_singles(some) if single else map(batch.place, some)


def _is_single_pod(group: SolveGroup) -> bool:
    """The group is one pod without constraints."""
    [first, *others] = group.gangs
    one_pod = len(first.roles) == 1 and first.roles[0].wanted == 1
    return one_pod and not others and not first.constraints and not first.avoided and not group.composites


def _class_of(single: SolveGroup) -> str:
    return single.gangs[0].roles[0].class_id


class _Batch:
    """State of one batch. A group with the same request as one that failed fails likewise, unless anything was placed
    since; at most as many failures are known as the batch has groups.
    """

    def __init__(
        self,
        state: CapacityState,
        nominated: NominatedAmounts,
        potential_victims: Sequence[PotentialVictim],
        groups: int,
    ) -> None:
        self._state = state
        self._nominated = nominated
        self._potential_victims = potential_victims
        self._explainer = Explainer(state, nominated)
        self._steps_left = STEPS_PER_BATCH
        self._groups_left = groups
        self._failed: dict[tuple[object, ...], tuple[NotPlaced, int]] = {}

    def is_single(self, group: SolveGroup) -> bool:
        """The group is one pod, and pods of its class do not interact."""
        if not _is_single_pod(group):
            return False
        rules = self._state.of(_class_of(group)).inter_pod
        return rules is None or not (rules.members_interact() or rules.preferences_interact())

    def place(self, group: SolveGroup) -> Answer:
        """The answer for one group; if it exceeds a limit, it is not placed and nothing stays reserved for it."""
        checkpoint = self._state.checkpoint()
        self._state.limit.begin_group(max(1, self._groups_left))
        self._groups_left -= 1
        try:
            self._state.limit.check()
            return self._place(group)
        except LimitExceeded as limit:
            self._state.rollback(checkpoint)
            return cut_off(group, limit)

    def _place(self, group: SolveGroup) -> Answer:
        failed = self._earlier_failure(group)
        if failed is not None and not group.partial:
            return failed
        parts = parts_of(group)
        budget = self._budget(min(STEPS_PER_GROUP, self._steps_left))
        granted = budget.left
        answer: Answer = failed or self._place_avoiding(group, parts) or self._place_whole(group, parts, budget)
        if isinstance(answer, NotPlaced):
            self._remember_failure(group, answer)
            if self._potential_victims:
                answer = self._place_by_preemption(group, parts, answer)
            if isinstance(answer, NotPlaced) and group.partial:
                answer = self._place_partial(group, parts, answer, budget)
        self._steps_left -= granted - max(0, budget.left)
        if not isinstance(answer, NotPlaced):
            self._failed.clear()
        return answer

    def place_singles(self, groups: list[SolveGroup]) -> Iterator[Answer]:
        """Single pods. If all fit, their order does not matter and each class is placed at once."""
        nodes = self._in_time(partial(self._place_all_singles, groups))
        if nodes is not None:
            self._groups_left -= len(groups)
            yield from map(_placed, groups, nodes)
            return
        for class_id, run in groupby(groups, key=_class_of):
            same_class = list(run)
            nodes = self._in_time(partial(self._place_pods, class_id, len(same_class))) or []
            self._groups_left -= len(nodes)
            yield from map(_placed, same_class, nodes)
            yield from map(self.place, same_class[len(nodes) :])

    def _in_time(self, place: Callable[[], list[str] | None]) -> list[str] | None:
        """Nodes of several pods at once; None, without reservations, if that takes longer than one group may."""
        checkpoint = self._state.checkpoint()
        self._state.limit.begin_group(max(1, self._groups_left))
        try:
            return place()
        except LimitExceeded:
            self._state.rollback(checkpoint)
            return None

    def _place_all_singles(self, groups: list[SolveGroup]) -> list[str] | None:
        """A node for each pod, classes that fit least first; None, without reservations, if not all fit."""
        counts = Counter(map(_class_of, groups))
        seats = {class_id: int(self._state.of(class_id).fits.sum()) for class_id in counts}
        checkpoint = self._state.checkpoint()
        nodes: dict[str, Iterator[str]] = {}
        for class_id in sorted(counts, key=lambda class_id: (seats[class_id], class_id)):
            placed = self._place_pods(class_id, counts[class_id])
            if len(placed) < counts[class_id]:
                self._state.rollback(checkpoint)
                return None
            nodes[class_id] = iter(placed)
        return [next(nodes[_class_of(group)]) for group in groups]

    def _place_pods(self, class_id: str, wanted: int) -> list[str]:
        """Nodes for up to `wanted` pods of a class, the same as if they were placed one by one."""
        state = self._state
        of_class = state.of(class_id)
        rows, counts = choose(state, of_class, wanted, tightest_first)
        if len(rows):
            state.reserve(of_class, rows, counts)
            self._failed.clear()
        return [state.nodes.name(row) for row in np.repeat(rows, counts).tolist()]

    def _place_whole(self, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Placed | NotPlaced:
        """Place with all constraints; if none is found, with the hard ones alone."""
        answer = place_by_table(self._state, group, parts, self._explainer, budget)
        if isinstance(answer, Placed) or answer.proved:
            return answer
        relaxed = only_hard(group)
        if relaxed == group:
            return answer
        more = self._budget(min(STEPS_PER_GROUP, self._steps_left))
        granted = more.left
        found = place_by_table(self._state, relaxed, parts, self._explainer, more)
        self._steps_left -= granted - max(0, more.left)
        return found if isinstance(found, Placed) else replace(answer, proved=found.proved)

    def _place_avoiding(self, group: SolveGroup, parts: Sequence[Part]) -> Placed | None:
        """A placement without the group's avoided nodes, if there is one."""
        names = {name for gang in group.gangs for name in gang.avoided}
        if not names:
            return None
        rows = sorted(row for name in names if (row := self._state.nodes.row(name)) is not None)
        if not rows:
            return None
        at = np.array(rows, np.int64)
        free = np.maximum(self._state.free[:, at], 0)
        self._state.change_free(at, -free)
        answer = self._place_whole(group, parts, self._budget(STEPS_PER_GROUP))
        self._state.change_free(at, free)
        return answer if isinstance(answer, Placed) else None

    def _place_by_preemption(self, group: SolveGroup, parts: Sequence[Part], present: NotPlaced) -> Placed | NotPlaced:
        def place() -> Placed | NotPlaced:
            return self._place_whole(group, parts, self._budget(STEPS_PER_GROUP))

        return place_by_preemption(self._state, group, parts, self._potential_victims, self._nominated, place, present)

    def _place_partial(
        self, group: SolveGroup, parts: Sequence[Part], whole: NotPlaced, budget: Budget
    ) -> PartiallyPlaced | NotPlaced:
        solution = place_partial(self._state, group, parts, budget)
        if solution is None:
            return whole
        return PartiallyPlaced(assignments_of(self._state, group, parts, solution), whole.explanation)

    def _budget(self, steps: int) -> Budget:
        return Budget(steps, self._state.limit)

    def _earlier_failure(self, group: SolveGroup) -> NotPlaced | None:
        known = self._failed.get(_request_of(group)) if self._failed else None
        if known is None:
            return None
        answer, gang_index = known
        return replace(answer, explanation=replace(answer.explanation, gang=group.gangs[gang_index].id))

    def _remember_failure(self, group: SolveGroup, answer: NotPlaced) -> None:
        gang_ids = [gang.id for gang in group.gangs]
        self._failed[_request_of(group)] = answer, gang_ids.index(answer.explanation.gang)


def _request_of(group: SolveGroup) -> tuple[object, ...]:
    gangs = (
        (gang.minimum, gang.roles, gang.tree, gang.constraints, gang.placed, gang.composite) for gang in group.gangs
    )
    return (*group.composites, *gangs)


def _placed(single: SolveGroup, node: str) -> Placed:
    return Placed((Assignment(single.gangs[0].id, 0, node, 1),))
