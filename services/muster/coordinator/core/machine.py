"""The coordinator's main path: events in, effects out. See the package's theory of operation."""

from collections.abc import Sequence
from typing import assert_never

from muster.coordinator.core.answers import refused_or_seated
from muster.coordinator.core.binding import Binds
from muster.coordinator.core.culprit import name_culprit
from muster.coordinator.core.events import (
    BindCallFailed,
    BindResults,
    Changes,
    Effect,
    Event,
    EventType,
    GangChanged,
    KubeEvent,
    NotPersisted,
    Now,
    Persist,
    Persisted,
    Phase,
    PhaseChanged,
    Record,
    RecordState,
    Recovered,
    Report,
    Snapshot,
    Solve,
    Solved,
    SolveFailed,
    SolveOutcome,
    SolveResult,
    Tick,
    ViewLost,
)
from muster.coordinator.core.gathering import why_not_yet
from muster.coordinator.core.knowledge import Knowledge
from muster.coordinator.core.model import Gang, Group
from muster.coordinator.core.permits import Permits
from muster.coordinator.core.queue import Queue
from muster.coordinator.core.recovery import recover
from muster.coordinator.core.reports import Reports
from muster.coordinator.core.solving import Attempt, to_solve

MOST_GROUPS_PER_SOLVE = 100
"""So that the first permits of a long queue leave while the rest is still being placed."""
MOST_PODS_PER_SOLVE = 2000


class Machine:
    """One term of leadership. It is made anew for every term; all that outlives it is in etcd and in the cluster."""

    def __init__(self) -> None:
        self.knowledge = Knowledge()
        self.queue = Queue()
        self.permits = Permits()
        self.binds = Binds()
        self.reports = Reports()
        self._records: tuple[Record, ...] | None = None
        self._seeing = False
        self._attempt: Attempt | None = None
        self._solves = 0
        self._phases: dict[Gang, Phase] = {}
        self._now = Now(0.0, 0.0)
        self._effects: list[Effect] = []

    def step(self, events: Sequence[Event], now: Now) -> list[Effect]:
        """Take in what happened; return what is to be done, in this order."""
        self._now = now
        for event in events:
            self._take(event)
        self._effects.extend(self.binds.due(self.knowledge, now.monotonic_seconds))
        self._look_at_touched()
        self._solve()
        self._look_at_touched()  # what the solve took out of the queue
        self._effects.extend(self.reports.due(now.monotonic_seconds))
        effects, self._effects = self._effects, []
        return effects

    def next_wake(self) -> float | None:
        """Monotonic time at which a Tick has something to do; None: only an event has."""
        solve_time = self.queue.next_time() if self._may_solve() else None
        times = (solve_time, self.binds.next_time(), self.reports.next_time())
        return min((time for time in times if time is not None), default=None)

    # -- events

    def _take(self, event: Event) -> None:
        match event:
            case Changes(batch):
                self.knowledge.apply(batch)
            case Solved():
                self._solved(event)
            case Persisted(persist_id):
                self._persisted(persist_id)
            case NotPersisted():
                self._not_persisted(event)
            case BindResults():
                self._effects.extend(self.binds.results(self.knowledge, event, self._now.monotonic_seconds))
            case BindCallFailed():
                self.binds.call_failed(self.knowledge, event, self._now.monotonic_seconds)
            case SolveFailed():
                self._solve_failed(event)
            case Recovered(records):
                self._records = records
            case Snapshot(batch):
                self._snapshot(event)
            case ViewLost():
                self._seeing = False
            case Tick():
                pass
            case _:
                assert_never(event)

    def _snapshot(self, event: Snapshot) -> None:
        self.knowledge.replace(event.batch)
        self._seeing = True
        if self._records is not None:
            records, self._records = self._records, None
            void = recover(self.knowledge, records)
            if void:
                self._persist(deletes=void)
            for gang in self.knowledge.gangs.values():
                self._effects.extend(self.binds.send(gang, gang.outstanding))

    def _solved(self, event: Solved) -> None:
        attempt = self._attempt
        if attempt is None or attempt.solve_id != event.solve_id:
            return
        self._attempt = None
        self.queue.retried(attempt.began, self._now.monotonic_seconds)
        results = {result.id: result for result in event.results}
        self._solve_ended(attempt)
        for group in attempt.groups:
            result = results.get(group.id)
            if group.gangs:
                self._answer(group, attempt, result)
            if result is not None and result.outcome is SolveOutcome.PLACED and group.persisting is None:
                self.knowledge.helped = True  # what it did not take is there for those that came after it in the batch

    def _answer(self, group: Group, attempt: Attempt, result: SolveResult | None) -> None:
        group.trouble = ""
        if result is None:
            self._refuse(group, "placement gave no answer for this gang")
        elif result.outcome is SolveOutcome.PLACED:
            group.gathering = self._why_not_yet(group)
            if group.wants_seats:
                seated = refused_or_seated(self.knowledge.ledger, group, attempt.asked[group.id], result.runs)
                if isinstance(seated, str):
                    self._refuse(group, f"placement's answer could not be used: {seated}")
                else:
                    group.refusals = 0
                    group.explanation = None
                    self._permit(group, seated)
        else:
            if result.explanation is not None:
                knowledge = self.knowledge
                group.explanation = name_culprit(result.explanation, knowledge.gangs, knowledge.ledger.classes)
            for gang in group.gangs:
                gang.cycle.fail(gang.facts.total if gang.facts is not None else 1)
            if result.outcome is SolveOutcome.INFEASIBLE:
                group.refusals = 0
                self.queue.park(group)
            else:
                group.refusals += 1
                self.queue.back_off(group, self._now.monotonic_seconds)
        self._touch(group)

    def _refuse(self, group: Group, trouble: str) -> None:
        group.trouble = trouble
        self.queue.back_off(group, self._now.monotonic_seconds)
        group.refusals += 1

    def _solve_failed(self, event: SolveFailed) -> None:
        attempt = self._attempt
        if attempt is None or attempt.solve_id != event.solve_id:
            return
        self._attempt = None
        self._solve_ended(attempt)
        for group in attempt.groups:
            if group.gangs:
                self._refuse(group, f"placement is not available: {event.message}")
            self._touch(group)

    def _solve_ended(self, attempt: Attempt) -> None:
        for group in attempt.groups:
            group.solving = None
            if not self.knowledge.in_place(group):  # it could not be regrouped meanwhile
                for gang in group.gangs:
                    self.knowledge.touch_partners(gang.id)

    # -- permit, then bind (I1, I2)

    def _permit(self, group: Group, gangs: Sequence[Gang]) -> None:
        puts = tuple(self.permits.record(gang, RecordState.BINDING, self._now.unix_seconds) for gang in gangs)
        group.persisting = self._persist(puts)
        self.permits.awaits(group.persisting, group, gangs)

    def _persisted(self, persist_id: int) -> None:
        permit = self.permits.durable(persist_id)
        if permit is None:
            return
        group, gangs = permit
        group.persisting = None
        if any(self.binds.unbindable(self.knowledge, gang) for gang in gangs if not gang.permitted):
            # A node was lost or filled while the permit was written. Nothing is bound yet: it can still start whole.
            self._take_seats_back(group, gangs)
            self._persist(deletes=tuple(gang.id for gang in gangs))
            return
        for gang in gangs:
            gang.permitted = True
        for gang in gangs:
            if self.knowledge.gangs.get(gang.id) is gang:
                self.knowledge.regroup(gang)
                self.knowledge.touch(gang)
                self.knowledge.touch_partners(gang.id)
                self._effects.extend(self.binds.permitted(self.knowledge, gang))
        self._touch(group)

    def _not_persisted(self, event: NotPersisted) -> None:
        permit = self.permits.durable(event.persist_id)
        if permit is None:
            return
        group, gangs = permit
        group.persisting = None
        self._take_seats_back(group, gangs)
        group.trouble = event.message
        self.queue.park(group)

    def _take_seats_back(self, group: Group, gangs: Sequence[Gang]) -> None:
        """A permit is not to be: members that were decided and not sent want seats again. The group is not queued."""
        for gang in gangs:
            for uid in self.binds.unsent(gang):
                gang.lose_seat(uid)
                self.knowledge.release(gang, [uid])
            if not gang.permitted:
                gang.lost.clear()
                gang.record = None
        self._touch(group)

    def _persist(self, puts: tuple[Record, ...] = (), deletes: tuple[str, ...] = ()) -> int:
        persist_id = self.permits.next_id()
        self._effects.append(Persist(persist_id, puts, deletes))
        return persist_id

    # -- what was touched

    def _look_at_touched(self) -> None:
        knowledge = self.knowledge
        while knowledge.touched or knowledge.gone or knowledge.disbanded:
            self._bury()
            touched, knowledge.touched = knowledge.touched, {}
            for gang in touched:
                knowledge.regroup(gang)
            if knowledge.touched:  # others moved with them: look at all of them together
                for gang, edited in touched.items():
                    knowledge.touch(gang, edited=edited)
                continue
            groups: dict[Group, bool] = {}
            for gang, edited in touched.items():
                groups[gang.group] = groups.get(gang.group, False) or edited
            for group, edited in groups.items():
                self._place_in_queue(group, edited=edited)
            for gang in touched:
                self._look(gang)
        if knowledge.helped:
            knowledge.helped = False
            self.queue.help_came()

    def _place_in_queue(self, group: Group, *, edited: bool) -> None:
        if not group.gangs:
            return
        edited, group.edited = edited or group.edited, False
        if group.busy:
            group.edited = edited
            return
        group.gathering = self._why_not_yet(group)
        if not group.wants_seats:
            self.queue.remove(group)
        elif edited or group not in self.queue:
            group.refusals = 0 if edited else group.refusals
            self.queue.activate(group)

    def _look(self, gang: Gang) -> None:
        finished = gang.permitted and not gang.lost and not gang.seats
        if finished and (gang.record is None or gang.record.state is not RecordState.SATISFIED):
            self._finish(gang)
        phase = gang.phase
        before = self._phases.get(gang)
        if before is None:
            gang.first_seen = self._now.monotonic_seconds
        if phase is not before:
            self._phases[gang] = phase
            self._effects.append(PhaseChanged(gang.id, before, phase))
        self._effects.append(GangChanged(gang.id))
        if (report := self.reports.look(gang, self._now.monotonic_seconds)) is not None:
            self._effects.append(report)

    def _finish(self, gang: Gang) -> None:
        """All that was permitted is bound (or gone): the permit has done its work."""
        recorded = gang.record is not None
        record = self.permits.record(gang, RecordState.SATISFIED, self._now.unix_seconds)
        if not gang.plain:
            self._persist((record,))
        elif recorded:  # once bound, a single pod has nothing left to be remembered
            self._persist(deletes=(gang.id,))
        if gang.started:
            return
        gang.started = True
        gang.start_seconds = self._now.monotonic_seconds - gang.first_seen
        regarding = gang.reference
        if regarding is not None:
            note = f"{len(gang.bound) + len(gang.acked)} of {len(gang.pods)} pods bound in {gang.start_seconds:.3f} s"
            event = KubeEvent(regarding, EventType.NORMAL, "Scheduled", note)
            self._effects.append(Report(gang.id, events=(event,)))

    def _bury(self) -> None:
        """Gangs that are gone leave nothing behind."""
        for gang in self.knowledge.gone:
            if gang.record is not None and not (gang.plain and gang.record.state is RecordState.SATISFIED):
                self._persist(deletes=(gang.id,))
            self.reports.forget(gang)
            before = self._phases.pop(gang, None)
            self._effects.append(PhaseChanged(gang.id, before, None))
            self._effects.append(GangChanged(gang.id))
        self.knowledge.gone.clear()
        for group in self.knowledge.disbanded:
            if group in self.queue:
                self.queue.remove(group)
        self.knowledge.disbanded.clear()

    def _why_not_yet(self, group: Group) -> str | None:
        if not self.knowledge.in_place(group):
            return "its gang group is changing"
        return why_not_yet(group.gangs, self.knowledge.gangs)

    def _touch(self, group: Group) -> None:
        for gang in group.gangs:
            self.knowledge.touch(gang)

    # -- solve

    def _may_solve(self) -> bool:
        return self._seeing and self._attempt is None

    def _solve(self) -> None:
        if not self._may_solve():
            return
        groups = self.queue.take(self._now.monotonic_seconds, MOST_GROUPS_PER_SOLVE, MOST_PODS_PER_SOLVE)
        if not groups:
            return
        self._solves += 1
        asked = {group.id: to_solve(group) for group in groups}
        self._attempt = Attempt(self._solves, groups, asked, self._now.monotonic_seconds)
        for group in groups:
            group.solving = self._solves
            group.attempts += 1
            for gang in group.gangs:
                gang.cycle.begin_try(gang.waiting)
            self._touch(group)
        ledger = self.knowledge.ledger
        revision = dict(self.knowledge.revision)
        self._effects.append(Solve(self._solves, revision, ledger.reservations(), tuple(asked.values())))
