"""The main loop of the coordinator: events in, effects out.

The theory of operation is in services/muster/coordinator/core/__init__.py.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol, assert_never

from msgspec.structs import replace

from muster.coordinator.core.backfill.reservation import BackfillReservations
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.effects import Effect, Solve
from muster.coordinator.core.elastic.growth import Growths
from muster.coordinator.core.events import (
    BindCallFailed,
    BindResults,
    DeallocateCallFailed,
    DeallocateResults,
    Delta,
    Event,
    EvictCallFailed,
    EvictResults,
    NotPersisted,
    Now,
    Persisted,
    Record,
    Recovered,
    Replicas,
    Rules,
    Snapshot,
    Solved,
    SolveFailed,
    Tick,
    ViewLost,
)
from muster.coordinator.core.gang.composite_trees import composites_of, incomplete_composite
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.hold.hold_and_wait import HoldAndWait
from muster.coordinator.core.permits.binding import Binds, Confirmations
from muster.coordinator.core.permits.deallocation import Deallocations
from muster.coordinator.core.permits.permits import Permit, Permits, TimeOut, recover
from muster.coordinator.core.preemption.eviction import Evictions
from muster.coordinator.core.preemption.nomination import Plan, PlanPart
from muster.coordinator.core.preemption.plan import Plans
from muster.coordinator.core.preemption.preemption import Preemption
from muster.coordinator.core.preemption.repair import Repairs
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.queue.wake import WakeIndex
from muster.coordinator.core.reconcile import Reconciler
from muster.coordinator.core.report.no_reports import NoReports
from muster.coordinator.core.report.reports import Reports, TreeReports
from muster.coordinator.core.slices import OBJECTS, Slices, run_to_end
from muster.coordinator.core.solve.concurrent import NodeSets
from muster.coordinator.core.solve.request import Rejections
from muster.coordinator.core.solve.solve import Solves
from muster.coordinator.core.term_state import TermState

DEFAULTS = Rules()


class _Timed(Protocol):
    def next_time(self) -> float | None: ...


class Machine:
    """One term of leadership. A new term has a new machine; what outlives a term is in etcd and in the cluster."""

    def __init__(self, rules: Rules = DEFAULTS, resumes: TermState | None = None, *, reports: bool = True) -> None:
        """`resumes`: what the memory of the leader holds whose decisions are to be foretold; None: nothing is known.
        `reports`: whether reasons become conditions and events.
        """
        self.rules = rules
        self._resumes = resumes
        ledger, trees = Ledger(), TopologyTrees()
        self.queue = queue = Queue(WakeIndex(ledger, trees))
        self.cache = cache = Cache(ledger, trees, queue.wake, rules)
        node_sets = NodeSets(ledger)
        self.rejections = rejections = Rejections()
        solve_ids = itertools.count(1)
        self._permits = permits = Permits(cache)
        self._confirmations = Confirmations()
        self._binds = Binds(self._confirmations, ledger, cache.gangs)
        self._deallocations = deallocations = Deallocations(cache)
        self._evictions = Evictions()
        self._reports: Reports | NoReports = Reports(cache) if reports else NoReports()
        self._tree_reports = TreeReports(trees)
        self._holds = holds = HoldAndWait(cache, permits)
        self._growths = growths = Growths(cache, rules)
        self._plans = plans = Plans(cache, queue, permits, self._evictions, holds, growths, rules)
        self._repairs = repairs = Repairs(plans.begin, cache, rules)
        self._backfill = backfill = BackfillReservations(cache, queue, plans, rules)
        self._preemption = preemption = Preemption(
            cache, queue, holds, plans, backfill, repairs, rules, rejections, solve_ids
        )
        self._solves = Solves(cache, queue, preemption, node_sets, rejections, solve_ids, rules)
        self._reconciler = Reconciler(
            cache, queue, permits, deallocations, self._reports, holds, plans, repairs, growths, preemption, rules
        )
        self._timed: tuple[_Timed, ...] = (
            *(self._binds, self._evictions, self._holds, self._solves),
            *(self._reports, self._tree_reports),
        )
        self._timed_if_observed: tuple[_Timed, ...] = (
            *(self._confirmations, self._repairs, self._plans, self._backfill),
            *(self._reconciler, self._growths, self._deallocations),
        )
        """Parts with something to do at some time while the cluster is observed."""
        self.steps = 0
        """Steps so far."""
        self._replicas = 1
        self._preemption_first = False
        """Preemption has the next turn, if it has a request."""
        self._records: tuple[Record, ...] | None = None
        self._synced = False
        """The cluster is observed: a snapshot has arrived, and the stream has not been lost since."""
        self._durable_unsynced: list[Plan] = []
        """Plans that became durable while the cluster was not observed."""
        self._now = Now(0.0, 0.0)
        self._effects: list[Effect] = []

    def step(self, events: Sequence[Event], now: Now) -> list[Effect]:
        """Take in events; return what is to be done, in this order. All slices in one piece."""
        return run_to_end(self.slices(events, now))

    def slices(self, events: Sequence[Event], now: Now) -> Slices[list[Effect]]:
        """One step in slices. Between them the state can be read, but it is complete only at the end.

        After the events one loop runs until there is nothing left to do: reconcile what was touched; end what is
        overdue (timeouts of waiting and of repairs), and reconcile again; send evictions; begin a solve, and reconcile
        again, since its groups have left the queue. What only informs users comes last.
        """
        self._now, time = now, now.monotonic_seconds
        self.steps += 1
        for event in events:
            yield from self._take(event)
            yield
        if self._synced:
            if self._confirmations.any_due(self.cache):
                yield from self._confirmations.due(self.cache, time)
            if self._growths.any_due(time):
                yield from self._growths.due(time)
            if self._deallocations.any_due(time):
                self._effects += self._deallocations.due(time)
        self._binds.hasten(self.cache, time)
        if self._binds.any_due(time):
            self._effects += yield from self._binds.due(self.cache, time)
        self._solves.copy_explanations(now)
        self.cache.touch_outdated()
        while True:
            self._effects += yield from self._reconciler.reconcile(now)
            if self._resumes is not None and self._synced:
                yield from self._resume(self._resumes)
                continue
            if overdue := (yield from self._end_overdue(now)):
                self._effects += overdue
                continue
            if self._evictions.retries:
                self._effects += yield from self._evictions.due(self.cache, time)
            yield
            if (solve := (yield from self._begin_solve(now))) is not None:
                self._effects.append(solve)
            elif not self.cache.touched:  # by a verdict without a request
                break
        yield
        if self._reports.any_due(time):
            self._effects += yield from self._reports.due(time)
        self._effects += self._tree_reports.due(time)
        self._effects += self.rejections.take_reports()
        effects, self._effects = self._effects, []
        return effects

    @property
    def synced(self) -> bool:
        """The cluster is observed: only then are groups solved, and reservations ended."""
        return self._synced

    def next_wake(self) -> float | None:
        """Monotonic time at which a Tick has something to do; None: only another event has."""
        times = [part.next_time() for part in self._timed]
        if self._synced:
            times += [part.next_time() for part in self._timed_if_observed]
        if self._may_solve(self._now):
            times += [self.queue.next_time(), self._solves.next_turn()]
            if not self._solves.under_way:
                times.append(self._preemption.next_time())
        if self.cache.outdated:
            times.append(self._now.monotonic_seconds)
        return min((time for time in times if time is not None), default=None)

    def _end_overdue(self, now: Now) -> Slices[list[Effect]]:
        effects: list[Effect] = []
        if self._holds.any_due(now.monotonic_seconds):
            effects += yield from self._holds.due(now)
        if self._synced:
            if self._repairs.under_way:
                given_up, blocked = yield from self._repairs.due(now)
                effects += given_up
                for group in blocked:
                    self._preemption.ask_again(group, now)
            effects += self._backfill.due(now)
        return effects

    # -- solve requests

    def _replica_is_free(self) -> bool:
        """A replica of placement is free. Preemption's requests are alone: no other solve takes that capacity."""
        if not self._synced or self._preemption.under_way:
            return False
        under_way = self._solves.under_way
        return not under_way or (under_way < self._replicas and not self._solves.answer_waits)

    def _may_solve(self, now: Now) -> bool:
        """A solve may begin; not beside others if preemption has the next turn, and wants it."""
        return self._replica_is_free() and not self._preemption_waits(now)

    def _preemption_waits(self, now: Now) -> bool:
        """Preemption has the next turn, and wants it, once no other solve is under way."""
        return self._preemption_first and self._solves.under_way > 0 and self._preemption.wants_to_ask(now)

    def _begin_solve(self, now: Now) -> Slices[Solve | None]:
        """A request for the head of the queue, or preemption's; they take turns if both have one."""
        if not self._replica_is_free():
            return None
        if self._preemption_first:
            yield from self._preemption.consider_new_victims(now)
            if self._preemption_waits(now):
                return None
        if self._solves.under_way:
            return (yield from self._solves.begin(now, self._replicas))
        if self._preemption_first and (solve := (yield from self._preemption.begin(now))) is not None:
            self._preemption_first = False
            return solve
        solve = yield from self._solves.begin(now, self._replicas)
        self._preemption_first = solve is not None
        if solve is None:
            yield
            solve = yield from self._preemption.begin(now)
        return solve

    # -- events

    def _take(self, event: Event) -> Slices[None]:
        match event:
            case Delta(batch):
                yield from self.cache.apply(batch)
            case Tick():
                pass
            case Solved() | SolveFailed():
                for group, gangs in (yield from self._solves.ended(event, self._now)):
                    self._effects.append(self._permits.permit(group, gangs, self._now))
                results = event.results if isinstance(event, Solved) else ()
                self._effects += self._preemption.answered(event.solve_id, results, self._now)
            case Replicas(count):
                self._replicas = max(1, count)
            case Persisted(persist_id):
                self._persisted(persist_id)
            case BindResults():
                self._effects += yield from self._binds.results(self.cache, event, self._now.monotonic_seconds)
            case BindCallFailed():
                self._binds.call_failed(self.cache, event, self._now.monotonic_seconds)
            case NotPersisted():
                self._not_persisted(event)
            case Recovered(records):
                self._records = records
            case Snapshot(batch):
                yield from self.cache.replace(batch)
                self._synced = True
                self._effects += yield from self._holds.mark_again()
                yield from self._recover()
                if self.cache.went_back:
                    self._reports.repeat()
                    yield
                    self._reconciler.repeat()
                    yield
                yield from self._confirmations.begin_again(self.cache, self._now.monotonic_seconds)
                plans, self._durable_unsynced = self._durable_unsynced, []
                for plan in plans:
                    self._carry_out(plan)
            case ViewLost():
                self._synced = False
            case EvictResults():
                self._effects += self._evictions.results(self.cache, event, self._now.monotonic_seconds)
                self._plans.reconsider(result.uid for result in event.results)
            case EvictCallFailed():
                self._evictions.call_failed(self.cache, event, self._now.monotonic_seconds)
                self._plans.reconsider(event.uids)
            case DeallocateResults():
                self._effects += self._deallocations.results(event, self._now.monotonic_seconds)
            case DeallocateCallFailed():
                self._deallocations.call_failed(event, self._now.monotonic_seconds)
            case _:
                assert_never(event)

    def _recover(self) -> Slices[None]:
        """With the first snapshot of the term, recorded gangs continue where they were. In slices."""
        if self._records is None:
            return
        void, resumed = yield from recover(self.cache, self._records)
        self._records = None
        if void:
            self._effects.append(self._permits.persist(deletes=void))
        for number, (gang, record) in enumerate(resumed, start=1):
            self._effects += self._holds.recall(gang, record, self._now)
            self._growths.recall(gang, record, self._now)
            if number % OBJECTS == 0:
                yield
        self._effects += yield from self._plans.recall(resumed, self._now)
        self._effects += yield from self._binds.resume(self.cache)

    # -- what only the leader's memory holds

    def term_state(self, now: Now) -> Slices[TermState]:
        """What a machine needs besides the cluster and the records to decide as this one does, if no step takes place
        meanwhile. In slices.
        """
        preemption = yield from self._preemption.term_state(now)
        return TermState(
            revision=dict(self.cache.revision),
            queue=(yield from self.queue.term_state(now)),
            solves=(yield from self._solves.term_state(now)),
            preemption=replace(preemption, has_next_turn=self._preemption_first),
            nominations=(yield from self._plans.term_state(now)),
            backfill=self._backfill.term_state(now),
            repairs=self._repairs.term_state(now),
            short=(yield from self._reconciler.term_state(now)),
            bind_trouble=self._binds.term_state(now),
            growth=(yield from self._growths.term_state(now)),
            holds=(yield from self._holds.term_state(now)),
        )

    def _resume(self, state: TermState) -> Slices[None]:
        """Continue where the leader was, after its gangs are reconciled and before the first solve. In slices."""
        now, self._resumes = self._now, None
        yield from self._holds.resume(state.holds, now)
        yield from self._preemption.resume(state.preemption, now)
        self._reconciler.resume(state.short, now)
        self._binds.resume_trouble(self.cache, state.bind_trouble, now)
        self._growths.resume(state.growth, now)
        self._effects += yield from self._reconciler.reconcile(now)
        yield from self._plans.resume(state.nominations, now)
        self._plans.budgets.resume(state.preemption.budgets, now)
        self._backfill.resume(state.backfill, now)
        self._repairs.resume(state.repairs, now)
        self._effects += yield from self._reconciler.reconcile(now)
        self._preemption.resume_victims(state.preemption, now)
        self.queue.resume(state.queue, now)
        yield from self._solves.resume(state.solves, now)
        self._preemption_first = state.preemption.has_next_turn

    # -- permit, then bind (I1, I2)

    def _persisted(self, persist_id: int) -> None:
        match self._permits.settled(persist_id):
            case Permit() as permit:
                self._permitted(permit.group, permit.gangs)
            case TimeOut() as decision:
                self._effects += self._holds.mark_timed_out(decision)
            case Plan() as plan:
                self._carry_out(plan)

    def _carry_out(self, plan: Plan) -> None:
        """Evict only while the cluster is observed: the plan may be obsolete."""
        if self._synced:
            self._effects += self._plans.durable(plan, self._now)
        else:
            self._durable_unsynced.append(plan)

    def _permitted(self, group: Group, gangs: Sequence[Gang]) -> None:
        self._permits.written(group)
        # The records of gangs that were deleted meanwhile are deleted, too.
        gangs = [gang for gang in gangs if self.cache.gangs.get(gang.id) is gang]
        if self._overtaken(group, gangs):
            for gang in gangs:
                if not gang.permit.granted:
                    self._permits.forget_record(gang)
            self._return_seats(group, gangs)
            self._effects.append(self._permits.persist(deletes=tuple(gang.id for gang in gangs)))
            return
        self.queue.reset_backoff(group)
        self._permits.grant(gangs)
        for gang in gangs:
            self.cache.touch_partners(gang)
        self._effects += self._binds.permitted(self.cache, gangs)
        self.cache.settled(group)

    def _overtaken(self, group: Group, gangs: Sequence[Gang]) -> bool:
        """While the permit was written a node was removed or filled, or a member, a gang of the group or the
        declaration was deleted. Nothing is bound yet, so the group can still start whole (I1).
        """
        first = [gang for gang in gangs if not gang.permit.granted]
        if not first:
            return False
        needed = first if composites_of(first[0]) else None  # others below their composites may start without them
        if needed is not None and incomplete_composite(needed, self.cache.gangs) is not None:
            return True
        return self.cache.why_not_ready(group, needed) is not None or any(
            gang.missing > 0 or self._binds.unbindable(self.cache, gang) for gang in first
        )

    def _not_persisted(self, event: NotPersisted) -> None:
        match self._permits.settled(event.persist_id):
            case Permit() as permit:
                self._not_permitted(permit, event.message)
            case TimeOut() as decision:  # pods are marked although that is not recorded
                self._effects += self._holds.mark_timed_out(decision)
            case Plan() as plan:
                self._plans.not_persisted(plan, event.message, self._now)
            case PlanPart(plan):
                self._plans.not_persisted(plan, event.message, self._now)

    def _not_permitted(self, decision: Permit, message: str) -> None:
        group = decision.group
        self._permits.written(group)
        self._permits.withdraw(decision)
        self._return_seats(group, decision.gangs)
        for gang in decision.gangs:  # while it was written, the members that ran may have gone
            if gang.run_ended:
                self.cache.restart(gang)
        if group.gangs:
            self.queue.back_off(group, self._now.monotonic_seconds, message)

    def _return_seats(self, group: Group, gangs: Sequence[Gang]) -> None:
        """A permit is withdrawn: members whose bind was not sent are pending again. The group is not queued."""
        for gang in gangs:
            for seat in gang.unsent_seats:
                gang.return_seat(seat.uid)
                self.cache.release(gang, [seat.uid])
        self.cache.settled(group)
