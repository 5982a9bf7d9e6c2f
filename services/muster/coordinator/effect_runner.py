"""Runs the effects of the machine: calls to placement and binding, records in etcd, reports, traces, metrics, logs.

The outcomes of calls and writes return to the machine as events.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, assert_never

import structlog
from grpc import aio
from opentelemetry import context

from muster.coordinator import metrics
from muster.coordinator.binder import Binder
from muster.coordinator.binding_writes import Pods, ReportWriter, TimeoutMarkWriter
from muster.coordinator.core import effects, events
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.report.explain import progress_of
from muster.coordinator.pending_calls import PendingCalls
from muster.coordinator.progress_writer import ProgressWriter
from muster.coordinator.records import RecordWriter
from muster.coordinator.replicas import Replicas
from muster.coordinator.settings import Settings
from muster.coordinator.solver import Solver
from muster.coordinator.term_metrics import TermMetrics
from muster.coordinator.traces import GangTraces
from muster.dialects.progress import Progress
from muster.gangs.facts import PodClass, split_kind
from muster.telemetry import tracing

_MAX_LOGGED_CHARACTERS = 256

_log = structlog.get_logger()


@dataclass(frozen=True)
class Channels:
    """Connections to the other services; they outlive terms."""

    cluster_state: aio.Channel
    placement: Replicas
    binding: aio.Channel


class EffectRunner:
    """Runs effects in the name of one leader."""

    def __init__(
        self,
        settings: Settings,
        channels: Channels,
        records: RecordWriter,
        leader_epoch: int,
        machine: Machine,
        traces: GangTraces,
        term_metrics: TermMetrics,
        enqueue: Callable[..., None],
        on_gang_changed: Callable[[str], None],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """`enqueue` puts events into the machine's inbox; `on_gang_changed` is called with the gang's id; `settled`
        returns when the machine's state is complete.
        """
        self._machine, self._traces, self._metrics = machine, traces, term_metrics
        self._enqueue, self._on_gang_changed = enqueue, on_gang_changed
        self.takes_over = True
        """The effects are those of the first snapshot: the phases in which gangs are found are not logged."""
        self._records = records
        self._solver = Solver(channels.placement, settings.solve_timeout_seconds, self._class_of)
        self._binder = Binder(channels.binding, leader_epoch, settings.bind_timeout_seconds)
        self._calls = PendingCalls()
        pods = Pods(lambda uid: uid in machine.cache.gang_of, settled)
        self._reports = ReportWriter(channels.binding, leader_epoch, pods)
        self._marks = TimeoutMarkWriter(channels.binding, leader_epoch, pods)
        self._progress = ProgressWriter(
            channels.binding, leader_epoch, self._progress_of, self._progress_not_written, traces.phase_of, settled
        )

    def _class_of(self, kind: str) -> PodClass | None:
        return self._machine.cache.ledger.classes.get(split_kind(kind)[0])

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Work that goes on until the term ends; a task that returns or raises ends the term."""
        return {
            "records": self._records.run(lambda written: self._enqueue(*written)),
            "reports": self._reports.run(),
            "marks": self._marks.run(),
            "progress": self._progress.run(),
            "calls": self._calls.raise_failure(),
        }

    def pending_records(self) -> int:
        """How many decisions have not been written to etcd yet."""
        return self._records.pending

    async def drain(self) -> None:
        """Ends the calls in flight."""
        await self._calls.drain()

    def run(self, effect: effects.Effect) -> None:
        """Starts one effect; never blocks."""
        match effect:
            case effects.Solve():
                self._calls.solve(self._solve(effect))
            case effects.Persist():
                self._records.put(effect)
            case effects.Bind():
                self._calls.bind(self._bind(effect))
            case effects.Deallocate():
                self._calls.bind(self._deallocate(effect))
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
            case effects.ClaimEnded():
                metrics.claim_ended(effect)
            case effects.StageChanged(gang):
                self._progress.put(gang)
            case effects.GangChanged(gang):
                self._on_gang_changed(gang)
            case _:
                assert_never(effect)

    async def _solve(self, effect: effects.Solve) -> None:
        # A batch is one call, shown in the trace of its first gang; the traces of the others link to it.
        gangs = {group.id: group.gangs[0].id for group in effect.groups if group.gangs}
        traceparents = {group: self._traces.phase_of(gang) for group, gang in gangs.items()}
        with tracing.linked_span("solve", list(traceparents.values()), {"muster.groups": len(effect.groups)}) as batch:
            for gang in list(gangs.values())[1:]:
                self._traces.link(gang, batch)
            started = monotonic()
            answer = await self._solver.solve(effect, traceparents)
            metrics.solve_ended(effect, answer, monotonic() - started, next(iter(traceparents.values()), ""))
        if isinstance(answer, events.SolveFailed):
            _log.warning("solve_failed", groups=len(effect.groups), reason=answer.message)
        self._enqueue(answer)

    async def _bind(self, effect: effects.Bind) -> None:
        token = context.attach(tracing.child_context(self._traces.phase_of(effect.gang)))
        try:
            trace_ids = {gang: self._traces.sampled_trace_id(gang) for gang in effect.gangs}
            async for event in self._binder.bind(effect, trace_ids, self._traces.root_of(effect.gang)):
                self._enqueue(event)
        finally:
            context.detach(token)

    async def _deallocate(self, effect: effects.Deallocate) -> None:
        token = context.attach(tracing.child_context(self._traces.phase_of(effect.gang)))
        try:
            self._enqueue(await self._binder.deallocate(effect, self._traces.root_of(effect.gang)))
        finally:
            context.detach(token)

    async def _evict(self, effect: effects.Evict) -> None:
        token = context.attach(tracing.child_context(self._traces.phase_of(effect.gang)))
        try:
            async for event in self._binder.evict(effect, self._traces.root_of(effect.gang)):
                self._enqueue(event)
        finally:
            context.detach(token)

    def _report(self, effect: effects.Report) -> None:
        gang = self._machine.cache.gangs.get(effect.gang)
        self._reports.put(effect, self._traces.sampled_trace_id(effect.gang))
        self._progress.put(effect.gang)  # the dialect may show the reason on the gang's object, too
        notes = [*(event.note for event in effect.events), *(condition.message for condition in effect.conditions)]
        _log.info(
            "gang_reported",
            gang=effect.gang,
            reasons=sorted({event.reason for event in effect.events}),
            note=next(iter(notes), "")[:_MAX_LOGGED_CHARACTERS],
            pods=len(effect.conditions),
            events=len(effect.events),
            cycle=gang.attempts.cycle.number if gang is not None else None,
            trace_id=self._traces.trace_id(effect.gang) or None,
        )

    def _progress_of(self, gang_id: str) -> Progress | None:
        gang = self._machine.cache.gangs.get(gang_id)
        return progress_of(gang, self._machine.cache) if gang is not None else None

    def _progress_not_written(self, gang_id: str, reason: str) -> None:
        gang = self._machine.cache.gangs.get(gang_id)
        if gang is None or gang.reference is None:
            return
        note = f"the progress of the gang could not be written and is retried: {reason}"
        event = effects.KubeEvent(gang.reference, effects.EventType.WARNING, "ProgressNotWritten", note)
        self._reports.put(effects.Report(gang_id, events=(event,)), self._traces.sampled_trace_id(gang_id))

    def _phase_changed(self, change: effects.PhaseChanged) -> None:
        gang = self._machine.cache.gangs.get(change.gang)
        self._traces.follow(change, gang)
        self._metrics.phase_changed(change, gang)
        if self.takes_over and change.before is None:
            return
        _log.info(
            "gang_phase_changed",
            gang=change.gang,
            before=change.before.name if change.before else None,
            after=change.after.name if change.after else None,
            cycle=gang.attempts.cycle.number if gang is not None else None,
            trace_id=self._traces.trace_id(change.gang) or None,
        )

    def _answer_rejected(self, rejected: effects.AnswerRejected) -> None:
        metrics.placement_rejected(rejected)
        _log.warning(
            "placement_rejected",
            gang=rejected.gang,
            reason=rejected.reason,
            detail=rejected.message[:_MAX_LOGGED_CHARACTERS],
            count=rejected.count,
            trace_id=self._traces.trace_id(rejected.gang) or None,
        )
