"""Tries: the head of the queue goes to placement as one batch, and what becomes of each group by the answer."""

from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Now, Solved, SolveFailed
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group, QueueKey
from muster.coordinator.core.gang.state import EquivalenceKey
from muster.coordinator.core.preemption.nomination import as_amounts, nominated_for_others
from muster.coordinator.core.preemption.preemption import Preemption
from muster.coordinator.core.queue.equivalence import Hearsay
from muster.coordinator.core.queue.queue import Beside, Queue
from muster.coordinator.core.report.reasons import name_unplaced_pod
from muster.coordinator.core.solve.concurrent import (
    MAX_GROUPS_AT_RISK,
    Attempt,
    ConcurrentSolves,
    Risks,
    Together,
    in_turn,
)
from muster.coordinator.core.solve.rejections import Rejection, RejectionReason, Rejections
from muster.coordinator.core.solve.request import equivalence_key, to_place
from muster.coordinator.core.solve.validation import validate_and_reserve
from muster.gangs.solve import Explanation, SolveGroup, SolveOutcome, SolveResult

MAX_GROUPS_PER_SOLVE = 100
"""So that the first permits of a long queue leave while the rest is still being placed."""
MAX_PODS_PER_SOLVE = 2000

_NOBODY: Final[frozenset[Group]] = frozenset()


class Solves:
    """Solves under way: one per replica of placement at most. What is given away in one is not known in the others."""

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        preemption: Preemption,
        rejections: Rejections,
        solve_ids: Iterator[int],
    ) -> None:
        self._cache, self._queue, self._preemption = cache, queue, preemption
        self._rejections = rejections
        self._concurrent = ConcurrentSolves(cache.ledger)
        self._risks = Risks()
        self._nothing_at: tuple[int, int, int, bool] | None = None
        """How things stood when there was nobody to be asked for beside others."""
        self._solve_ids = solve_ids
        self._hearsay = Hearsay(queue.behind)

    @property
    def under_way(self) -> int:
        """Solves that placement has not answered yet."""
        return len(self._concurrent)

    @property
    def waits(self) -> bool:
        """An answer waits for another: until that has come nothing new is asked."""
        return self._concurrent.waiting

    def begin(self, now: Now, replicas: int) -> Solve | None:
        """Ask placement for the head of the queue; None if nobody is to be tried now."""
        time = now.monotonic_seconds
        self._concurrent.forget_all_but(self._queue)
        kind = partial(self._kind, now=time)
        if replicas == 1:
            groups = self._queue.take(time, MAX_GROUPS_PER_SOLVE, MAX_PODS_PER_SOLVE, kind)
            return self._ask(groups, time) if groups else None
        self._queue.wake(time, in_time=self.under_way > 0)
        standing = (self._queue.activations, self._concurrent.begun, self.under_way, self._risks.worth_it(time))
        if standing == self._nothing_at:
            return None
        speaking = self._concurrent.speaking()
        under_way = self._concurrent.classes
        for at_risk in (False, True) if under_way and self._risks.worth_it(time) else (False,):
            together = Together(self._cache.apart, under_way, at_risk=at_risk)
            beside = Beside(speaking, together.fits_in) if self.under_way else Beside(fits_in=together.fits_in)
            most = MAX_GROUPS_AT_RISK if at_risk else MAX_GROUPS_PER_SOLVE
            groups = self._queue.take(time, most, MAX_PODS_PER_SOLVE, kind, beside)
            if groups:
                return self._ask(groups, time, at_risk=at_risk)
        self._nothing_at = standing if self.under_way else None
        return None

    def _ask(self, groups: list[Group], now: float, *, at_risk: bool = False) -> Solve:
        cache = self._cache
        solve_id = next(self._solve_ids)
        asked = {group.id: to_place(group) for group in groups}
        shapes = {
            group.id: group.queueing.equivalence_key for group in groups if group.queueing.equivalence_key is not None
        }
        self._concurrent.begin(Attempt(solve_id, groups, asked, shapes, now, self._queue.helps, at_risk))
        for group in groups:
            group.solve.begin(solve_id)
            for gang in group.gangs:
                gang.attempts.begin(gang.pending)
            cache.touch_group(group)
        nominated = nominated_for_others(groups[0], cache.kept.values(), cache.ledger, now)
        return Solve(
            solve_id,
            dict(cache.revision),
            cache.ledger.reservations(),
            tuple(asked.values()),
            as_amounts(nominated, cache.ledger),
        )

    def _kind(self, group: Group, now: float) -> Hashable:
        """Groups of one kind may be asked for together: the same kept room is closed to them, and none of them made
        placement refuse the whole question.
        """
        if group.solve.alone:
            return group.id
        kept = self._cache.kept
        return frozenset(owner for owner, room in kept.items() if not room.open_to(group, now)) if kept else _NOBODY

    def ended(self, event: Solved | SolveFailed, now: Now) -> list[tuple[Group, list[Gang]]]:
        """Placement answered, or did not. Returns the groups to permit, with their gangs that were given seats."""
        ready = self._concurrent.answered(event, now.monotonic_seconds)
        for attempt in ready:
            self._queue.retried(attempt.began, now.monotonic_seconds)
            for group in attempt.groups:
                group.solve.end()
                self._cache.settled(group)
        permits = []
        for attempt, group in in_turn(ready):
            self._concurrent.settled(group)
            if isinstance(attempt.answer, SolveFailed):
                self._failed(attempt, group, attempt.answer, now)
            elif seated := self._take(attempt, group, now):
                self._concurrent.took(ready, attempt, group)
                if not group.accumulates:
                    permits.append((group, list(seated)))
        for attempt in ready:
            if attempt.at_risk:
                self._risks.came_out(attempt.overtaken, now.monotonic_seconds)
            if attempt.helps != self._queue.helps:
                self._queue.missed_help()
        return permits

    def _take(self, attempt: Attempt, group: Group, now: Now) -> dict[Gang, int]:
        """Take what the answer says of a group; returns how many members of which gangs got seats."""
        result = attempt.results.get(group.id)
        if group.gangs and _says_where(result) and self._others_first(attempt, group):
            self._queue.activate(group)
            self._cache.helped = True
            if (shape := attempt.shapes.get(group.id)) is not None:
                self._queue.settle(shape, group, now.monotonic_seconds, fits=True)
            return {}
        seated = self._answer(attempt, group, result, now) if group.gangs else {}
        if (shape := attempt.shapes.get(group.id)) is not None:
            first = self._settle(shape, group, result, _fits(group, result, seated), now)
            attempt.behind = first if attempt.behind is None else attempt.behind
        if result is not None and sum(assignment.count for assignment in result.assignments) > sum(seated.values()):
            self._cache.helped = True  # what it did not take is there for those that came after it in the batch
        return seated

    def _others_first(self, attempt: Attempt, group: Group) -> bool:
        """One that stands before it, and was not asked for or lost its room, may have a place as well."""
        behind = attempt.behind is not None and group.key > attempt.behind
        return behind or self._concurrent.belongs_to_others(attempt, group)

    def _failed(self, attempt: Attempt, group: Group, answer: SolveFailed, now: Now) -> None:
        """Placement did not answer. When the question was at fault, the others of it are asked for without the culprit:
        each alone.
        """
        if group.gangs and answer.refused and len(attempt.groups) > 1:
            group.solve.isolate()
            self._queue.activate(group)
        elif group.gangs:
            if answer.unreadable:
                self._rejections.add(group, Rejection(RejectionReason.UNREADABLE, answer.message))
            what = "placement refused the question" if answer.refused else "placement is not available"
            self._refuse(group, f"{what}: {answer.message}", now, away=answer.away)
        if (shape := attempt.shapes.get(group.id)) is not None:
            self._queue.settle(shape, group, now.monotonic_seconds, fits=None)

    def _settle(
        self, shape: EquivalenceKey, group: Group, result: SolveResult | None, fits: bool | None, now: Now
    ) -> QueueKey | None:
        """What became of the group counts for those that it spoke for. Returns the first of them that may fit, too."""
        first = self._queue.first_behind(shape) if fits else None
        self._queue.settle(shape, group, now.monotonic_seconds, fits=fits)
        if fits is False and result is not None and result.explanation is not None:
            about = result.explanation.gang
            index = next((index for index, gang in enumerate(group.gangs_to_place) if gang.id == about), 0)
            self._hearsay.put(shape, result.explanation, index)
        return first

    def pass_on(self, now: Now) -> None:
        """Groups that others spoke for hear what was said."""
        for group, said, gang_index in self._hearsay.due(now.monotonic_seconds):
            if group in self._queue and gang_index < len(group.gangs_to_place):
                self._explain(group, replace(said, gang=group.gangs_to_place[gang_index].id))

    def next_time(self) -> float | None:
        """When something is to be passed on."""
        return self._hearsay.next_time()

    def _explain(self, group: Group, said: Explanation) -> None:
        if said == group.solve.solver_explanation:
            return
        cache = self._cache
        group.solve.solver_explanation = said
        group.solve.explanation = name_unplaced_pod(said, cache.gangs, cache.ledger.classes)
        group.preemption.verdict = ""  # things have changed since it was asked who could make room
        cache.touch_group(group)

    def _answer(self, attempt: Attempt, group: Group, result: SolveResult | None, now: Now) -> dict[Gang, int]:
        """What becomes of a group; returns how many members of which gangs were given seats."""
        asked = attempt.asked[group.id]
        group.solve.answered()
        self._queue.clear_failure(group)
        if result is None:
            message = "placement gave no answer for this gang"
            self._rejections.add(group, Rejection(RejectionReason.SILENCE, message))
            self._refuse(group, message, now)
            return {}
        placed = result.outcome is SolveOutcome.PLACED
        if not placed:
            self._not_placed(group, asked, result, now)
        if not placed and not (group.accumulates and result.outcome is SolveOutcome.PARTIAL):
            return {}
        group.not_ready = self._cache.why_not_yet(group)
        if not group.wants_seats:
            return {}
        nominated = nominated_for_others(group, self._cache.kept.values(), self._cache.ledger, now.monotonic_seconds)
        drain_longer = self._preemption.rooms_that_drain_longer(group, now)
        cache = self._cache
        seated = validate_and_reserve(cache.ledger, cache.trees, group, asked, result.assignments, nominated)
        if isinstance(seated, Rejection) and seated.reason is RejectionReason.NO_ROOM and seated.node in attempt.taken:
            self._rejections.add(group, seated._replace(reason=RejectionReason.OVERTAKEN))
            attempt.overtaken = True
            self._concurrent.overtaken(attempt, group)
            self._queue.activate(group)
            return {}
        if isinstance(seated, Rejection) and group.edited:
            self._queue.activate(group)  # it was no answer to what it wants by now
            return {}
        if isinstance(seated, Rejection):
            self._rejections.add(group, seated)
            self._refuse(group, f"placement's answer could not be used: {seated.message}", now)
            return {}
        if placed:
            group.solve.placed()
            self._queue.classify(group, None)
        self._preemption.seated(group, seated, drain_longer, whole=placed)
        return seated

    def _not_placed(self, group: Group, asked: SolveGroup, result: SolveResult, now: Now) -> None:
        proved = result.outcome is SolveOutcome.INFEASIBLE and group not in self._cache.kept
        self._queue.classify(group, equivalence_key(group, asked) if proved else None)
        if result.explanation is not None:
            self._explain(group, result.explanation)
        if not group.accumulates:  # cycles are of gangs that are tried whole
            for gang in group.gangs:
                gang.attempts.fail(gang.facts.total if gang.facts is not None else 1)
        if result.outcome is SolveOutcome.NOT_FOUND:
            self._queue.back_off(group, now.monotonic_seconds)
        else:
            self._queue.reset_backoff(group)
            self._queue.park(group)
        self._preemption.no_place(group, now, proved=result.outcome is not SolveOutcome.NOT_FOUND)

    def _refuse(self, group: Group, trouble: str, now: Now, *, away: bool = False) -> None:
        self._queue.back_off(group, now.monotonic_seconds, trouble, away=away)


def _says_where(result: SolveResult | None) -> bool:
    return result is not None and bool(result.assignments)


def _fits(group: Group, result: SolveResult | None, seated: Mapping[Gang, int]) -> bool | None:
    """Whether groups that want the same may have a place; None: it is not known."""
    if seated:
        return True
    if result is None or result.outcome is SolveOutcome.NOT_FOUND or group.queueing.failure:
        return None
    return result.outcome is not SolveOutcome.INFEASIBLE  # it went, or wants something else by now
