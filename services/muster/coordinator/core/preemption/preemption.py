"""Preemption: for a group that has no place, a second solve request with potential victims, and what its answer
becomes.

A group that found no place is asked for once more, with the pods that could be removed for it (`potential_victims`),
among them gangs whose repair has timed out as its own has (`repair`); or, if it starves, with pods in the order in
which they are expected to end (`backfill`). What the answer removes becomes a plan (`plan`); the capacity is nominated
for the group (`nomination`) until it starts, or does not want it any more.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain

from muster.coordinator.core.backfill.expected_completions import ExpectedCompletions
from muster.coordinator.core.backfill.reservation import BackfillReservations, equal
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Effect, Rejection, RejectionReason, Solve
from muster.coordinator.core.events import Now, Rules
from muster.coordinator.core.gang.gang import Gang, Group, PreemptionState, QueueKey
from muster.coordinator.core.gang.subgroups import gang_id_of
from muster.coordinator.core.gang.verdicts import Verdict
from muster.coordinator.core.hold.hold_and_wait import HoldAndWait
from muster.coordinator.core.preemption.eviction import EvictionLimit
from muster.coordinator.core.preemption.nomination import (
    Nomination,
    Plan,
    Victims,
    after_departure,
    as_amounts,
    may_borrow,
    may_preempt,
    nominated_for_others,
)
from muster.coordinator.core.preemption.plan import Plans
from muster.coordinator.core.preemption.potential_victims import PotentialVictims, RunningGangs
from muster.coordinator.core.preemption.repair import Repairs
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.queue.turns import namespace_of
from muster.coordinator.core.slices import OBJECTS, Slices, parts
from muster.coordinator.core.solve.concurrent import charge
from muster.coordinator.core.solve.request import Rejections, demand, to_place, violated_constraint, violated_division
from muster.coordinator.core.term_state import PreemptingGroup, PreemptionTermState, monotonic_time, unix_time
from muster.gangs.facts import split_kind
from muster.gangs.solve import Assignment, SolveGroup, SolveOutcome, SolveResult

SHARE = 0.2
"""Share of time spent on preemption requests, at most."""
MAX_AT_ONCE = 10
"""Groups whose potential victims are collected in one step."""
RETRY_SECONDS = 1.0
"""Pause after an answer that failed, or could not be used."""
_NO_RESULTS = PreemptionState()
NO_VICTIMS_HELP = "preemption would not help: no set of lower-priority pods frees enough"


@dataclass(slots=True, frozen=True)
class _Attempt:
    """A preemption request under way."""

    solve_id: int
    group: Group
    request: SolveGroup
    demand: Counter[str]
    topology: tuple[object, ...]
    offer: PotentialVictims | ExpectedCompletions
    began: float


class Preemption:
    """Groups that have no place, and the request that is under way for one of them.

    Bounded by the groups without a place: an entry ends when potential victims for the group were considered, or when
    the group has a place or is gone.
    """

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        holds: HoldAndWait,
        plans: Plans,
        backfill: BackfillReservations,
        repairs: Repairs,
        rules: Rules,
        rejections: Rejections,
        solve_ids: Iterator[int],
    ) -> None:
        self._cache, self._queue, self._holds, self._plans = cache, queue, holds, plans
        self._backfill, self._repairs, self._rules = backfill, repairs, rules
        self._rejections, self._solve_ids = rejections, solve_ids
        self._due_at: dict[Group, float] = {}
        """When potential victims for a group are next considered."""
        self._attempt: _Attempt | None = None
        self._not_before = 0.0
        self.running = RunningGangs(cache.ledger)
        self._new_victims_from: int | None = None
        """Lowest priority of gangs that became potential victims."""
        self._limit = EvictionLimit(rules.evictions_per_hour)
        self._cautious: set[Group] = set()
        """Groups for which an answer took more than disruption budgets allow."""
        self._reservation_is_next = False
        """The last request was for a preemptor: a starving group comes before the next one."""
        self._requests = 0
        """Requests for preemptors so far."""
        self._last_requests: dict[str, int] = {}
        """Number of the last request by namespace, of those with groups in `_due_at`."""

    @property
    def under_way(self) -> bool:
        """Placement has not answered the request yet."""
        return self._attempt is not None

    # -- outcomes of other solves

    def no_place(self, group: Group, now: Now, *, proved: bool) -> None:
        """A solve found no place for the group, or only for a part of it."""
        nomination = self._cache.nominations.get(group)
        if nomination is None or nomination.backfill:
            delay = self._rules.deadlock_after_seconds if group.non_strict else 0.0
            self._due_at.setdefault(group, max(now.monotonic_seconds + delay, group.preemption.not_before))
        if nomination is None or not proved:
            pass
        elif nomination.ready or (nomination.backfill and nomination.all_left(self._cache.ledger)):
            self._plans.drop(nomination)  # the nominated capacity does not suffice
        self._backfill.starving.add(group, now.monotonic_seconds)

    def reservations_outlasting(self, group: Group, now: Now) -> list[Nomination]:
        """Backfill reservations for others that begin after the group has ended, if it starts now."""
        nominations = self._cache.nominations.values()
        return [each for each in nominations if each.backfill and each.outlasts(group, now.monotonic_seconds)]

    def could_lend(self, group: Group) -> bool:
        """There is a backfill reservation of which the group may use capacity if it has no other place."""
        nominations = self._cache.nominations.values()
        return any(each.lends and each.group is not group for each in nominations) and may_borrow(group)

    def reservations_lending(self, group: Group, now: Now) -> list[Nomination]:
        """Other backfill reservations that the group may use for this reason alone that it gives the capacity back."""
        nominations = self._cache.nominations.values()
        lending = [each for each in nominations if each.group is not group and each.lends_to(group)]
        return [each for each in lending if not each.outlasts(group, now.monotonic_seconds)]

    def seated(
        self,
        group: Group,
        gangs: Iterable[Gang],
        outlasting: Iterable[Nomination],
        lending: Iterable[Nomination],
        now: Now,
        *,
        whole: bool,
    ) -> None:
        """Gangs of the group got seats; `whole`: all that were requested. They end before `outlasting` begin, or borrow
        from `lending`.
        """
        seats = [seat for gang in gangs for seat in gang.unsent_seats] if outlasting or lending else []
        for nomination in outlasting:
            nomination.leaving.update(seat.uid for seat in seats)
        for nomination in lending:
            nomination.lend(seats, self._cache.ledger)
        for nomination in self._cache.nominations.values():
            if nomination.backfill and nomination.group is not group:
                nomination.overtaken |= not nomination.feasible(self._cache.ledger)
        if whole:
            self.forget(group)
            group.verdicts.forget()
            own = self._cache.nominations.get(group)
            if own is not None and own.evictions_begun:
                group.preemption.gain(now.monotonic_seconds, {gang.id: gang.places for gang in group.gangs})
            else:
                group.preemption.succeed()
            if own is not None:
                own.served, own.used = True, not group.non_strict

    def ask_again(self, group: Group, now: Now) -> None:
        """Other gangs may be evicted for the group than at the last request."""
        self._due_at.setdefault(group, now.monotonic_seconds)

    def victim_added(self, gang: Gang) -> None:
        """The gang became a potential victim: groups of higher priority may be asked for again."""
        priority = gang.protection
        self._new_victims_from = priority if self._new_victims_from is None else min(priority, self._new_victims_from)

    # -- what only the leader's memory holds

    def term_state(self, now: Now) -> Slices[PreemptionTermState]:
        """Results of preemption and of reservations by group, and the limit of evictions. In slices."""
        groups = []
        for number, group in enumerate(list(self._cache.groups.values()), start=1):
            state, due_at = group.preemption, self._due_at.get(group)
            if due_at is None and group not in self._cautious and state == _NO_RESULTS:
                continue
            groups.append(
                PreemptingGroup(
                    group.id,
                    unix_time(state.not_before, now),
                    state.plans_in_vain,
                    unix_time(state.gained_at, now) if state.gained_at is not None else None,
                    tuple(state.gained.items()),
                    state.reservations_in_vain,
                    unix_time(state.no_reservation_before, now),
                    unix_time(due_at, now) if due_at is not None else None,
                    group in self._cautious,
                    state.yields_to.id if state.yields_to is not None else "",
                )
            )
            if number % OBJECTS == 0:
                yield
        tokens, tokens_at = self._limit.level
        at = unix_time(tokens_at, now) if tokens_at is not None else None
        new_victims_from = self._new_victims_from
        not_before = unix_time(self._not_before, now)
        return PreemptionTermState(
            tuple(groups),
            not_before,
            tokens,
            at,
            reservation_is_next=self._reservation_is_next,
            requests=self._requests,
            last_requests=dict(self._last_requests),
            new_victims_from=new_victims_from,
            budgets=self._plans.budgets.term_state(now),
            refused=self.running.refused(now),
        )

    def resume(self, state: PreemptionTermState, now: Now) -> Slices[None]:
        """Groups have the results that they had; call it before `Plans.resume`. In slices."""
        known = self._cache.groups
        for number, each in enumerate(state.groups, start=1):
            if (group := known.get(each.group)) is not None:
                group.preemption.restore(each, now)
                if each.due_at is not None:
                    self._due_at[group] = monotonic_time(each.due_at, now)
                if each.cautious:
                    self._cautious.add(group)
                if (preemptor := known.get(each.yields_to)) is not None:
                    self._plans.yield_to(group, preemptor)
            if number % OBJECTS == 0:
                yield
        self._not_before = monotonic_time(state.not_before, now)
        at = monotonic_time(state.tokens_at, now) if state.tokens_at is not None else None
        self._limit.resume(state.tokens, at)
        self._reservation_is_next = state.reservation_is_next
        self._requests, self._last_requests = state.requests, dict(state.last_requests)

    def resume_victims(self, state: PreemptionTermState, now: Now) -> None:
        """The other potential victims were considered already. Call it when all gangs are reconciled."""
        self._new_victims_from = state.new_victims_from
        self.running.resume(state.refused, self._cache.gangs, now)

    # -- requests

    def next_time(self) -> float | None:
        """When a request may be due."""
        due = (max(at, group.preemption.not_before) for group, at in self._due_at.items())
        times = [min(due, default=None), self._backfill.starving.next_time(), self.running.next_time()]
        return min((max(self._not_before, time) for time in times if time is not None), default=None)

    def wants_to_ask(self, now: Now) -> bool:
        """`begin` is likely to return a request; after `consider_new_victims`."""
        time = now.monotonic_seconds
        if time < self._not_before:
            return False
        due = (group for group, at in self._due_at.items() if max(at, group.preemption.not_before) <= time)
        if any(group in self._queue and self._may_gain(group) for group in due):
            return True
        return self._backfill.starving.has_next(time)

    def begin(self, now: Now) -> Slices[Solve | None]:
        """A request with potential victims for a group; None if no group can gain by one."""
        yield from self.consider_new_victims(now)
        time = now.monotonic_seconds
        if time < self._not_before:
            return None
        reservation_is_due = self._reservation_is_next and self._backfill.starving.has_next(time)
        if reservation_is_due and (request := (yield from self._reservation(now))) is not None:
            return request
        for group in (yield from self._due(time)) if self._due_at else ():
            del self._due_at[group]
            victims = yield from self._potential_victims(group, now)
            if victims.potential_victims:
                self._requests += 1
                self._last_requests[namespace_of(group.key)] = self._requests
                self._reservation_is_next = True
                return self._request(group, victims, now)
            self._conclude(group, self._obstacle(group, victims.protected))
            yield
        return (yield from self._reservation(now))

    def _reservation(self, now: Now) -> Slices[Solve | None]:
        """A request for a starving group; None if there is none, or its pods are not all collected yet."""
        completions = yield from self._backfill.next(now)
        if completions is None:
            return None
        self._reservation_is_next = False
        return self._request(completions.group, completions, now)

    def forget(self, group: Group) -> None:
        """The group has a place, or is gone."""
        self._due_at.pop(group, None)
        if not self._due_at:
            self._last_requests.clear()
        self._cautious.discard(group)
        self._backfill.forget(group)

    def _potential_victims(self, group: Group, now: Now) -> Slices[PotentialVictims]:
        cautious = group in self._cautious
        self._cautious.discard(group)
        victims = PotentialVictims(self._cache, self.running, group, now.monotonic_seconds)
        yield from victims.collect(self._holds.groups, self._repairs.yielding_to(group), cautious=cautious)
        return victims

    def consider_new_victims(self, now: Now) -> Slices[None]:
        """Gangs became potential victims, or plans have ended for which others of their namespace had to wait: groups
        that may preempt are asked for again.
        """
        if ready := self._plans.budgets.take_ready(now.monotonic_seconds):
            for groups in parts(tuple(self._due_at)):
                for group in groups:
                    if group.gangs and namespace_of(group.key) in ready and group in self._due_at:
                        self._due_at[group] = min(self._due_at[group], now.monotonic_seconds)
                yield
        for gang in self.running.take_evictable(now.monotonic_seconds):
            self.victim_added(gang)
        priority, self._new_victims_from = self._new_victims_from, None
        if priority is None:
            return
        for number, group in enumerate(self._queue.unschedulable_heads(), start=1):
            if group.preempting_priority > priority:
                self._due_at.setdefault(group, now.monotonic_seconds)
            if number % OBJECTS == 0:
                yield

    def _due(self, now: float) -> Slices[list[Group]]:
        """The first groups to be asked for now: in queue order by admitted priorities and, for every other request, of
        the namespaces for which none was made the longest. Groups that cannot gain are not due any more.
        """
        self._forget_namespaces()
        by_turns = self._requests % 2 == 1

        def order(group: Group) -> tuple[int, QueueKey]:
            return self._last_requests.get(namespace_of(group.key), 0) if by_turns else 0, group.admitted_key

        due = tuple(group for group, at in self._due_at.items() if max(at, group.preemption.not_before) <= now)
        first: list[Group] = []
        for groups in parts(due):
            groups = self._with_budget(groups, now)
            gaining = [group for group in groups if group in self._queue and self._may_gain(group)]
            gain = set(gaining)
            for group in (group for group in groups if group not in gain):  # in order: a scenario plays the same again
                del self._due_at[group]
                if group in self._queue:
                    self._conclude(group, self._obstacle(group))
            if gaining:
                first = nsmallest(MAX_AT_ONCE, chain(first, gaining), key=order)
            yield
        return first

    def _forget_namespaces(self) -> None:
        """Forget the turns of namespaces without groups that wait for a request."""
        if len(self._last_requests) > len(self._due_at):
            waiting = {namespace_of(group.key) for group in self._due_at if group.gangs}
            self._last_requests = {name: last for name, last in self._last_requests.items() if name in waiting}

    def _may_gain(self, group: Group) -> bool:
        """There may be victims for the group."""
        nomination = self._cache.nominations.get(group)
        if not group.gangs or (nomination is not None and not nomination.backfill):
            return False
        if self._only_preempts(group):
            lowest = self.running.lowest
            if lowest is None or group.preempting_priority <= lowest or not may_preempt(group):
                return False
        # Otherwise its minimum would not run (I9).
        return all(len(gang.pending) >= gang.must_place_to_run for gang in group.gangs_to_place)

    def _request(self, group: Group, offer: PotentialVictims | ExpectedCompletions, now: Now) -> Solve:
        cache, time = self._cache, now.monotonic_seconds
        evicts = isinstance(offer, PotentialVictims)
        if evicts:
            for other in [other for other in self._due_at if equal(group, other)]:
                if not self._repairs.may_yield_to(other):
                    del self._due_at[other]  # it would get the same answer
        request = to_place(group, cache.ledger, cache.trees, cache.gangs, to_run=evicts)
        topology = cache.topology_of(group)
        self._attempt = _Attempt(next(self._solve_ids), group, request, demand(group), topology, offer, time)
        nominated = nominated_for_others(group, cache.nominations.values(), cache.ledger, time)
        return Solve(
            self._attempt.solve_id,
            dict(cache.revision),
            cache.ledger.reservations(),
            (request,),
            as_amounts(nominated, cache.ledger),
            tuple(offer.potential_victims),
        )

    # -- answers

    def answered(self, solve_id: int, results: tuple[SolveResult, ...], now: Now) -> list[Effect]:
        """Placement answered; without results it did not."""
        attempt = self._attempt
        if attempt is None or attempt.solve_id != solve_id:
            return []
        self._attempt = None
        group, seconds = attempt.group, now.monotonic_seconds - attempt.began
        charge(group, seconds)
        self._not_before = now.monotonic_seconds + seconds * (1 / SHARE - 1)
        if isinstance(attempt.offer, ExpectedCompletions):
            self._backfill.starving.pause(now.monotonic_seconds)
        same = demand(group) == attempt.demand and self._cache.topology_of(group) == attempt.topology
        if group not in self._queue or not group.wants_seats or not same:
            return []  # the group changed, and is tried again
        result = next((result for result in results if result.id == group.id), None)
        if result is None:
            self._retry(attempt, now)
        elif result.invalid:
            self._rejections.add(group, Rejection(RejectionReason.MALFORMED, result.invalid))
            self._retry(attempt, now)
        elif result.outcome is not SolveOutcome.PLACED:
            self._no_victims_help(attempt)
        elif not result.victims and self._suffices(_nomination(attempt, result), (), now):
            group.preemption.postpone(now.monotonic_seconds + RETRY_SECONDS)  # in case the answer was wrong
            self._queue.activate(group)
        elif (effects := self._plan(attempt, result, now)) is not None:
            return effects
        else:
            if not (isinstance(attempt.offer, PotentialVictims) and attempt.offer.beyond_budget):
                message = "the victims are not potential victims, or removing them does not free enough"
                self._rejections.add(group, Rejection(RejectionReason.INVALID_VICTIMS, message))
            self._retry(attempt, now)
        return []

    def _retry(self, attempt: _Attempt, now: Now) -> None:
        if isinstance(attempt.offer, PotentialVictims):
            self._due_at[attempt.group] = now.monotonic_seconds + RETRY_SECONDS
        else:
            self._backfill.starving.restart(attempt.group, now.monotonic_seconds)

    def _no_victims_help(self, attempt: _Attempt) -> None:
        if isinstance(attempt.offer, ExpectedCompletions):
            self._backfill.give_up(attempt.offer)
        else:
            protected = attempt.offer.protected
            self._conclude(attempt.group, f"{NO_VICTIMS_HELP}; {protected}" if protected else NO_VICTIMS_HELP)

    def _conclude(self, group: Group, sentence: str) -> None:
        """Set the sentence about preemption in the reason of the group; "": there is none."""
        if group.verdicts[Verdict.PREEMPTION] != sentence:
            group.verdicts.conclude(Verdict.PREEMPTION, sentence)
            self._cache.touch_group(group)

    def _obstacle(self, group: Group, protected: str = "") -> str:
        """Why no pods may be evicted for a group that could expect it: one with a priority above the default, or above
        that of a running gang; "" for others. `protected`: gangs that disruption budgets protect, in words.
        """
        if protected:
            return f"nothing is preempted for it: {protected}"
        gang, priority = self.running.any_of_lowest(), group.preempting_priority
        nomination = self._cache.nominations.get(group)
        if gang is None or (nomination is not None and not nomination.backfill):
            return ""
        if gang.protection < priority and not may_preempt(group):
            return f"nothing is preempted for it, not even gang {gang.label} of lower priority: its policy is Never"
        if gang.protection == priority > 0:
            return f"nothing is preempted for it: no gang of lower priority runs; gang {gang.label} has {priority}, too"
        return ""

    def _plan(self, attempt: _Attempt, result: SolveResult, now: Now) -> list[Effect] | None:
        """Nominate the capacity and begin the plan; None: the answer cannot be used."""
        nomination = _nomination(attempt, result)
        if self._violates_constraint(attempt, result.assignments):
            return None
        nomination.held_before = frozenset(uid for gang in attempt.group.gangs for uid in gang.seats)
        if isinstance(attempt.offer, ExpectedCompletions):
            ends = attempt.offer.chosen(result.victims)
            if not ends or not self._suffices(nomination, ends, now):
                return None
            return self._backfill.reserve(nomination, ends, now)
        victims = attempt.offer.victims(result.victims) if result.victims else None
        if victims is None:
            if attempt.offer.beyond_budget:
                self._cautious.add(attempt.group)
            return None
        nomination.leaving = {uid for uids in (*victims.reserved.values(), *victims.bound.values()) for uid in uids}
        if not self._suffices(nomination, nomination.leaving, now):
            return None
        plan = Plan(victims, nomination)
        if not self._plans.valid(plan):  # victims changed meanwhile
            self._retry(attempt, now)
            return []
        if victims.bound and attempt.group.preemption.gained_at is not None:
            pause, effects = self._plans.settle_gain(attempt.group, now)
            if pause:
                self._due_at[attempt.group] = now.monotonic_seconds + pause
                return effects
        if (reserved := self._cache.nominations.get(attempt.group)) is not None:
            self._plans.drop(reserved)  # it need not wait for pods to end
        if victims.preempted and not self._may_evict(attempt.group, victims, now):
            return []
        self._new_victims_from = self.running.lowest  # equal groups may have victims as well
        return self._plans.begin(plan, now)

    def _may_evict(self, group: Group, victims: Victims, now: Now) -> bool:
        """The evictions are within the budget of the namespace and the limit of the cluster; otherwise the group is
        asked for again when they are.
        """
        time = now.monotonic_seconds
        by_priority = not victims.borrowers.issuperset(victims.preempted)
        if by_priority and (ready_at := self._plans.budgets.ready_at(group, time)) > time:
            self._await_budget(group, ready_at, time)
            return False
        if (ready_at := self._limit.ready_at(time)) > time:
            self._due_at[group] = ready_at
            wait = f"the next pods may be evicted in {ready_at - time:.0f} s"
            used_up = f"{self._limit.per_hour} evictions per hour are used up: {wait}"
            self._conclude(group, used_up)
            return False
        self._limit.use(sum(map(len, victims.preempted.values())), time)
        return True

    def _await_budget(self, group: Group, ready_at: float, now: float) -> None:
        """Plans of the group's namespace are in vain, or under way: ask for the group when one may begin."""
        namespace = namespace_of(group.key)
        if ready_at < math.inf:
            wait = f"the next plan may begin in {ready_at - now:.0f} s"
            what = f"too many preemptors of namespace {namespace} did not get what was evicted for them; {wait}"
        else:
            ready_at = now + self._rules.eviction_timeout_seconds  # at the latest
            what = f"nothing is preempted for it before other preemptors of namespace {namespace} have started"
        self._due_at[group] = ready_at
        self._conclude(group, what)

    def _with_budget(self, groups: tuple[Group, ...], now: float) -> tuple[Group, ...]:
        """The groups but for those whose namespace has no budget; these are due when it has."""
        refused = self._plans.budgets.refused
        if not refused:
            return groups
        without = set()
        for group in groups:
            ready_at = refused.get(namespace_of(group.key)) if group.gangs else None
            if ready_at is not None and ready_at > now and self._only_preempts(group):
                self._await_budget(group, ready_at, now)
                without.add(group)
        return tuple(group for group in groups if group not in without)

    def _only_preempts(self, group: Group) -> bool:
        """Only preemption by priority may help the group."""
        nomination = self._cache.nominations.get(group)
        lent = nomination is not None and bool(nomination.lent)
        return not (lent or self._holds_beside(group) or self._repairs.may_yield_to(group))

    def _holds_beside(self, group: Group) -> bool:
        """Other groups hold reservations."""
        return any(other is not group for other in self._holds.groups)

    def _violates_constraint(self, attempt: _Attempt, assignments: Sequence[Assignment]) -> bool:
        """The assignments violate a hard constraint: no pod is evicted for them."""
        group = attempt.group
        cache, whole = self._cache, not group.non_strict
        placed: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for assignment in assignments:
            placed[assignment.gang][assignment.node] += assignment.count
        if violated_division(cache.ledger, cache.trees, attempt.request, placed) is not None:
            return True
        for gang in group.gangs:
            nodes: Counter[str] = Counter()
            for assignment in assignments:
                if gang_id_of(assignment.gang) == gang.id:
                    nodes[assignment.node] += assignment.count
            if violated_constraint(cache.ledger, cache.trees, gang, nodes, whole=whole) is not None:
                return True
        return False

    def _suffices(self, nomination: Nomination, leaving: Iterable[str], now: Now) -> bool:
        """According to the ledger, free capacity and that of the leaving pods suffice (I9)."""
        ledger, others = self._cache.ledger, self._cache.nominations.values()
        nominated = nominated_for_others(nomination.group, others, ledger, now.monotonic_seconds)
        capacity = nomination.capacity
        return bool(capacity) and ledger.refusal(capacity, after_departure(nominated, leaving, ledger)) is None


def _nomination(attempt: _Attempt, result: SolveResult) -> Nomination:
    """The capacity that the answer assigns to the group; it is in the record of the first gang that gets some."""
    request, assigned = attempt.request, {each.gang for each in result.assignments}
    owner = next((gang.id for gang in request.gangs if gang.id in assigned), request.gangs[0].id)
    return Nomination(attempt.group, gang_id_of(owner), _capacity(request, result.assignments))


def _capacity(request: SolveGroup, assignments: Sequence[Assignment]) -> Counter[tuple[str, str]]:
    """Members by node and class; empty if the answer does not match the request."""
    roles = {(gang.id, index): role for gang in request.gangs for index, role in enumerate(gang.roles)}
    capacity: Counter[tuple[str, str]] = Counter()
    placed: Counter[tuple[str, int]] = Counter()
    for assignment in assignments:
        role = roles.get((assignment.gang, assignment.role))
        if role is None or assignment.count < 1:
            return Counter()
        placed[assignment.gang, assignment.role] += assignment.count
        capacity[assignment.node, split_kind(role.class_id)[0]] += assignment.count
    fits = all(placed[key] <= role.wanted for key, role in roles.items())
    of_gang = {gang.id: sum(placed[gang.id, index] for index in range(len(gang.roles))) for gang in request.gangs}
    enough = all(
        of_gang[gang.id] >= gang.minimum or (gang.composite >= 0 and not of_gang[gang.id]) for gang in request.gangs
    )
    return capacity if fits and enough else Counter()
