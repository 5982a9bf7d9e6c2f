"""Writes the progress of gangs in the terms of their dialects (statuses, labels, annotations), through binding's Write.

Progress is read when it is sent, so a gang that passes several stages at once is written once. That a gang waits is
written after a moment: most gangs start before. Progress is never dropped, since nobody would notice that it is
missing: failed writes are repeated with growing pauses, and the user is told.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
import structlog
from grpc import aio
from opentelemetry import context

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.coordinator.binding_writes import MAX_WRITES_PER_CALL, WRITE_TIMEOUT_SECONDS, is_permanent
from muster.dialects.progress import ObjectWrite, PodWrite, Progress, Stage, Writes
from muster.dialects.registry import progress_writes, writes_progress
from muster.queues.fair_queue import FairQueue
from muster.retry.retrying import Backoff
from muster.rpc.errors import describe
from muster.rpc.watch_codec import encode_reference
from muster.telemetry import tracing

MAX_CALLS: Final = 8
"""Calls in flight."""
WAITING_SECONDS: Final = 0.3
"""How long a gang waits before that is written."""
MIN_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
"""After a rejected write, which may need somebody to grant a permission."""
MAX_UNREACHABLE_PAUSE_SECONDS: Final = 10.0
"""While binding is unreachable."""

_WAITING: Final = (Stage.GATHERING, Stage.READY)

_log = structlog.get_logger()


async def _at_once() -> None:
    """Return."""


class ProgressWriter:
    """Gangs whose progress is to be written, in the name of one leader."""

    def __init__(
        self,
        channel: aio.Channel,
        leader_epoch: int,
        progress_of: Callable[[str], Progress | None],
        on_failure: Callable[[str, str], None] = lambda _gang, _reason: None,
        traceparent_of: Callable[[str], str] = lambda _gang: "",
        settled: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        """`progress_of` returns the current progress of a gang id; None if the gang does not exist. It is called after
        `settled` has returned.

        `on_failure` is called with the gang id and the reason, once until a write succeeds again. `traceparent_of`
        returns the parent span for the writes of a gang.
        """
        self._stub = pb_grpc.BindingServiceStub(channel)
        self._epoch = leader_epoch
        self._progress_of, self._on_failure, self._traceparent_of = progress_of, on_failure, traceparent_of
        self._settled = settled
        self._pending: FairQueue[str, None] = FairQueue()
        self._in_flight: set[str] = set()
        self._put_at: dict[str, asyncio.TimerHandle] = {}
        """Gangs that are queued later: each until then, or until it is queued before."""
        self._waiting: dict[str, float] = {}
        """Gangs that wait, and the time of the loop from which on that is written; an entry ends when anything is."""
        self._backoffs: dict[str, Backoff] = {}
        self._written: dict[str, bytes] = {}
        self._ready = asyncio.Event()

    def put(self, gang: str) -> None:
        """Queues the gang, if its dialect reports progress."""
        if not writes_progress(gang):
            return
        if (timer := self._put_at.pop(gang, None)) is not None:
            timer.cancel()
        self._pending.put(_namespace(gang), gang, None)
        self._ready.set()

    async def run(self) -> None:
        """Writes queued gangs forever."""
        try:
            async with asyncio.TaskGroup() as calls:
                for _ in range(MAX_CALLS):
                    calls.create_task(self._work())
        finally:
            for timer in self._put_at.values():
                timer.cancel()
            self._put_at.clear()

    async def _work(self) -> None:
        backoff = Backoff(longest_seconds=MAX_UNREACHABLE_PAUSE_SECONDS)
        while True:
            gang = await self._next()
            self._in_flight.add(gang)
            token = context.attach(tracing.child_context(self._traceparent_of(gang)))
            try:
                reached = await self._write(gang)
            finally:
                context.detach(token)
                self._in_flight.discard(gang)
                self._ready.set()
            if reached:
                backoff.reset()
            else:
                self._pending.put(_namespace(gang), gang, None)
                await backoff.pause()

    async def _next(self) -> str:
        """Takes a gang that has no call in flight, so that the last write of each gang is its newest."""
        while True:
            if (gang := self._pending.take_first(lambda gang: gang not in self._in_flight)) is not None:
                return gang
            self._ready.clear()
            await self._ready.wait()

    async def _write(self, gang: str) -> bool:
        """Returns False if binding was unreachable and the gang must be tried again."""
        await self._settled()
        progress = self._progress_of(gang)
        if progress is None:
            self._forget(gang)
            return True
        if progress.stage in _WAITING and (seconds := self._too_early(gang)) > 0:
            self._put_later(gang, seconds)
            return True
        self._waiting.pop(gang, None)
        try:
            requests = list(_requests(progress_writes(progress), progress.facts.namespace))
        except Exception as error:  # a bug of one dialect must not stop the others
            _log.error("progress_encoding_failed", gang=gang, exc_info=error)
            return True
        digest = _digest(requests)
        if self._written.get(gang) == digest:
            return True
        self._written.pop(gang, None)
        for request in requests:
            request.leader_epoch = self._epoch
            try:
                response = await self._stub.Write(request, timeout=WRITE_TIMEOUT_SECONDS)
            except aio.AioRpcError as error:
                return self._call_failed(gang, error)
            if response.failures:
                self._retry_later(gang, response.failures[0])
                return True
        self._backoffs.pop(gang, None)
        self._written[gang] = digest
        return True

    def _call_failed(self, gang: str, error: aio.AioRpcError) -> bool:
        reason = describe(error)
        if is_permanent(error):
            self._retry_later(gang, reason)
            return True
        _log.warning("progress_write_failed", gang=gang, reason=reason)
        return False

    def _retry_later(self, gang: str, reason: str) -> None:
        _log.warning("progress_rejected", gang=gang, reason=reason)
        if gang not in self._backoffs:
            self._backoffs[gang] = Backoff(MIN_RETRY_SECONDS, MAX_RETRY_SECONDS)
            self._on_failure(gang, reason)
        self._put_later(gang, self._backoffs[gang].next_seconds())

    def _put_later(self, gang: str, seconds: float) -> None:
        """Queues the gang after a pause, unless it is queued before."""
        if not self._pending.has(_namespace(gang), gang) and gang not in self._put_at:
            self._put_at[gang] = asyncio.get_running_loop().call_later(seconds, self.put, gang)

    def _too_early(self, gang: str) -> float:
        """Seconds until it is written that the gang waits; none if something was written of it."""
        if gang in self._written:
            return 0.0
        now = asyncio.get_running_loop().time()
        return self._waiting.setdefault(gang, now + WAITING_SECONDS) - now

    def _forget(self, gang: str) -> None:
        self._backoffs.pop(gang, None)
        self._written.pop(gang, None)
        self._waiting.pop(gang, None)


def _namespace(gang: str) -> str:
    """The namespace of a gang id: "dialect/namespace/name"."""
    return gang.split("/", 2)[1]


def _requests(writes: Writes, namespace: str) -> Iterator[pb.WriteRequest]:
    """Writes pods before objects: a reader who sees the final status of an object finds its pods up to date."""
    pods = iter(writes.pods)
    while batch := list(islice(pods, MAX_WRITES_PER_CALL)):
        yield pb.WriteRequest(annotations=[_pod(each, namespace) for each in batch])
    if writes.objects:
        yield pb.WriteRequest(objects=[_object(each) for each in writes.objects])


def _pod(write: PodWrite, namespace: str) -> pb.PodAnnotations:
    return pb.PodAnnotations(
        pod=pb.PodName(uid=write.uid, namespace=namespace, name=write.name),
        set=_set(write.annotations),
        remove=_removed(write.annotations),
        set_labels=_set(write.labels),
        remove_labels=_removed(write.labels),
    )


def _set(marks: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in marks.items() if value is not None}


def _removed(marks: Mapping[str, str | None]) -> list[str]:
    return [key for key, value in marks.items() if value is None]


def _object(write: ObjectWrite) -> pb.ObjectPatch:
    return pb.ObjectPatch(
        object=encode_reference(write.object),
        plural=write.plural,
        subresource=write.subresource,
        merge_patch=msgspec.json.encode(write.patch) if write.patch else b"",
        conditions=[
            pb.ObjectCondition(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                write_rule=pb.ObjectCondition.WriteRule.ValueType(each.write_rule),
            )
            for each in write.conditions
        ],
    )


def _digest(requests: list[pb.WriteRequest]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for request in requests:
        found.update(request.SerializeToString(deterministic=True))
    return found.digest()
