"""Tries: the head of the queue goes to placement as one batch, and what becomes of each group by the answer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from muster.coordinator.core.answers import refused_or_seated
from muster.coordinator.core.culprit import name_culprit
from muster.coordinator.core.events import Now, Solve, Solved, SolveFailed, SolveOutcome, SolveResult
from muster.coordinator.core.hearsay import Hearsay
from muster.coordinator.core.kept_room import as_amounts, withheld_from
from muster.coordinator.core.knowledge import Knowledge
from muster.coordinator.core.making_room import MakingRoom
from muster.coordinator.core.model import Gang, Group, QueueKey, Shape
from muster.coordinator.core.questions import shape_of, to_place
from muster.coordinator.core.queue import Queue
from muster.coordinator.core.refusals import Refusal
from muster.gangs.placing import Explanation, GroupToPlace

MOST_GROUPS_PER_SOLVE = 100
"""So that the first permits of a long queue leave while the rest is still being placed."""
MOST_PODS_PER_SOLVE = 2000

_NOBODY: Final[frozenset[Group]] = frozenset()


@dataclass(slots=True, frozen=True)
class _Attempt:
    """A solve under way: the groups, and what was asked for each, by group id."""

    solve_id: int
    groups: list[Group]
    asked: dict[str, GroupToPlace]
    shapes: dict[str, Shape]
    """Of groups that speak for others of their shape."""
    began: float


class Solving:
    """At most one solve is under way: the next one knows what this one took."""

    def __init__(self, knowledge: Knowledge, queue: Queue, making_room: MakingRoom, solve_ids: Iterator[int]) -> None:
        self._knowledge, self._queue, self._making_room = knowledge, queue, making_room
        self._attempt: _Attempt | None = None
        self._solve_ids = solve_ids
        self._hearsay = Hearsay()

    @property
    def under_way(self) -> bool:
        """Placement has not answered yet."""
        return self._attempt is not None

    def begin(self, now: Now) -> Solve | None:
        """Ask placement for the head of the queue; None if nobody is to be tried now."""
        knowledge, time = self._knowledge, now.monotonic_seconds
        kind = partial(self._closed, now=time)
        groups = self._queue.take(time, MOST_GROUPS_PER_SOLVE, MOST_PODS_PER_SOLVE, kind)
        if not groups:
            return None
        solve_id = next(self._solve_ids)
        asked = {group.id: to_place(group) for group in groups}
        shapes = {group.id: group.infeasible for group in groups if group.infeasible is not None}
        self._attempt = _Attempt(solve_id, groups, asked, shapes, time)
        for group in groups:
            group.solving = solve_id
            for gang in group.gangs:
                gang.attempts += 1
                gang.cycle.begin_try(gang.waiting)
            self._knowledge.touch_group(group)
        withheld = withheld_from(groups[0], knowledge.kept.values(), knowledge.ledger, time)
        return Solve(
            solve_id,
            dict(knowledge.revision),
            knowledge.ledger.reservations(),
            tuple(asked.values()),
            as_amounts(withheld, knowledge.ledger),
        )

    def _closed(self, group: Group, now: float) -> frozenset[Group]:
        """Whose kept room is closed to the group; those that are asked for together have the same answer."""
        kept = self._knowledge.kept
        return frozenset(owner for owner, room in kept.items() if not room.open_to(group, now)) if kept else _NOBODY

    def answered(self, event: Solved, now: Now) -> list[tuple[Group, list[Gang]]]:
        """Placement answered. Returns the groups to permit, with their gangs that were given seats."""
        attempt = self._end(event.solve_id)
        if attempt is None:
            return []
        self._queue.retried(attempt.began, now.monotonic_seconds)
        results = {result.id: result for result in event.results}
        permits = []
        behind: QueueKey | None = None
        for group in attempt.groups:
            result = results.get(group.id)
            if behind is not None and group.gangs and group.key > behind and _says_where(result):
                # One that stands before it, and was not asked for, may have a place as well.
                self._queue.activate(group)
                self._knowledge.helped = True
                continue
            seated = self._answer(group, attempt.asked[group.id], result, now) if group.gangs else {}
            if (shape := attempt.shapes.get(group.id)) is not None:
                first = self._settle(shape, group, result, _fits(group, result, seated), now)
                behind = first if behind is None else behind
            if seated and not group.accumulates:
                permits.append((group, list(seated)))
            if result is not None and sum(run.count for run in result.runs) > sum(seated.values()):
                self._knowledge.helped = True  # what it did not take is there for those that came after it in the batch
        return permits

    def failed(self, event: SolveFailed, now: Now) -> None:
        """Placement did not answer."""
        attempt = self._end(event.solve_id)
        for group in attempt.groups if attempt is not None else ():
            if group.gangs:
                self._refuse(group, f"placement is not available: {event.message}", now)
            if attempt is not None and (shape := attempt.shapes.get(group.id)) is not None:
                self._queue.settle(shape, now.monotonic_seconds, fits=None)

    def _settle(
        self, shape: Shape, group: Group, result: SolveResult | None, fits: bool | None, now: Now
    ) -> QueueKey | None:
        """What became of the group counts for those that it spoke for. Returns the first of them that may fit, too."""
        first = self._queue.first_behind(shape) if fits else None
        others = self._queue.settle(shape, now.monotonic_seconds, fits=fits)
        if fits is False and result is not None and result.explanation is not None:
            about = result.explanation.gang
            index = next((index for index, gang in enumerate(group.to_seat) if gang.id == about), 0)
            for other in others:
                self._hearsay.put(other, result.explanation, index)
        return first

    def pass_on(self, now: Now) -> None:
        """Groups that others spoke for hear what was said."""
        for group, said, gang_index in self._hearsay.due(now.monotonic_seconds):
            if group in self._queue and group.infeasible is not None and gang_index < len(group.to_seat):
                self._explain(group, replace(said, gang=group.to_seat[gang_index].id))

    def next_time(self) -> float | None:
        """When something is to be passed on."""
        return self._hearsay.next_time()

    def _explain(self, group: Group, said: Explanation) -> None:
        if said == group.said:
            return
        knowledge = self._knowledge
        group.said = said
        group.explanation = name_culprit(said, knowledge.gangs, knowledge.ledger.classes)
        group.no_way = ""  # things have changed since it was asked who could make room
        knowledge.touch_group(group)

    def _end(self, solve_id: int) -> _Attempt | None:
        attempt = self._attempt
        if attempt is None or attempt.solve_id != solve_id:
            return None
        self._attempt = None
        for group in attempt.groups:
            group.solving = None
            self._knowledge.settled(group)
        return attempt

    def _answer(self, group: Group, asked: GroupToPlace, result: SolveResult | None, now: Now) -> dict[Gang, int]:
        """What becomes of a group; returns how many members of which gangs were given seats."""
        group.trouble = ""
        if result is None:
            self._refuse(group, "placement gave no answer for this gang", now)
            return {}
        placed = result.outcome is SolveOutcome.PLACED
        if not placed:
            self._not_placed(group, asked, result, now)
        if not placed and not (group.accumulates and result.outcome is SolveOutcome.PARTLY):
            return {}
        group.gathering = self._knowledge.why_not_yet(group)
        if not group.wants_seats:
            return {}
        withheld = withheld_from(group, self._knowledge.kept.values(), self._knowledge.ledger, now.monotonic_seconds)
        drain_longer = self._making_room.rooms_that_drain_longer(group, now)
        knowledge = self._knowledge
        seated = refused_or_seated(knowledge.ledger, knowledge.trees, group, asked, result.runs, withheld)
        if isinstance(seated, Refusal):
            self._refuse(group, f"placement's answer could not be used: {seated.message}", now)
            return {}
        if placed:
            group.explanation = group.said = group.infeasible = None
        self._making_room.seated(group, seated, drain_longer, whole=placed)
        return seated

    def _not_placed(self, group: Group, asked: GroupToPlace, result: SolveResult, now: Now) -> None:
        group.infeasible = shape_of(group, asked) if result.outcome is SolveOutcome.INFEASIBLE else None
        if result.explanation is not None:
            self._explain(group, result.explanation)
        if not group.accumulates:  # cycles are of gangs that are tried whole
            for gang in group.gangs:
                gang.cycle.fail(gang.facts.total if gang.facts is not None else 1)
        if result.outcome is SolveOutcome.NOT_FOUND:
            self._queue.back_off(group, now.monotonic_seconds)
        else:
            group.refusals = 0
            self._queue.park(group)
        self._making_room.no_place(group, now, proved=result.outcome is not SolveOutcome.NOT_FOUND)

    def _refuse(self, group: Group, trouble: str, now: Now) -> None:
        group.trouble = trouble
        self._queue.back_off(group, now.monotonic_seconds)


def _says_where(result: SolveResult | None) -> bool:
    return result is not None and bool(result.runs)


def _fits(group: Group, result: SolveResult | None, seated: Mapping[Gang, int]) -> bool | None:
    """Whether groups that want the same may have a place; None: it is not known."""
    if seated:
        return True
    if result is None or result.outcome is SolveOutcome.NOT_FOUND or group.trouble:
        return None
    return result.outcome is not SolveOutcome.INFEASIBLE  # it went, or wants something else by now
