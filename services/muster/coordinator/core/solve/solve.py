"""Solve requests for the head of the queue, and what becomes of each group by placement's answer."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Rejection, RejectionReason, Solve
from muster.coordinator.core.events import ClusterEvent, EventKind, Now, Rules, Solved, SolveFailed
from muster.coordinator.core.gang.gang import EquivalenceKey, Gang, Group, QueueKey
from muster.coordinator.core.gang.subgroups import gang_id_of, subgroup_name_of
from muster.coordinator.core.gang.verdicts import Verdict
from muster.coordinator.core.hold.hold_and_wait import has_minimum_with, within_share
from muster.coordinator.core.preemption.nomination import as_amounts, nominated_for_others
from muster.coordinator.core.preemption.preemption import Preemption
from muster.coordinator.core.queue.equivalence import ExplanationCopies, index_of
from muster.coordinator.core.queue.queue import (
    MAX_BACKOFF_SECONDS,
    NO_SOLVES,
    Concurrency,
    Queue,
)
from muster.coordinator.core.queue.turns import SlowGroups, namespace_of
from muster.coordinator.core.report.device_shortages import name_device_request
from muster.coordinator.core.report.reasons import name_unplaced_pod
from muster.coordinator.core.slices import OBJECTS, Slices
from muster.coordinator.core.solve.concurrent import (
    MAX_GROUPS_AT_RISK,
    Admission,
    Attempt,
    ConcurrentSolves,
    NodeSets,
    RiskBackoff,
    assigned_nodes,
    in_queue_order,
)
from muster.coordinator.core.solve.request import (
    Rejections,
    as_declared_now,
    claim_in_allocation,
    equivalence_key,
    label_sets_to_place,
    to_place,
    validate_and_reserve,
)
from muster.coordinator.core.term_state import (
    PausedGroup,
    SolveTermState,
    UnschedulableGroup,
    monotonic_time,
)
from muster.gangs.quoting import quoted
from muster.gangs.solve import Assignment, Explanation, SolveGroup, SolveOutcome, SolveResult

MAX_PODS_PER_SOLVE: Final = 2000
MAX_YIELDS: Final = 2
"""Places in a row that a group leaves to groups of other namespaces that are ahead in the queue and were not in the
request, since a representative stood for them: there may be thousands.
"""

_NO_GROUPS: Final[frozenset[Group]] = frozenset()


class Solves:
    """Solves under way: at most one per replica of placement."""

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        preemption: Preemption,
        node_sets: NodeSets,
        rejections: Rejections,
        solve_ids: Iterator[int],
        rules: Rules,
    ) -> None:
        self._max_held_share, self._max_groups = rules.max_held_share, rules.groups_per_solve
        self._cache, self._queue, self._preemption = cache, queue, preemption
        self._node_sets, self._rejections, self._solve_ids = node_sets, rejections, solve_ids
        self._concurrent = ConcurrentSolves(cache.ledger)
        self._risk = RiskBackoff()
        self._slow = SlowGroups()
        self._none_at: tuple[int, int, int, bool] | None = None
        """State in which no group could be solved beside the solves under way."""
        self._copies = ExplanationCopies(queue.represented)

    @property
    def under_way(self) -> int:
        """Solves that placement has not answered yet."""
        return len(self._concurrent)

    @property
    def answer_waits(self) -> bool:
        """An answer waits for that of another solve: no solve begins until then."""
        return self._concurrent.answer_waits

    # -- requests

    def begin(self, now: Now, replicas: int) -> Slices[Solve | None]:
        """The solve request for the head of the queue; None if there is no group to try now."""
        time = now.monotonic_seconds
        self._concurrent.forget_all_but(self._queue.is_active)
        if (turn := self._slow.next_turn(time, self._queue.is_parked)) is not None:
            self._queue.activate_parked(turn)
        kind = partial(self._kind, now=time)
        yield from self._queue.flush(time, only_due=self.under_way > 0)
        if not self._queue.has_active:
            self._queue.forget_turns()
            return None
        if replicas == 1:
            groups = yield from self._pop(now, self._max_groups, kind)
            return self._request(groups, time) if groups else None
        state = (self._queue.activations, self._concurrent.begun, self.under_way, self._risk.allows(time))
        if state == self._none_at:
            return None
        self._node_sets.begin()
        under_way, represented = self._concurrent.kinds, self._concurrent.represented()
        for at_risk in (False, True) if under_way and self._risk.allows(time) else (False,):
            admission = Admission(self._node_sets, under_way, at_risk=at_risk)
            concurrency = Concurrency(represented if self.under_way else {}, admission.admits)
            max_groups = min(MAX_GROUPS_AT_RISK, self._max_groups) if at_risk else self._max_groups
            groups = yield from self._pop(now, max_groups, kind, concurrency)
            if groups:
                return self._request(groups, time, at_risk=at_risk)
            yield
        self._none_at = state if self.under_way else None
        return None

    def _pop(
        self,
        now: Now,
        max_groups: int,
        kind: Callable[[Group], Hashable],
        concurrency: Concurrency = NO_SOLVES,
    ) -> Slices[list[Group]]:
        """The head of the queue. Slow groups that an event activated before their turn are parked again."""
        joined: dict[EquivalenceKey, None] = {}
        join_class = partial(self._join_class, joined=joined, now=now)
        while True:
            first = self._concurrent.overtaken
            groups = yield from self._queue.pop(max_groups, MAX_PODS_PER_SOLVE, kind, concurrency, first, join_class)
            early = next((group for group in groups if group.solve.slow and not self._slow.has_turn(group)), None)
            if early is None:
                break
            self._await_turn(early, now.monotonic_seconds)
        for key in joined:
            if (ahead := next(self._queue.represented(key), None)) is not None:
                self._copies.put_joined(key, ahead)
        return groups

    def _join_class(self, group: Group, joined: dict[EquivalenceKey, None], now: Now) -> bool:
        """A group that equals others that have no place has none, either. Adds its class to `joined`."""
        if not self._queue.has_classes or group.solve.alone or group.solve.slow:
            return False
        cache = self._cache
        if group in cache.nominations or self._preemption.could_lend(group):
            return False
        key = equivalence_key(group, to_place(group, cache.ledger, cache.trees, cache.gangs))
        if not self._queue.join_class(group, key):
            return False
        group.solve.prove(proved=True)
        self._queue.clear_failure(group)
        self._preemption.no_place(group, now, proved=True)
        joined[key] = None
        return True

    def _await_turn(self, group: Group, until: float) -> None:
        self._queue.park(group, until)
        self._slow.wait(group, until)

    def _request(self, groups: list[Group], now: float, *, at_risk: bool = False) -> Solve:
        cache = self._cache
        solve_id = next(self._solve_ids)
        requests = {group.id: to_place(group, cache.ledger, cache.trees, cache.gangs) for group in groups}
        represents = {group.id: key for group in groups if (key := group.queueing.equivalence_key) is not None}
        events = self._queue.record_events()
        label_sets = {group.id: label_sets_to_place(group) for group in groups}
        self._concurrent.begin(Attempt(solve_id, groups, requests, represents, label_sets, now, events, at_risk))
        for group in groups:
            group.solve.begin(solve_id)
            for gang in group.gangs:
                gang.attempts.begin(gang.pending)
            cache.touch_group(group)
        nominated = nominated_for_others(groups[0], cache.nominations.values(), cache.ledger, now)
        return Solve(
            solve_id,
            dict(cache.revision),
            cache.ledger.reservations(),
            tuple(requests.values()),
            as_amounts(nominated, cache.ledger),
        )

    def _kind(self, group: Group, now: float) -> Hashable:
        """Groups of one kind may share a request: the same nominations are closed to them, and placement did not refuse
        a request because of one of them.
        """
        if group.solve.alone or group.solve.slow:
            return group.id
        nominations = self._cache.nominations
        if not nominations:
            return _NO_GROUPS
        return frozenset(owner for owner, nomination in nominations.items() if not nomination.open_to(group, now))

    # -- answers

    def ended(self, event: Solved | SolveFailed, now: Now) -> Slices[list[tuple[Group, list[Gang]]]]:
        """Placement answered, or did not. Returns the groups to permit, with their gangs that got seats. A group is one
        slice; with devices to choose, several.
        """
        ready = self._concurrent.answered(event, now.monotonic_seconds)
        for attempt in ready:
            self._queue.solve_ended(attempt.began, now.monotonic_seconds)
            for group in attempt.groups:
                group.solve.end()
                self._cache.settled(group)
        permits = []
        for attempt, group in in_queue_order(ready):
            self._concurrent.settled(group)
            if isinstance(attempt.answer, SolveFailed):
                self._failed(attempt, group, attempt.answer, now)
            elif seated := (yield from self._take(attempt, group, now)):
                self._concurrent.seated(ready, attempt, group)
                if not group.non_strict:
                    permits.append((group, list(seated)))
            yield
        for attempt in ready:
            if attempt.at_risk:
                self._risk.settle(attempt.overtaken, now.monotonic_seconds)
            self._queue.replay_events(attempt.events)
        return permits

    def _failed(self, attempt: Attempt, group: Group, answer: SolveFailed, now: Now) -> None:
        """Placement did not answer. If it refused the request, its groups are tried one by one."""
        if group.gangs and answer.refused and len(attempt.groups) > 1:
            group.solve.isolate()
            self._queue.activate(group)
        elif group.gangs:
            if answer.unreadable:
                self._rejections.add(group, Rejection(RejectionReason.UNDECODABLE, answer.message))
            what = "placement refused the question" if answer.refused else "placement is not available"
            self._back_off(group, f"{what}: {answer.message}", now, away=answer.away)
        if (key := attempt.represents.get(group.id)) is not None:
            self._queue.settle(key, group, now.monotonic_seconds, fits=None)

    def _take(self, attempt: Attempt, group: Group, now: Now) -> Slices[dict[Gang, int]]:
        """Take what the answer says about a group; returns how many members of which gangs got seats."""
        result = _naming_subgroup(attempt.results.get(group.id))
        key = attempt.represents.get(group.id)
        if group.gangs and result is not None and result.assignments and self._must_yield(attempt, group):
            self._queue.activate(group)
            self._assignment_unused(attempt, group)
            if key is not None:
                self._queue.settle(key, group, now.monotonic_seconds, fits=True)
            return {}
        seated = (yield from self._answer(attempt, group, result, now)) if group.gangs else {}
        if key is not None:
            first = self._settle_class(key, group, result, _fits(group, result, seated), now)
            attempt.seats_before = first if attempt.seats_before is None else attempt.seats_before
        if result is not None and sum(assignment.count for assignment in result.assignments) > sum(seated.values()):
            self._assignment_unused(attempt, group)
        return seated

    def _must_yield(self, attempt: Attempt, group: Group) -> bool:
        """An earlier group that was not in the solve, or was overtaken, may have a place as well."""
        if self._concurrent.wanted_by_earlier(attempt, group):
            return True
        first, key = attempt.seats_before, group.key
        if first is None or key < first:
            return False
        if namespace_of(first) != namespace_of(key):
            if group.solve.yields >= MAX_YIELDS and not group.surplus:
                return False
            group.solve.leave_place()
        return True

    def _assignment_unused(self, attempt: Attempt, group: Group) -> None:
        """Groups that were solved after this one may have a place where it was assigned one."""
        self._queue.wake(ClusterEvent(EventKind.ASSIGNMENT_UNUSED, assigned_nodes(attempt, group)))

    def _answer(self, attempt: Attempt, group: Group, result: SolveResult | None, now: Now) -> Slices[dict[Gang, int]]:
        """Queue the group again, or reserve its seats; returns how many members of which gangs got seats."""
        request = attempt.requests[group.id]
        if group.solve.slow:
            self._slow.tried(group, now.monotonic_seconds - attempt.began, now.monotonic_seconds)
        out_of_time = result is not None and result.out_of_time and result.outcome is SolveOutcome.NOT_FOUND
        group.solve.answered(out_of_time=out_of_time)
        self._queue.clear_failure(group)
        if result is None:
            message = "placement gave no answer for this gang"
            self._rejections.add(group, Rejection(RejectionReason.MISSING, message))
            self._back_off(group, message, now)
            return {}
        if result.invalid:
            self._reject(attempt, group, Rejection(RejectionReason.MALFORMED, result.invalid), now)
            return {}
        if out_of_time:
            self._out_of_time(attempt, group, result, now)
            return {}
        placed = result.outcome is SolveOutcome.PLACED
        if not placed and (claim := claim_in_allocation(group, self._cache.ledger)):
            self._back_off(group, claim, now)
            return {}
        if not placed:
            group.verdicts.conclude(Verdict.HOLD_LIMIT, "")
            self._not_placed(group, request, result, now)
        if not placed and not (group.non_strict and result.outcome is SolveOutcome.PARTIAL):
            return {}
        cache = self._cache
        cache.check_readiness(group)
        if not group.wants_seats:
            return {}
        declared = as_declared_now(request, group, cache.ledger, cache.trees, cache.gangs)
        if declared is None:
            self._queue.activate(group)  # the request was out of date
            return {}
        nominated = nominated_for_others(group, cache.nominations.values(), cache.ledger, now.monotonic_seconds)
        outlasting = self._preemption.reservations_outlasting(group, now)
        lending = self._preemption.reservations_lending(group, now)
        whole = placed and has_minimum_with(group, result.assignments)
        assignments = result.assignments if whole else self._within_share(group, request, result, now)
        seated = yield from validate_and_reserve(
            *(cache.ledger, cache.trees, group, declared, attempt.label_sets[group.id], assignments, nominated),
            cache.gangs,
        )
        if isinstance(seated, Rejection):
            self._reject(attempt, group, seated, now)
            return {}
        if placed:
            group.solve.placed()
            self._queue.classify(group, None)
        else:
            self._queue.reset_backoff(group)
        self._preemption.seated(group, seated, outlasting, lending, now, whole=placed)
        group.solve.borrow(now=False)
        return seated

    def _within_share(self, group: Group, request: SolveGroup, result: SolveResult, now: Now) -> tuple[Assignment, ...]:
        """The part of an answer that may be held without the minimum. A group that may not hold all is tried again
        after a pause.
        """
        share = self._max_held_share
        kept = within_share(self._cache, request, result.assignments, share)
        if kept != result.assignments:
            limit = f"gangs that wait may hold {share:.0%} of the cluster (max-held-share)"
            group.verdicts.conclude(Verdict.HOLD_LIMIT, limit)
            self._queue.back_off(group, now.monotonic_seconds, at_least=MAX_BACKOFF_SECONDS)
        return kept

    def _reject(self, attempt: Attempt, group: Group, rejection: Rejection, now: Now) -> None:
        if rejection.reason is RejectionReason.INSUFFICIENT_CAPACITY and rejection.node in attempt.taken:
            self._rejections.add(group, rejection._replace(reason=RejectionReason.CONFLICT))
            attempt.overtaken = True
            self._concurrent.overtake(attempt, group)
            self._queue.activate(group)
        elif group.edited:
            self._queue.activate(group)  # the request was out of date
        else:
            self._rejections.add(group, rejection)
            self._back_off(group, f"placement's answer could not be used: {rejection.message}", now)

    def _not_placed(self, group: Group, request: SolveGroup, result: SolveResult, now: Now) -> None:
        borrows = not group.solve.borrows and self._preemption.could_lend(group)
        group.solve.borrow(now=borrows)
        if borrows:
            self._queue.activate(group)
            return
        proved = result.outcome is SolveOutcome.INFEASIBLE and group not in self._cache.nominations
        self._queue.classify(group, equivalence_key(group, request) if proved else None)
        group.solve.prove(proved=result.outcome is not SolveOutcome.NOT_FOUND)
        if result.explanation is not None:
            self._explain(group, result.explanation)
        if not group.non_strict:  # schedule cycles are of gangs that are placed whole
            for gang in group.gangs:
                gang.attempts.fail(gang.facts.total if gang.facts is not None else 1)
        if result.outcome is SolveOutcome.NOT_FOUND:
            self._queue.back_off(group, now.monotonic_seconds)
        else:
            if not (group.non_strict and result.outcome is SolveOutcome.PARTIAL):  # its part may be rejected
                self._queue.reset_backoff(group)
            self._queue.set_unschedulable(group)
        self._preemption.no_place(group, now, proved=result.outcome is not SolveOutcome.NOT_FOUND)

    # -- what only the leader's memory holds

    def term_state(self, now: Now) -> Slices[SolveTermState]:
        """Unschedulable groups, slow groups in the order of their turns, and groups that are sent alone. In slices."""
        groups, alone, unschedulable = self._queue.groups, [], []
        events_wait = self._queue.events_wait
        waiting, not_before = self._slow.term_state(now)
        slow = [
            PausedGroup(id_, until, groups[id_].queueing.backoffs, slow=True)
            for id_, until in waiting
            if id_ in groups and groups[id_].solve.slow
        ]
        for number, (standing, group) in enumerate(list(self._queue.standings()), start=1):
            if group.solve.alone:
                alone.append(group.id)
            if standing == "unschedulable" and not events_wait:
                in_class = group.queueing.equivalence_key is not None
                unschedulable.append(UnschedulableGroup(group.id, group.solve.proved, in_class))
            if number % OBJECTS == 0:
                yield
        return SolveTermState(tuple(unschedulable), tuple(slow), tuple(alone), not_before)

    def resume(self, state: SolveTermState, now: Now) -> Slices[None]:
        """Unschedulable groups wait for an event, and slow groups for their turns. In slices of OBJECTS groups."""
        groups, cache = self._queue.groups, self._cache
        for number, each in enumerate(state.unschedulable, start=1):
            if (group := groups.get(each.group)) is not None:
                if each.in_class:
                    request = to_place(group, cache.ledger, cache.trees, cache.gangs)
                    self._queue.classify(group, equivalence_key(group, request))
                group.solve.prove(proved=each.proved)
                self._queue.set_unschedulable(group)
            if number % OBJECTS == 0:
                yield
        for id_ in state.alone:
            if id_ in groups:
                groups[id_].solve.isolate()
        for slow in state.slow:
            if (group := groups.get(slow.group)) is not None:
                group.solve.slow_down()
                self._queue.resume_slow(group, slow.backoffs)
                self._await_turn(group, monotonic_time(slow.until, now))
        self._slow.resume(state.slow_not_before, now)

    def _out_of_time(self, attempt: Attempt, group: Group, result: SolveResult, now: Now) -> None:
        """Placement ran out of time: the group is tried alone, and with a growing backoff once it was. It does not
        preempt, since nobody knows whether it needs to.
        """
        self._queue.classify(group, None)
        until = now.monotonic_seconds
        if len(attempt.groups) == 1:
            if result.explanation is not None:
                self._explain(group, result.explanation)
            until += self._queue.next_backoff(group)
        self._await_turn(group, until)

    def _back_off(self, group: Group, failure: str, now: Now, *, away: bool = False) -> None:
        self._queue.back_off(group, now.monotonic_seconds, failure, away=away)

    # -- equivalence classes

    def _settle_class(
        self, key: EquivalenceKey, group: Group, result: SolveResult | None, fits: bool | None, now: Now
    ) -> QueueKey | None:
        """Settles the class by the outcome of its representative. Returns the queue position of the first of them that
        may fit, too.
        """
        first = self._queue.first_represented(key) if fits else None
        self._queue.settle(key, group, now.monotonic_seconds, fits=fits)
        if fits is False and result is not None and result.explanation is not None:
            self._copies.put(key, result.explanation, index_of(result.explanation, group))
        return first

    def copy_explanations(self, now: Now) -> None:
        """Explain represented groups as their representatives."""
        for group, explanation, gang_index in self._copies.due(now.monotonic_seconds):
            gangs = group.gangs_to_place
            if group in self._queue and gang_index < len(gangs):
                group.solve.prove(proved=True)
                if group.queueing.failure and not self._queue.is_parked(group.id):  # it waits as its class does
                    self._queue.clear_failure(group)
                    self._cache.touch_group(group)
                self._explain(group, replace(explanation, gang=gangs[gang_index].id))

    def next_time(self) -> float | None:
        """When explanations are to be copied."""
        return self._copies.next_time()

    def next_turn(self) -> float | None:
        """When a slow group may be tried."""
        return self._slow.next_time()

    def _explain(self, group: Group, explanation: Explanation) -> None:
        if explanation != group.solve.solver_explanation:
            cache = self._cache
            named = name_device_request(explanation, cache)
            group.solve.explain(explanation, name_unplaced_pod(named, cache.gangs, cache.ledger.classes))
            group.verdicts.forget()
            cache.touch_group(group)


def _naming_subgroup(result: SolveResult | None) -> SolveResult | None:
    """The result with an explanation about a gang; the summary names its subgroup, if it has one."""
    explanation = result.explanation if result is not None else None
    if result is None or explanation is None or not (name := subgroup_name_of(explanation.gang)):
        return result
    summary = f"subgroup {quoted(name)}: {explanation.summary}"
    return replace(result, explanation=replace(explanation, gang=gang_id_of(explanation.gang), summary=summary))


def _fits(group: Group, result: SolveResult | None, seated: Mapping[Gang, int]) -> bool | None:
    """Whether groups of the same class may have a place; None: not known."""
    if seated:
        return True
    if result is None or result.outcome is SolveOutcome.NOT_FOUND or group.queueing.failure:
        return None
    return result.outcome is not SolveOutcome.INFEASIBLE  # the group is gone, or asks for something else by now
