"""What gangs have come to, on its way to binding in their dialects' words: of each gang only the newest.

What that is is asked when it is sent: a gang that goes through many stages at once is written once. Nobody sees it when
it is missing, so it is not given up: what failed is tried again with pauses that grow, and the user is told.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
import structlog
from grpc import aio
from opentelemetry import context

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.coordinator.writes import MOST_WRITES_PER_CALL, WRITE_TIMEOUT_SECONDS, is_final
from muster.dialects.progress import ObjectWrite, PodWrite, Progress, Writes
from muster.dialects.registry import progress_writes, writes_progress
from muster.retry.retrying import Backoff
from muster.rpc.errors import describe
from muster.rpc.facts_codec import encode_reference
from muster.telemetry import tracing

CALLS_AT_ONCE: Final = 8
AGAIN_FIRST_SECONDS: Final = 1.0
AGAIN_MOST_SECONDS: Final = 60.0
"""After a write that failed: it may take somebody to grant a right."""
LONGEST_PAUSE_SECONDS: Final = 10.0
"""While binding cannot be reached."""

_log = structlog.get_logger()


class ProgressWriter:
    """Gangs that somebody is to be told of, in the name of one leader."""

    def __init__(
        self,
        channel: aio.Channel,
        leader_epoch: int,
        progress_of: Callable[[str], Progress | None],
        failed: Callable[[str, str], None] = lambda _gang, _why: None,
        traceparent_of: Callable[[str], str] = lambda _gang: "",
    ) -> None:
        """`progress_of` finds out how far a gang is now, by its id; None: there is none. `failed` is told which gang's
        progress could not be written, and why, once until it can be. `traceparent_of` names the span of a gang that
        what is written hangs below.
        """
        self._stub = pb_grpc.BindingServiceStub(channel)
        self._epoch = leader_epoch
        self._progress_of, self._failed, self._traceparent_of = progress_of, failed, traceparent_of
        self._waiting: dict[str, None] = {}
        self._under_way: set[str] = set()
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._failing: dict[str, Backoff] = {}
        self._written: dict[str, bytes] = {}
        self._something = asyncio.Event()

    def put(self, gang: str) -> None:
        """To be told of, if its dialect tells."""
        if not writes_progress(gang):
            return
        if (timer := self._later.pop(gang, None)) is not None:
            timer.cancel()
        self._waiting[gang] = None
        self._something.set()

    async def write(self) -> None:
        """Write what is put, for ever."""
        try:
            async with asyncio.TaskGroup() as calls:
                for _ in range(CALLS_AT_ONCE):
                    calls.create_task(self._serve())
        finally:
            for timer in self._later.values():
                timer.cancel()
            self._later.clear()

    async def _serve(self) -> None:
        backoff = Backoff(longest_seconds=LONGEST_PAUSE_SECONDS)
        while True:
            gang = await self._next()
            self._under_way.add(gang)
            token = context.attach(tracing.below(self._traceparent_of(gang)))
            try:
                reached = await self._tell(gang)
            finally:
                context.detach(token)
                self._under_way.discard(gang)
                self._something.set()
            if reached:
                backoff.reset()
            else:
                self._waiting.setdefault(gang)
                await backoff.pause()

    async def _next(self) -> str:
        """A gang that nobody else is busy with: what is written last of it is the newest."""
        while True:
            gang = next((each for each in self._waiting if each not in self._under_way), None)
            if gang is not None:
                del self._waiting[gang]
                return gang
            self._something.clear()
            await self._something.wait()

    async def _tell(self, gang: str) -> bool:
        """False: binding could not be reached, and it is to be tried again."""
        progress = self._progress_of(gang)
        if progress is None:
            self._forget(gang)
            return True
        try:
            requests = list(_requests(progress_writes(progress), progress.facts.namespace))
        except Exception as error:  # of one dialect: the others go on
            _log.error("progress cannot be put in the words of its dialect", gang=gang, exc_info=error)
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
                self._again(gang, response.failures[0])
                return True
        self._failing.pop(gang, None)
        self._written[gang] = digest
        return True

    def _call_failed(self, gang: str, error: aio.AioRpcError) -> bool:
        why = describe(error)
        if is_final(error):
            self._again(gang, why)
            return True
        _log.warning("progress could not be written", gang=gang, reason=why)
        return False

    def _again(self, gang: str, why: str) -> None:
        _log.warning("progress not written", gang=gang, failure=why)
        if gang not in self._failing:
            self._failing[gang] = Backoff(AGAIN_FIRST_SECONDS, AGAIN_MOST_SECONDS)
            self._failed(gang, why)
        if gang not in self._waiting and gang not in self._later:
            seconds = self._failing[gang].next_seconds()
            self._later[gang] = asyncio.get_running_loop().call_later(seconds, self.put, gang)

    def _forget(self, gang: str) -> None:
        self._failing.pop(gang, None)
        self._written.pop(gang, None)


def _requests(writes: Writes, namespace: str) -> Iterator[pb.WriteRequest]:
    """Pods first: who reads in an object that all is done finds it so on the pods."""
    pods = iter(writes.pods)
    while some := list(islice(pods, MOST_WRITES_PER_CALL)):
        yield pb.WriteRequest(annotations=[_pod(each, namespace) for each in some])
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
