"""Room for groups that have no place: from gangs that wait behind them, from gangs of lower priority, or by and by.

A group that found no place is asked about once more, with what could make room for it (`victims`, `draining`). What the
answer takes from others is kept for the group (`kept_room`) until it starts, or stops wanting it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from muster.coordinator.core.backfill.expected_completions import ExpectedCompletions, could_ever_fit
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Effect, Solve
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.hold.hold_and_wait import HoldAndWait
from muster.coordinator.core.permits.decisions import Plan
from muster.coordinator.core.preemption.nomination import Nomination, as_amounts, demand, nominated_for_others, without
from muster.coordinator.core.preemption.plan import Plans
from muster.coordinator.core.preemption.plan_events import capacity_reserved
from muster.coordinator.core.preemption.potential_victims import PotentialVictims, RunningGangs
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.rules import Rules
from muster.coordinator.core.solve.concurrent import charge
from muster.coordinator.core.solve.rejections import Rejection, RejectionReason, Rejections
from muster.coordinator.core.solve.request import may_preempt, to_place
from muster.coordinator.core.solve.validation import violated_constraint
from muster.gangs.solve import Assignment, SolveGroup, SolveOutcome, SolveResult

SHARE = 0.2
"""At most this share of time goes into asking who could make room."""
MAX_AT_ONCE = 10
"""Groups that are looked at in one step."""
AGAIN_SECONDS = 1.0
"""After an answer that did not come, or could not be used."""


@dataclass(slots=True, frozen=True)
class _Attempt:
    solve_id: int
    group: Group
    asked: SolveGroup
    demand: Counter[str]
    divided_by: tuple[object, ...]
    offer: PotentialVictims | ExpectedCompletions
    began: float


class Preemption:
    """Groups that have no place, and what is done for them."""

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        waiting: HoldAndWait,
        plans: Plans,
        rules: Rules,
        rejections: Rejections,
        solve_ids: Iterator[int],
    ) -> None:
        self._cache, self._queue, self._waiting, self._plans = cache, queue, waiting, plans
        self._rules, self._rejections, self._solve_ids = rules, rejections, solve_ids
        self._asking: dict[Group, float] = {}  # group -> when to ask for it
        self._unplaced: dict[Group, float] = {}  # group -> since when it has no place, the earliest first
        self._attempt: _Attempt | None = None
        self._not_before = 0.0
        self.running = RunningGangs()
        self._may_be_evicted: int | None = None
        self._cautious: set[Group] = set()  # an answer for them took more than budgets allow
        self._passed: dict[Group, float] = {}  # those of them for whom, or for somebody before whom, room drains
        self._drain_again = 0.0

    @property
    def under_way(self) -> bool:
        """Placement has not answered yet."""
        return self._attempt is not None

    # -- what solves tell

    def no_place(self, group: Group, now: Now, *, proved: bool) -> None:
        """A solve found none for the group, or only for a part of it."""
        kept = self._cache.kept.get(group)
        if kept is not None and proved and (kept.ready or (kept.drains and kept.all_gone(self._cache.ledger))):
            self._plans.drop(kept)  # what was to be room for it is none
        elif kept is None:
            delay = self._rules.deadlock_after_seconds if group.accumulates else 0.0
            self._asking.setdefault(group, max(now.monotonic_seconds + delay, group.preemption.not_before))
        self._unplaced.setdefault(group, now.monotonic_seconds)

    def rooms_that_drain_longer(self, group: Group, now: Now) -> list[Nomination]:
        """Room that drains for others, for longer than the group runs if it starts now."""
        kept = self._cache.kept.values()
        return [room for room in kept if room.drains and room.outlasts(group, now.monotonic_seconds)]

    def seated(self, group: Group, gangs: Iterable[Gang], drain_longer: Iterable[Nomination], *, whole: bool) -> None:
        """Gangs of the group got seats; `whole`: all that was asked for."""
        for room in drain_longer:
            room.going.update(uid for gang in gangs for uid in gang.seats)
        for room in self._cache.kept.values():
            if room.drains and room.group is not group:
                room.overtaken |= not room.stands(self._cache.ledger)
        if whole:
            for waiting in (self._asking, self._unplaced, self._passed):
                waiting.pop(group, None)
            group.preemption.conclude("")
            if (kept := self._cache.kept.get(group)) is not None:
                kept.used = not group.accumulates

    @staticmethod
    def forget_verdict(group: Group) -> None:
        """The group was explained anew: what was found out before may not hold any more."""
        group.preemption.conclude("")

    def may_be_evicted(self, gang: Gang) -> None:
        """The gang could make room from now on: groups that matter more may be asked for again."""
        priority = gang.priority
        self._may_be_evicted = priority if self._may_be_evicted is None else min(priority, self._may_be_evicted)

    # -- asking

    def next_time(self) -> float | None:
        """When to ask for somebody."""
        times = [max(self._not_before, min(self._asking.values()))] if self._asking else []
        if self._unplaced:
            due = next(iter(self._unplaced.values())) + self._rules.starvation_after_seconds
            times.append(max(due, self._drain_again, self._not_before))
        if self._passed and self._draining() is None:
            times.append(max(self._drain_again, self._not_before))
        return min(times, default=None)

    def wants_to_ask(self, now: Now) -> bool:
        """There is somebody for whom `begin` is likely to ask."""
        time = now.monotonic_seconds
        if self._may_be_evicted is not None:
            self._ask_again(self._may_be_evicted, now)
        if time < self._not_before:
            return False
        if any(at <= time and group in self._queue and self._may_gain(group) for group, at in self._asking.items()):
            return True
        since = next(iter(self._unplaced.values()), math.inf)
        starved = since + self._rules.starvation_after_seconds <= time
        return time >= self._drain_again and (starved or (bool(self._passed) and self._draining() is None))

    def begin(self, now: Now) -> Solve | None:
        """Ask placement who could make room for a group; None if there is nobody to ask for."""
        if self._may_be_evicted is not None:
            self._ask_again(self._may_be_evicted, now)
        if now.monotonic_seconds < self._not_before:
            return None
        for group in self._due(now.monotonic_seconds):
            offer = self._candidates(group, now)
            if offer.potential_victims:
                return self._ask(group, offer, now)
        while (
            now.monotonic_seconds >= self._drain_again and (starved := self._starved(now.monotonic_seconds)) is not None
        ):
            draining = ExpectedCompletions(self._cache, starved, now)
            if draining.potential_victims:
                return self._ask(starved, draining, now)
            self._never_drains(starved)
        return None

    def _never_drains(self, group: Group) -> None:
        """Nothing that ends would make room for it, nor for those that want the same; when they are tried again, it is
        looked at again.
        """
        for other in [other for other in self._unplaced if other is group or _alike(group, other)]:
            del self._unplaced[other]
            other.preemption.conclude("it would not fit either if everything that Muster placed had ended")
            self._cache.touch_group(other)

    def _candidates(self, group: Group, now: Now) -> PotentialVictims:
        cautious = group in self._cautious
        self._cautious.discard(group)
        holding, time = self._waiting.groups, now.monotonic_seconds
        return PotentialVictims(self._cache, self.running, group, holding, time, cautious)

    def _ask_again(self, priority: int, now: Now) -> None:
        self._may_be_evicted = None
        for group in self._queue.unschedulable_heads():
            if group.priority > priority:
                self._asking.setdefault(group, now.monotonic_seconds)

    def _due(self, now: float) -> Iterator[Group]:
        """Groups to be asked for now, in queue order. They are asked for once."""
        due = [group for group, at in self._asking.items() if at <= now]
        worth_it = [group for group in due if group in self._queue and self._may_gain(group)]
        for group in set(due).difference(worth_it):
            del self._asking[group]
        for group in sorted(worth_it, key=lambda group: group.key)[:MAX_AT_ONCE]:
            del self._asking[group]
            yield group

    def _may_gain(self, group: Group) -> bool:
        """There may be somebody to make room for it."""
        if not group.gangs or group in self._cache.kept:
            return False
        if any(other is not group for other in self._waiting.groups):
            return True
        lowest = self.running.lowest
        return lowest is not None and group.priority > lowest and may_preempt(group)

    def _draining(self) -> Nomination | None:
        return next((kept for kept in self._cache.kept.values() if kept.drains), None)

    def _starved(self, now: float) -> Group | None:
        """The first in the queue of those that had no place for too long and would have one in the empty cluster; None
        also while room drains for somebody who stands before it.
        """
        draining = self._draining()
        if draining is None and self._passed:
            self._unplaced, self._passed = {**self._passed, **self._unplaced}, {}
        starved = []
        after = self._rules.starvation_after_seconds
        for group, _ in list(takewhile(lambda unplaced: unplaced[1] + after <= now, self._unplaced.items())):
            if group not in self._queue or not group.gangs:
                del self._unplaced[group]
            elif draining is not None and draining.group.key <= group.key:
                self._passed[group] = self._unplaced.pop(group)
            elif group in self._cache.kept:
                del self._unplaced[group]
            else:
                starved.append(group)
        for group in sorted(starved, key=lambda group: group.key):
            if could_ever_fit(group, self._cache.ledger):
                return group
            del self._unplaced[group]  # it is looked at again when it was tried again
        return None

    def _ask(self, group: Group, offer: PotentialVictims | ExpectedCompletions, now: Now) -> Solve:
        cache = self._cache
        if isinstance(offer, PotentialVictims):
            for other in [other for other in self._asking if _alike(group, other)]:
                del self._asking[other]  # it would hear the same
        asked = to_place(group)
        divided_by, began = cache.topology_of(group), now.monotonic_seconds
        self._attempt = _Attempt(next(self._solve_ids), group, asked, demand(group), divided_by, offer, began)
        nominated = nominated_for_others(group, cache.kept.values(), cache.ledger, now.monotonic_seconds)
        return Solve(
            self._attempt.solve_id,
            dict(cache.revision),
            cache.ledger.reservations(),
            (asked,),
            as_amounts(nominated, cache.ledger),
            tuple(offer.potential_victims),
        )

    # -- answers

    def answered(self, solve_id: int, results: tuple[SolveResult, ...], now: Now) -> list[Effect]:
        """Placement answered; no results: it did not."""
        attempt = self._attempt
        if attempt is None or attempt.solve_id != solve_id:
            return []
        self._attempt = None
        group = attempt.group
        seconds = now.monotonic_seconds - attempt.began
        charge(group, seconds)
        self._not_before = now.monotonic_seconds + seconds * (1 / SHARE - 1)
        if isinstance(attempt.offer, ExpectedCompletions):
            self._drain_again = now.monotonic_seconds + AGAIN_SECONDS
        same = demand(group) == attempt.demand and self._cache.topology_of(group) == attempt.divided_by
        if group not in self._queue or not group.wants_seats or not same:
            return []  # it changed, and is tried again
        result = next((result for result in results if result.id == group.id), None)
        if result is None:
            self._later(attempt, now)
        elif result.outcome is not SolveOutcome.PLACED:
            self._no_way(attempt)
        elif not result.victims and self._bears(_kept(attempt, result), (), now):
            group.preemption.postpone(now.monotonic_seconds + AGAIN_SECONDS)  # unless that was no truth
            self._queue.activate(group)
        elif (effects := self._make_room(attempt, result, now)) is not None:
            return effects
        else:
            if not (isinstance(attempt.offer, PotentialVictims) and attempt.offer.beyond_budget):
                self._rejections.add(
                    group, Rejection(RejectionReason.REMOVAL, "who is to make room cannot, or it is not enough")
                )
            self._later(attempt, now)
        return []

    def _later(self, attempt: _Attempt, now: Now) -> None:
        """There was no answer, or none that could be used: ask again."""
        if isinstance(attempt.offer, PotentialVictims):
            self._asking[attempt.group] = now.monotonic_seconds + AGAIN_SECONDS
        elif self._unplaced.pop(attempt.group, None) is not None:
            self._unplaced[attempt.group] = now.monotonic_seconds

    def _no_way(self, attempt: _Attempt) -> None:
        if isinstance(attempt.offer, ExpectedCompletions):
            self._never_drains(attempt.group)
        else:
            attempt.group.preemption.conclude("nobody could be made to give way so that it would fit")
            self._cache.touch_group(attempt.group)

    def _make_room(self, attempt: _Attempt, result: SolveResult, now: Now) -> list[Effect] | None:
        """What the answer wants is planned; None: the answer cannot be used."""
        kept = _kept(attempt, result)
        if self._forbidden(attempt.group, result.assignments):
            return None
        kept.held_before = frozenset(uid for gang in attempt.group.gangs for uid in gang.seats)
        if isinstance(attempt.offer, ExpectedCompletions):
            ends = attempt.offer.chosen(result.victims)
            if not ends or not self._bears(kept, ends, now):
                return None
            kept.going, kept.drains, kept.starts_at = set(ends), True, max(ends.values())
            if (before := self._draining()) is not None:
                self._plans.drop(before)
            self._plans.keep(kept)
            return capacity_reserved(kept, now)
        victims = attempt.offer.victims(result.victims) if result.victims else None
        if victims is None:
            if attempt.offer.beyond_budget:
                self._cautious.add(attempt.group)
            return None
        kept.going = {uid for uids in (*victims.reserved.values(), *victims.bound.values()) for uid in uids}
        if not self._bears(kept, kept.going, now):
            return None
        self._may_be_evicted = self.running.lowest  # there may be victims for those that want the same as well
        return self._plans.begin(Plan(victims, kept), now)

    def _forbidden(self, group: Group, assignments: Sequence[Assignment]) -> bool:
        """The room is not such as its hard constraints demand: nobody goes for that."""
        cache, whole = self._cache, not group.accumulates
        for gang in group.gangs:
            nodes: Counter[str] = Counter()
            for assignment in assignments:
                if assignment.gang == gang.id:
                    nodes[assignment.node] += assignment.count
            if violated_constraint(cache.ledger, cache.trees, gang, nodes, whole=whole) is not None:
                return True
        return False

    def _bears(self, kept: Nomination, going: Iterable[str], now: Now) -> bool:
        """The ledger bears the answer out: what is free, and what the pods that go leave, suffices."""
        ledger = self._cache.ledger
        others = nominated_for_others(kept.group, self._cache.kept.values(), ledger, now.monotonic_seconds)
        return bool(kept.room) and ledger.refusal(kept.room, without(others, going, ledger)) is None


def _kept(attempt: _Attempt, result: SolveResult) -> Nomination:
    """The room that the answer gives the group."""
    return Nomination(attempt.group, attempt.asked.gangs[0].id, _room(attempt.asked, result.assignments))


def _alike(group: Group, other: Group) -> bool:
    same = (
        group.queueing.equivalence_key is not None and other.queueing.equivalence_key == group.queueing.equivalence_key
    )
    return same and bool(other.gangs) and other.priority == group.priority


def _room(asked: SolveGroup, assignments: Sequence[Assignment]) -> Counter[tuple[str, str]]:
    """Members by node and class; nothing if the answer is about what was not asked."""
    roles = {(gang.id, index): role for gang in asked.gangs for index, role in enumerate(gang.roles)}
    room: Counter[tuple[str, str]] = Counter()
    placed: Counter[tuple[str, int]] = Counter()
    for assignment in assignments:
        role = roles.get((assignment.gang, assignment.role))
        if role is None or assignment.count < 1:
            return Counter()
        placed[assignment.gang, assignment.role] += assignment.count
        room[assignment.node, role.class_id] += assignment.count
    fits = all(placed[key] <= role.wanted for key, role in roles.items())
    enough = all(
        sum(placed[gang.id, index] for index in range(len(gang.roles))) >= gang.minimum for gang in asked.gangs
    )
    return room if fits and enough else Counter()
