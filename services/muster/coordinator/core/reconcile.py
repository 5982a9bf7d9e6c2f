"""Reconciles touched gangs and groups: grouping, queue membership, permits, records, and what users see.

A gang is touched (`cache.touch`) when anything changed on which its state depends: its declaration, its pods, their
nodes, a gang of its group, or the end of a call about it.
"""

from collections.abc import Iterable
from itertools import islice, takewhile
from operator import itemgetter

from muster.coordinator.core.cache.cache import MAX_OUTDATED, Cache
from muster.coordinator.core.effects import (
    Effect,
    EventType,
    GangChanged,
    KubeEvent,
    Phase,
    PhaseChanged,
    Report,
    StageChanged,
)
from muster.coordinator.core.elastic.growth import Growths
from muster.coordinator.core.events import Now, RecordState, Rules
from muster.coordinator.core.gang.gang import EquivalenceKey, Gang, Group
from muster.coordinator.core.gang.subgroups import is_bound_by_others
from muster.coordinator.core.hold.hold_and_wait import HoldAndWait
from muster.coordinator.core.permits.deallocation import Deallocations
from muster.coordinator.core.permits.permits import Permits
from muster.coordinator.core.preemption.plan import Plans
from muster.coordinator.core.preemption.preemption import Preemption
from muster.coordinator.core.preemption.repair import Repairs
from muster.coordinator.core.queue.pre_enqueue import could_be_free, lacks_free_resources, may_be_free
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.report.explain import stage_of
from muster.coordinator.core.report.no_reports import NoReports
from muster.coordinator.core.report.reports import Reports
from muster.coordinator.core.slices import GANGS, OBJECTS, Slices
from muster.coordinator.core.solve.request import equivalence_key, to_place
from muster.coordinator.core.term_state import ShortGang, monotonic_time, unix_time
from muster.dialects.progress import Stage
from muster.gangs.facts import ObjectReference


class Reconciler:
    """Keeps queue, records and reports consistent with the cache. What is kept about a gang ends with it (I11)."""

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        permits: Permits,
        deallocations: Deallocations,
        reports: Reports | NoReports,
        holds: HoldAndWait,
        plans: Plans,
        repairs: Repairs,
        growths: Growths,
        preemption: Preemption,
        rules: Rules,
    ) -> None:
        self._cache, self._queue, self._permits, self._reports = cache, queue, permits, reports
        self._holds, self._plans, self._repairs, self._preemption = holds, plans, repairs, preemption
        self._growths, self._deallocations = growths, deallocations
        self._starvation_after_seconds = rules.starvation_after_seconds
        self._events_seen = 0
        self._wants_free: dict[Gang, None] = {}
        """Gangs that wait until a declared amount of resources is free in the whole cluster."""
        self._short: dict[Gang, float] = {}
        """When those that are short are tried in any case, the earliest first."""
        self._phases: dict[Gang, Phase] = {}
        self._stages: dict[Gang, tuple[Stage, ObjectReference | None] | None] = {}
        """The stage that was reported last; None: to be reported again."""

    def reconcile(self, now: Now) -> Slices[list[Effect]]:
        """Reconcile everything that was touched, until nothing is touched any more, in slices."""
        self._waive(now.monotonic_seconds)
        effects = yield from self._reconcile(now)
        while self._events_seen != self._queue.events:
            self._events_seen = self._queue.events
            if self._wants_free:
                yield from self._touch_short()
            effects += yield from self._reconcile(now)
        return effects

    def _touch_short(self) -> Slices[None]:
        """Have the gangs reconciled whose minimum resources may be free now, and some of the others, in turn, for the
        sake of the amounts in their message.
        """
        ledger = self._cache.ledger
        for gang in list(islice(self._wants_free, MAX_OUTDATED)):
            self._wants_free[gang] = self._wants_free.pop(gang)  # the others first next time
            if gang.group.not_ready is not None:
                self._cache.touch(gang)
        for number, gang in enumerate(self._wants_free, start=1):
            if gang.group.not_ready is not None and may_be_free(gang, ledger):
                self._cache.touch(gang)
            if number % OBJECTS == 0:
                yield

    def repeat(self) -> None:
        """Try all gangs again, and report their stages and reasons again: what was answered and written may not be
        true of a cluster that was restored from a backup.
        """
        for gang in self._cache.gangs.values():
            if gang in self._stages:
                self._stages[gang] = None
            self._cache.touch(gang, edited=True)

    def term_state(self, now: Now) -> Slices[tuple[ShortGang, ...]]:
        """Gangs whose minimum resources were not free. In slices."""
        found = []
        for number, gang in enumerate(list(self._wants_free), start=1):
            until, since = self._short.get(gang), gang.timing.short_since
            found.append(
                ShortGang(
                    gang.id,
                    unix_time(since, now) if since is not None else None,
                    unix_time(until, now) if until is not None else None,
                    gang.timing.waived,
                )
            )
            if number % OBJECTS == 0:
                yield
        return tuple(found)

    def resume(self, states: Iterable[ShortGang], now: Now) -> None:
        """These gangs have been short for as long as they had been."""
        cache = self._cache
        waiting = [(gang, each) for each in states if (gang := cache.gangs.get(each.gang)) in self._wants_free and gang]
        for gang, each in waiting:
            gang.timing.restore(monotonic_time(each.since, now) if each.since is not None else None, waived=each.waived)
            self._short.pop(gang, None)
            if each.until is not None:
                self._short[gang] = monotonic_time(each.until, now)
            cache.touch(gang, edited=True)
        self._short = dict(sorted(self._short.items(), key=itemgetter(1)))

    def next_time(self) -> float | None:
        """When a gang is tried although its minimum resources are not free."""
        return next(iter(self._short.values()), None)

    def _waive(self, now: float) -> None:
        """Try gangs that wait for minimum resources as long as others until they starve, so that they cannot be passed
        over for ever; if the empty cluster had the resources.
        """
        if not self._short:
            return
        for gang in [gang for gang, _ in takewhile(lambda item: item[1] <= now, self._short.items())]:
            del self._short[gang]
            if self._cache.gangs.get(gang.id) is not gang:  # it is gone, and will be forgotten
                continue
            if gang.facts is None or not could_be_free(gang.facts.resources, self._cache.ledger):
                self._short[gang] = now + self._starvation_after_seconds
                continue
            gang.timing.waive()
            self._cache.touch(gang, edited=True)

    def _reconcile(self, now: Now) -> Slices[list[Effect]]:
        cache = self._cache
        effects: list[Effect] = []
        if disturbed := cache.ledger.take_disturbed():
            yield from self._holds.drop_untenable(disturbed)
            self._plans.drop_untenable(disturbed)
        while self._plans.update(now) or cache.touched or cache.gone or cache.disbanded:
            effects += self._plans.outcomes(now)
            if cache.gone or cache.disbanded:
                yield from self._forget_gone(effects)
            touched, cache.touched = cache.touched, {}
            for number, gang in enumerate(touched, start=1):
                if is_bound_by_others(gang, cache.ledger.selection):
                    self._holds.release(gang.group)
                    self._permits.adopt(gang)
                    gang.timing.bound(now.unix_seconds)
                    cache.touch_partners(gang)
                cache.regroup(gang)
                if number % GANGS == 0:
                    yield
            if cache.touched:  # their group mates were touched by that: reconcile them together
                for gang, edited in touched.items():
                    cache.touch(gang, edited=edited)
                continue
            groups: dict[Group, bool] = {}
            for gang, edited in touched.items():
                groups[gang.group] = groups.get(gang.group, False) or edited
            in_slice = 0
            for group, edited in groups.items():
                self._holds.update(group, now)
                self._update_queue(group, now, effects, edited=edited)
                in_slice += max(1, len(group.gangs))
                if in_slice >= GANGS:
                    in_slice = 0
                    yield
            # The state of a gang is reported on the gangs of its group, too.
            concerned = dict.fromkeys(touched)
            for group in groups:
                concerned.update(dict.fromkeys(group.gangs))
            for number, gang in enumerate(concerned, start=1):
                self._update_gang(gang, now, effects)
                if number % GANGS == 0:
                    yield
        return effects

    def _key(self, group: Group) -> EquivalenceKey:
        cache = self._cache
        return equivalence_key(group, to_place(group, cache.ledger, cache.trees, cache.gangs))

    def _update_queue(self, group: Group, now: Now, effects: list[Effect], *, edited: bool) -> None:
        if not group.gangs:
            return
        edited, group.edited = edited or group.edited, False
        if group.busy:
            group.edited = edited
            return
        self._cache.check_readiness(group)
        if group.queueing.equivalence_key is not None and (
            edited or self._key(group) != group.queueing.equivalence_key
        ):
            self._queue.classify(group, None)
            edited = True
        if group.holds and group.holds_minimum and group.not_ready is None:
            self._queue.remove(group)
            effects.append(self._permits.permit(group, [gang for gang in group.gangs if gang.seats], now))
        elif not group.wants_seats:
            self._queue.remove(group)
        elif edited or group not in self._queue or group.surplus is not group.queueing.surplus:
            if edited:
                self._queue.reset_backoff(group)
            self._queue.activate(group)

    def _update_gang(self, gang: Gang, now: Now, effects: list[Effect]) -> None:
        self._update_start(gang, now)
        done = gang.permit.granted and not (gang.lost or gang.seats or gang.eviction.whole)
        if done and not gang.permit.fulfilled and not gang.has_begun:
            self._cache.restart(gang)  # its pods are gone before any was bound: later ones start whole (I1)
        elif done and (gang.permit.record is None or gang.permit.record.state is not RecordState.SATISFIED):
            self._finish(gang, now, effects)
        if gang.facts is not None and gang.facts.resources and not gang.permit.granted:
            self._wants_free[gang] = None
            tried = gang.timing.waived or gang in self._short
            if not tried and gang.all_present and lacks_free_resources(gang, self._cache.ledger):
                if gang.timing.short_since is None:
                    gang.timing.lack(now.monotonic_seconds)
                self._short[gang] = now.monotonic_seconds + self._starvation_after_seconds
        else:
            self._wants_free.pop(gang, None)
            self._short.pop(gang, None)
        self._repairs.update(gang, now)
        self._growths.update(gang, now)
        if self._preemption.running.update(gang):
            self._preemption.victim_added(gang)
        effects += self._deallocations.update(gang)
        effects += self._holds.retry_edited(gang)
        if gang.group.persist_id is None and (persist := self._permits.remember(gang, now)) is not None:
            effects.append(persist)
        phase, before = gang.phase, self._phases.get(gang)
        if before is None:
            gang.timing.see(now.monotonic_seconds)
        if phase is not before:
            self._phases[gang] = phase
            effects.append(PhaseChanged(gang.id, before, phase))
        self._update_stage(gang, phase, effects)
        effects.append(GangChanged(gang.id))
        if (report := self._reports.look(gang, now.monotonic_seconds)) is not None:
            effects.append(report)

    def _update_start(self, gang: Gang, now: Now) -> None:
        """Note since when the gang could start, and that a preempted gang can start again."""
        if gang.permit.granted and not gang.eviction.preempted_by:
            return
        ready = gang.all_present and not gang.eviction.whole
        if ready and not gang.permit.granted:
            gang.timing.ready(gang.timing.ready_unix or now.unix_seconds)
        if gang.eviction.preempted_by and not gang.eviction.whole and (ready or gang.permit.granted):
            self._plans.forget_preemptor(gang)

    def _update_stage(self, gang: Gang, phase: Phase, effects: list[Effect]) -> None:
        if gang.facts is None or gang.plain:
            return
        standing = (stage_of(gang, phase), gang.facts.definition)
        if self._stages.get(gang) != standing:
            self._stages[gang] = standing
            effects.append(StageChanged(gang.id))

    def _finish(self, gang: Gang, now: Now, effects: list[Effect]) -> None:
        """All permitted pods are bound, or gone: the permit is fulfilled."""
        recorded = gang.permit.record is not None
        record = self._permits.record(gang, RecordState.SATISFIED, now.unix_seconds)
        if not gang.plain:
            effects.append(self._permits.persist((record,)))
        elif recorded:  # a bound single pod needs no record
            effects.append(self._permits.persist(deletes=(gang.id,)))
        if gang.permit.fulfilled:
            return
        self._permits.fulfil(gang)
        if gang.pending:  # they are surplus from now on, and their place in the queue is another
            self._cache.touch(gang)
        gang.timing.bound(now.unix_seconds)
        bound = sum(bool(pod.node) or pod.uid in gang.acknowledged for pod in gang.pods.values())
        note = f"{bound} of {len(gang.pods)} pods bound"
        if (seconds := gang.timing.start(now.monotonic_seconds)) is not None:
            note += f" in {seconds:.3f} s"
        regarding = gang.reference
        if regarding is not None:
            event = KubeEvent(regarding, EventType.NORMAL, "Scheduled", note)
            effects.append(Report(gang.id, events=(event,)))

    def _forget_gone(self, effects: list[Effect]) -> Slices[None]:
        """Forget gangs and groups that are gone, with their records (I11)."""
        for number, gang in enumerate(self._cache.gone, start=1):
            if gang.permit.record is not None and not (
                gang.plain and gang.permit.record.state is RecordState.SATISFIED
            ):
                effects.append(self._permits.persist(deletes=(gang.id,)))
            self._reports.forget(gang)
            self._holds.forget_gang(gang)
            self._repairs.forget(gang)
            self._growths.forget(gang)
            self._deallocations.forget(gang)
            self._wants_free.pop(gang, None)
            self._short.pop(gang, None)
            self._preemption.running.forget(gang)
            effects.append(PhaseChanged(gang.id, self._phases.pop(gang, None), None))
            if gang in self._stages:
                del self._stages[gang]
                effects.append(StageChanged(gang.id))
            effects.append(GangChanged(gang.id))
            if number % OBJECTS == 0:
                yield
        self._cache.gone.clear()
        for number, group in enumerate(self._cache.disbanded, start=1):
            self._holds.forget(group)
            self._preemption.forget(group)
            if group in self._queue:
                self._queue.remove(group)
            if number % OBJECTS == 0:
                yield
        self._cache.disbanded.clear()
