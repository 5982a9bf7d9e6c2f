"""Writers of conditions, events and timeout marks, which they send to binding's Write in the name of one leader.

Reports that binding rejects for good are dropped. Timeout marks are not, since nobody would notice that one is missing:
a call that failed for some pods is repeated for all of them, which is safe, with growing pauses.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import grpc
import structlog
from grpc import aio
from msgspec import Struct

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.coordinator.core.effects import KubeEvent, MarkTimedOut, PodCondition, Report
from muster.coordinator.core.events import PodName
from muster.dialects.registry import timeout_annotations
from muster.queues.fair_queue import FairQueue
from muster.retry.retrying import Backoff
from muster.rpc.errors import describe
from muster.rpc.watch_codec import encode_reference

MAX_WRITES_PER_CALL: Final = 500
WRITE_TIMEOUT_SECONDS: Final = 60.0
MAX_PENDING_EVENTS: Final = 10_000
MAX_MARK_PAUSE_SECONDS: Final = 10.0

_PERMANENT: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)

_log = structlog.get_logger()


async def _at_once() -> None:
    """Return."""


class Pods(Struct, frozen=True):
    """Which pods exist. What is written about others is dropped while binding is unreachable, for however many come and
    go meanwhile (I11).
    """

    exists: Callable[[str], bool] = lambda _uid: True
    """Whether there is a pod with this uid; to be called after `settled` has returned."""
    settled: Callable[[], Awaitable[None]] = _at_once


def is_permanent(error: aio.AioRpcError) -> bool:
    """Whether repeating the call would fail in the same way."""
    return error.code() in _PERMANENT


class ReportWriter:
    """Writes pod conditions, of which only the newest of each pod is kept, and events. Namespaces take turns."""

    def __init__(self, channel: aio.Channel, leader_epoch: int, pods: Pods = Pods()) -> None:  # noqa: B008 (frozen)
        self._stub = pb_grpc.BindingServiceStub(channel)
        self._epoch, self._pods = leader_epoch, pods
        self._conditions: FairQueue[str, PodCondition] = FairQueue()
        self._events: FairQueue[int, pb.Event] = FairQueue()
        self._serial = itertools.count()
        self._arrived = asyncio.Event()

    def put(self, report: Report, trace_id: str) -> None:
        """Queues a report. Its events carry `trace_id`, if there is one."""
        for condition in report.conditions:
            self._conditions.put(condition.namespace, condition.uid, condition)
        for event in report.events:
            self._events.put(event.regarding.namespace, next(self._serial), _event(event, trace_id))
        if dropped := self._events.drop_down_to(MAX_PENDING_EVENTS):
            _log.warning("events_dropped", dropped=dropped, reason="binding does not keep up")
        self._arrived.set()

    async def run(self) -> None:
        """Writes queued reports forever; while binding is unreachable, keeps the newest condition of existing pods."""
        backoff = Backoff()
        while True:
            await self._arrived.wait()
            conditions, events = self._conditions.take(MAX_WRITES_PER_CALL), self._events.take(MAX_WRITES_PER_CALL)
            if not self._conditions and not self._events:
                self._arrived.clear()
            if await self._write([entry.value for entry in conditions], [entry.value for entry in events]):
                backoff.reset()
                continue
            self._conditions.put_back(conditions)
            self._events.put_back(events)
            await self._pods.settled()
            self._conditions.keep(self._pods.exists)
            self._arrived.set()
            await backoff.pause()

    async def _write(self, conditions: Sequence[PodCondition], events: Sequence[pb.Event]) -> bool:
        """Returns False if the call must be retried."""
        request = pb.WriteRequest(leader_epoch=self._epoch, conditions=map(_condition, conditions), events=events)
        try:
            response = await self._stub.Write(request, timeout=WRITE_TIMEOUT_SECONDS)
        except aio.AioRpcError as error:
            if is_permanent(error):
                _log.error("reports_dropped", reason=describe(error))
                return True
            _log.warning("report_write_failed", reason=describe(error))
            return False
        if response.suppressed:
            _log.info("events_suppressed", events=response.suppressed, reason="too many events about the same object")
        for failure in response.failures:
            _log.warning("report_rejected", reason=failure)
        return True


class _Mark(Struct, frozen=True):
    pod: PodName
    annotations: Mapping[str, str | None]
    """None removes an annotation."""


class TimeoutMarkWriter:
    """Writes the timeout marks of gangs as their dialects define them; of each pod only the newest until written."""

    def __init__(self, channel: aio.Channel, leader_epoch: int, pods: Pods = Pods()) -> None:  # noqa: B008 (frozen)
        self._stub = pb_grpc.BindingServiceStub(channel)
        self._epoch, self._pods = leader_epoch, pods
        self._pending: FairQueue[str, _Mark] = FairQueue()
        self._arrived = asyncio.Event()

    def put(self, effect: MarkTimedOut) -> None:
        """Queues the marks, if the gang's dialect defines one."""
        annotations = timeout_annotations(effect.gang, effect.timed_out)
        if not annotations:
            return
        for pod in effect.pods:
            self._pending.put(pod.namespace, pod.uid, _Mark(pod, annotations))
        self._arrived.set()

    async def run(self) -> None:
        """Writes queued marks forever."""
        backoff = Backoff(longest_seconds=MAX_MARK_PAUSE_SECONDS)
        while True:
            await self._arrived.wait()
            marks = self._pending.take(MAX_WRITES_PER_CALL)
            if not self._pending:
                self._arrived.clear()
            if not marks or await self._write([entry.value for entry in marks]):
                backoff.reset()
                continue
            self._pending.put_back(marks)
            await self._pods.settled()
            self._pending.keep(self._pods.exists)
            self._arrived.set()
            await backoff.pause()

    async def _write(self, marks: Sequence[_Mark]) -> bool:
        """Returns False if the call must be retried."""
        request = pb.WriteRequest(leader_epoch=self._epoch, annotations=map(_pod_annotations, marks))
        try:
            response = await self._stub.Write(request, timeout=WRITE_TIMEOUT_SECONDS)
        except aio.AioRpcError as error:
            if is_permanent(error):
                _log.error("timeout_marks_dropped", reason=describe(error))
                return True
            _log.warning("timeout_mark_write_failed", reason=describe(error))
            return False
        for failure in response.failures:
            _log.warning("timeout_mark_rejected", reason=failure)
        return not response.failures


def _condition(condition: PodCondition) -> pb.PodCondition:
    return pb.PodCondition(
        uid=condition.uid,
        namespace=condition.namespace,
        name=condition.name,
        type="PodScheduled",
        status="False",
        reason=condition.reason,
        message=condition.message,
        nominated_node=condition.nominated_node,
        first=condition.first,
        changed=condition.changed,
    )


def _event(event: KubeEvent, trace_id: str) -> pb.Event:
    return pb.Event(
        regarding=encode_reference(event.regarding),
        type=event.type.value,
        reason=event.reason,
        action="Binding" if event.reason == "FailedBinding" else "Scheduling",
        note=f"{event.note} (trace {trace_id})" if trace_id else event.note,
    )


def _pod_annotations(mark: _Mark) -> pb.PodAnnotations:
    return pb.PodAnnotations(
        pod=pb.PodName(uid=mark.pod.uid, namespace=mark.pod.namespace, name=mark.pod.name),
        set={key: value for key, value in mark.annotations.items() if value is not None},
        remove=[key for key, value in mark.annotations.items() if value is None],
    )
