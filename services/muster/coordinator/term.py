"""One term of leadership: the core between the services. It ends when leadership does; the next one starts anew."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic, time
from typing import assert_never

import structlog
from grpc import aio
from opentelemetry import context

from muster.coordinator import metrics, records
from muster.coordinator.binder import Binder
from muster.coordinator.calls import Calls
from muster.coordinator.core import effects, events
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.report.progress import progress_of
from muster.coordinator.marks import TimeoutMarks
from muster.coordinator.progress import ProgressWriter
from muster.coordinator.replicas import Replicas
from muster.coordinator.settings import Settings
from muster.coordinator.solver import Solver
from muster.coordinator.term_figures import TermFigures
from muster.coordinator.traces import GangTraces
from muster.coordinator.view import follow_cluster
from muster.dialects.progress import Progress
from muster.etcd.election import Leadership
from muster.etcd.errors import EtcdUnavailable, Fenced
from muster.etcd.store import Store
from muster.telemetry import tracing

EFFECTS_AT_ONCE = 500
"""Then others have their turn, such as who renews the lease: a first look at a full cluster has tens of thousands."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Channels:
    """Connections to the other services; they outlive terms."""

    cluster_state: aio.Channel
    placement: Replicas
    binding: aio.Channel


class Term:
    """The machine and what it needs around it."""

    def __init__(self, settings: Settings, channels: Channels, store: Store, leadership: Leadership) -> None:
        self.machine = Machine(settings.rules)
        self.traces = GangTraces()
        self.changed: Callable[[str], None] = lambda _gang: None
        """Called with the id of every gang that changed."""
        self.saw: Callable[[], None] = lambda: None
        """Called when it sees the cluster for the first time."""
        self.sees = False
        """It has seen the cluster, and knows what there is."""
        self._settings, self._store, self._leadership = settings, store, leadership
        self._channels = channels
        fence = leadership.fence
        self._solver = Solver(channels.placement, settings.solve_timeout_seconds)
        self._binder = Binder(channels.binding, fence.create_revision, settings.bind_timeout_seconds)
        self._marks = TimeoutMarks(channels.binding, fence.create_revision)
        self._progress = ProgressWriter(
            channels.binding,
            fence.create_revision,
            self._progress_of,
            self._progress_not_written,
            lambda gang: self.traces.phase_of(gang),
        )
        self._figures = TermFigures(self.machine, lambda gang: self.traces.root_of(gang))
        self._writer = records.RecordWriter(store, settings.etcd_prefix, fence, lambda gang: self.traces.root_of(gang))
        self._inbox: deque[events.Event] = deque()
        self._arrived = asyncio.Event()
        self._calls = Calls()

    async def run(self) -> str:
        """Lead until leadership is lost. Returns why it ended."""
        try:
            loaded = await records.load(self._store, self._settings.etcd_prefix)
        except EtcdUnavailable as error:
            return str(error)
        self.traces = GangTraces(loaded)
        self._tell(events.Recovered(tuple(record for record, _ in loaded)))
        _log.info("term begins", epoch=self._leadership.fence.create_revision, records=len(loaded))
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("leadership", self._leadership_lost()),
                ("cluster", self._follow_cluster()),
                ("replicas", self._channels.placement.follow(lambda count: self._tell(events.Replicas(count)))),
                ("records", self._write_records()),
                ("reports", self._binder.write_reports()),
                ("marks", self._marks.write()),
                ("progress", self._progress.write()),
                ("machine", self._drive()),
                ("calls", self._calls.failed()),
            )
        ]
        self._figures.begin(lambda: self._writer.waiting)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return _why_ended(done) or self._leadership.why_lost
        finally:
            self._figures.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._calls.drain()

    # -- the loop

    async def _drive(self) -> None:
        """Give the machine what arrived, and do what it wants."""
        while True:
            wake = self.machine.next_wake()
            try:
                async with asyncio.timeout_at(_loop_time(wake)):
                    await self._arrived.wait()
            except TimeoutError:
                self._inbox.append(events.Tick())
            self._arrived.clear()
            arrived = list(self._inbox)
            self._inbox.clear()
            if not self._leadership.held:
                return
            effects = self.machine.step(arrived, events.Now(monotonic(), time()))
            for number, effect in enumerate(effects, start=1):
                self._do(effect)
                if number % EFFECTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._figures.stepped(arrived, effects)
            if not self.sees and any(isinstance(event, events.Snapshot) for event in arrived):
                self.sees = True
                self.saw()

    def _tell(self, *arrived: events.Event) -> None:
        self._inbox.extend(arrived)
        self._arrived.set()

    def _do(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Solve():
                self._calls.solve(self._solve(effect))
            case effects.Persist():
                self._writer.put(effect)
            case effects.Bind():
                self._calls.bind(self._bind(effect))
            case effects.Evict():
                self._calls.evict(self._evict(effect))
            case effects.MarkTimedOut():
                self._marks.put(effect)
            case effects.Report():
                self._report(effect)
            case effects.PhaseChanged():
                self._phase_changed(effect)
            case effects.AnswerRejected():
                self._answer_rejected(effect)
            case effects.GangChanged(gang):
                self.changed(gang)
            case effects.StageChanged(gang):
                self._progress.put(gang)
            case _:
                assert_never(effect)

    # -- effects

    async def _solve(self, effect: effects.Solve) -> None:
        # A batch is one call, seen in the trace of its first gang; what was done for each is recorded in its own.
        gangs = {group.id: group.gangs[0].id for group in effect.groups if group.gangs}
        traceparents = {group: self.traces.phase_of(gang) for group, gang in gangs.items()}
        with tracing.joint_span("solve", list(traceparents.values()), {"muster.groups": len(effect.groups)}) as batch:
            for gang in list(gangs.values())[1:]:
                self.traces.link(gang, batch)
            answer = await self._answer(effect, traceparents)
        if isinstance(answer, events.SolveFailed):
            _log.warning("solve failed", groups=len(effect.groups), reason=answer.message)
        self._tell(answer)

    async def _answer(
        self, effect: effects.Solve, traceparents: Mapping[str, str]
    ) -> events.Solved | events.SolveFailed:
        began = monotonic()
        answer = await self._solver.solve(effect, traceparents)
        metrics.answered(effect, answer, monotonic() - began, next(iter(traceparents.values()), ""))
        return answer

    async def _bind(self, effect: effects.Bind) -> None:
        token = context.attach(tracing.below(self.traces.phase_of(effect.gang)))
        try:
            trace_id, root = self.traces.kept_trace_id(effect.gang), self.traces.root_of(effect.gang)
            async for event in self._binder.bind(effect, trace_id, root):
                self._tell(event)
        finally:
            context.detach(token)

    async def _evict(self, effect: effects.Evict) -> None:
        token = context.attach(tracing.below(self.traces.phase_of(effect.gang)))
        try:
            async for event in self._binder.evict(effect, self.traces.root_of(effect.gang)):
                self._tell(event)
        finally:
            context.detach(token)

    async def _write_records(self) -> None:
        await self._writer.run(lambda written: self._tell(*written))

    def _report(self, effect: effects.Report) -> None:
        gang = self.machine.cache.gangs.get(effect.gang)
        trace_id = self.traces.trace_id(effect.gang)
        self._binder.tell(effect, self.traces.kept_trace_id(effect.gang))
        self._progress.put(effect.gang)  # a reason that is news to users may be told in their dialect's words, too
        told = [*(event.note for event in effect.events), *(condition.message for condition in effect.conditions)]
        _log.info(
            "told",
            gang=effect.gang,
            reasons=sorted({event.reason for event in effect.events}),
            note=next(iter(told), "")[:256],
            pods=len(effect.conditions),
            events=len(effect.events),
            cycle=gang.cycle.number if gang is not None else None,
            trace_id=trace_id or None,
        )

    def _progress_of(self, gang_id: str) -> Progress | None:
        gang = self.machine.cache.gangs.get(gang_id)
        return progress_of(gang, self.machine.cache) if gang is not None else None

    def _progress_not_written(self, gang_id: str, why: str) -> None:
        gang = self.machine.cache.gangs.get(gang_id)
        if gang is None or gang.reference is None:
            return
        note = f"what the gang has come to could not be written, and is tried again: {why}"
        event = effects.KubeEvent(gang.reference, effects.EventType.WARNING, "ProgressNotWritten", note)
        self._binder.tell(effects.Report(gang_id, events=(event,)), self.traces.kept_trace_id(gang_id))

    def _phase_changed(self, change: effects.PhaseChanged) -> None:
        gang = self.machine.cache.gangs.get(change.gang)
        self.traces.follow(change, gang)
        self._figures.phase_changed(change, gang)
        _log.info(
            "gang phase",
            gang=change.gang,
            before=change.before.name if change.before else None,
            after=change.after.name if change.after else None,
            cycle=gang.cycle.number if gang is not None else None,
            trace_id=self.traces.trace_id(change.gang) or None,
        )

    def _answer_rejected(self, rejected: effects.AnswerRejected) -> None:
        metrics.rejected(rejected)
        _log.warning(
            "answer rejected",
            gang=rejected.gang,
            reason=rejected.reason,
            detail=rejected.message[:256],
            count=rejected.count,
            trace_id=self.traces.trace_id(rejected.gang) or None,
        )

    # -- events

    async def _follow_cluster(self) -> None:
        async with aclosing(follow_cluster(self._channels.cluster_state, self._settings.instance)) as events:
            async for event in events:
                self._tell(event)

    async def _leadership_lost(self) -> None:
        await self._leadership.lost.wait()


def _why_ended(done: set[asyncio.Task[None]]) -> str:
    for task in done:
        error = task.exception()
        if isinstance(error, Fenced | EtcdUnavailable):
            return str(error)
        if error is not None:
            raise error
    return ""


def _loop_time(monotonic_seconds: float | None) -> float | None:
    """The loop's clock for a time of the monotonic clock."""
    if monotonic_seconds is None:
        return None
    return asyncio.get_running_loop().time() + (monotonic_seconds - monotonic())
