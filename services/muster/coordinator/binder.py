"""Asks binding: Bind and Evict effects become calls whose results are events; reports are written behind them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

import structlog
from grpc import aio

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.coordinator.core.effects import Bind, Evict, KubeEvent, PodCondition, Report
from muster.coordinator.core.events import (
    BindCallFailed,
    BindOutcome,
    BindResult,
    BindResults,
    EvictCallFailed,
    EvictOutcome,
    EvictResult,
    EvictResults,
)
from muster.coordinator.writes import MOST_WRITES_PER_CALL, WRITE_TIMEOUT_SECONDS, is_final
from muster.dialects.registry import labels_at_bind
from muster.retry.retrying import Backoff
from muster.rpc.call_spans import of_gang
from muster.rpc.errors import describe
from muster.rpc.facts_codec import encode_reference

TRACE_ANNOTATION = "muster.dev/trace-id"
"""On every pod that Muster bound, so that one gets from a pod to its gang's trace."""
RANK_ANNOTATION = "muster.dev/rank"
"""On every pod that Muster bound of a gang with more than one member: 0 is the master, and neighbours have numbers that
are near.
"""
MOST_EVENTS_WAITING = 10_000

_R = TypeVar("_R", pb.BindResult, pb.EvictResult)

_log = structlog.get_logger()


class Binder:
    """A client of binding, in the name of one leader."""

    def __init__(self, channel: aio.Channel, leader_epoch: int, timeout_seconds: float) -> None:
        self._stub = pb_grpc.BindingServiceStub(channel)
        self._epoch = leader_epoch
        self._timeout_seconds = timeout_seconds
        self._conditions: dict[str, PodCondition] = {}
        self._events: list[KubeEvent] = []
        self._something = asyncio.Event()

    async def bind(self, effect: Bind, trace_id: str, root: str = "") -> AsyncIterator[BindResults | BindCallFailed]:
        """Results as they come; every pod ends in exactly one of them. The pods are given the trace id; `root` names
        the gang's own span.
        """
        request = pb.BindRequest(
            leader_epoch=self._epoch,
            group=effect.gang,
            pods=[
                pb.PodBinding(
                    uid=seat.uid,
                    namespace=seat.namespace,
                    name=seat.name,
                    node=seat.node,
                    annotations=_annotations(trace_id, effect.ranks.get(seat.uid)),
                    claims=effect.claims.get(seat.uid, ()),
                    labels=labels_at_bind(effect.gang, effect.ranks.get(seat.uid), effect.tries),
                )
                for seat in effect.seats
            ],
        )
        left = {seat.uid for seat in effect.seats}
        reason = "binding ended the call without a result"
        try:
            async for response in self._stub.Bind(request, timeout=self._timeout_seconds, metadata=of_gang(root)):
                yield BindResults(tuple(_bind_result(result) for result in _awaited(response.results, left)))
        except aio.AioRpcError as error:
            reason = describe(error)
        if left:
            _log.warning("bind call broke off", gang=effect.gang, pods=len(left), reason=reason)
            yield BindCallFailed(tuple(left), reason)

    async def evict(self, effect: Evict, root: str = "") -> AsyncIterator[EvictResults | EvictCallFailed]:
        """Results as they come; every pod ends in exactly one of them. `root` names the gang's own span."""
        request = pb.EvictRequest(
            leader_epoch=self._epoch,
            gang=effect.gang,
            pods=[pb.PodName(uid=pod.uid, namespace=pod.namespace, name=pod.name) for pod in effect.pods],
        )
        left = {pod.uid for pod in effect.pods}
        reason = "binding ended the call without a result"
        try:
            async for response in self._stub.Evict(request, timeout=self._timeout_seconds, metadata=of_gang(root)):
                yield EvictResults(tuple(_evict_result(result) for result in _awaited(response.results, left)))
        except aio.AioRpcError as error:
            reason = describe(error)
        if left:
            _log.warning("evict call broke off", gang=effect.gang, pods=len(left), reason=reason)
            yield EvictCallFailed(tuple(left), reason)

    # -- reports

    def tell(self, report: Report, trace_id: str) -> None:
        """To be written; of a pod's condition only the newest."""
        self._conditions.update((condition.uid, condition) for condition in report.conditions)
        self._events.extend(_traced(event, trace_id) for event in report.events)
        if len(self._events) > MOST_EVENTS_WAITING:
            dropped = len(self._events) - MOST_EVENTS_WAITING
            del self._events[:dropped]
            _log.warning("events dropped: binding does not keep up", dropped=dropped)
        self._something.set()

    async def write_reports(self) -> None:
        """Write what is told, for ever; while binding cannot be reached the newest state of it is kept."""
        backoff = Backoff()
        while True:
            await self._something.wait()
            conditions = [self._conditions.pop(uid) for uid in list(self._conditions)[:MOST_WRITES_PER_CALL]]
            events, self._events = self._events[:MOST_WRITES_PER_CALL], self._events[MOST_WRITES_PER_CALL:]
            if not self._conditions and not self._events:
                self._something.clear()
            if await self._write(conditions, events):
                backoff.reset()
                continue
            for condition in conditions:
                self._conditions.setdefault(condition.uid, condition)
            self._events[:0] = events
            self._something.set()
            await backoff.pause()

    async def _write(self, conditions: Sequence[PodCondition], events: Sequence[KubeEvent]) -> bool:
        """False: it is to be tried again."""
        request = pb.WriteRequest(
            leader_epoch=self._epoch,
            conditions=[
                pb.PodCondition(
                    uid=condition.uid,
                    namespace=condition.namespace,
                    name=condition.name,
                    type="PodScheduled",
                    status="False",
                    reason="Unschedulable",
                    message=condition.message,
                )
                for condition in conditions
            ],
            events=[_event(event) for event in events],
        )
        try:
            response = await self._stub.Write(request, timeout=WRITE_TIMEOUT_SECONDS)
        except aio.AioRpcError as error:
            final = is_final(error)
            say = _log.error if final else _log.warning
            say("reports given up" if final else "reports could not be written", reason=describe(error))
            return final
        if response.suppressed:
            _log.info("events left out: too many about the same object", events=response.suppressed)
        for failure in response.failures:
            _log.warning("report given up", failure=failure)
        return True


def _annotations(trace_id: str, rank: int | None) -> dict[str, str]:
    annotations = {TRACE_ANNOTATION: trace_id} if trace_id else {}
    if rank is not None:
        annotations[RANK_ANNOTATION] = str(rank)
    return annotations


def _traced(event: KubeEvent, trace_id: str) -> KubeEvent:
    if not trace_id:
        return event
    return KubeEvent(event.regarding, event.type, event.reason, f"{event.note} (trace {trace_id})")


def _event(event: KubeEvent) -> pb.Event:
    return pb.Event(
        regarding=encode_reference(event.regarding),
        type=event.type.value,
        reason=event.reason,
        action="Binding" if event.reason == "FailedBinding" else "Scheduling",
        note=event.note,
    )


def _awaited(results: Iterable[_R], left: set[str]) -> list[_R]:
    """Those that nothing was heard of before; they are left no more."""
    awaited = []
    for result in results:
        if result.uid in left:
            left.discard(result.uid)
            awaited.append(result)
    return awaited


def _bind_result(result: pb.BindResult) -> BindResult:
    try:
        outcome = BindOutcome(result.outcome)
    except ValueError:
        outcome = BindOutcome.FAILED
    return BindResult(result.uid, outcome, result.node, result.message)


def _evict_result(result: pb.EvictResult) -> EvictResult:
    try:
        outcome = EvictOutcome(result.outcome)
    except ValueError:
        outcome = EvictOutcome.FAILED
    return EvictResult(result.uid, outcome, result.message)
