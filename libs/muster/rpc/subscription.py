"""A subscription to cluster-state that survives outages: each is reported once and followed by a new snapshot."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import grpc
import structlog
from grpc import aio
from msgspec import Struct

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.gangs.facts import Batch
from muster.retry.retrying import Backoff
from muster.rpc.errors import describe
from muster.rpc.watch_codec import decode_batch, decode_revision
from muster.telemetry.metrics import sampled

CACHE_SYNCED: Final = sampled(
    "muster_cache_synced",
    "1 while this process's cache of the cluster is complete and follows cluster-state, otherwise 0; absent in a "
    "process that needs no cache.",
)

_log = structlog.get_logger()


class SnapshotBegun(Struct, frozen=True):
    """A new snapshot starts, which replaces the present state once it is complete; `reason` says why."""

    reason: str


class BatchReceived(Struct, frozen=True):
    """Part of the snapshot, or a delta after it."""

    batch: Batch


class SnapshotComplete(Struct, frozen=True):
    """The batches since SnapshotBegun are the whole state, up to these resourceVersions by kind."""

    through: dict[str, int]


class Disconnected(Struct, frozen=True):
    """cluster-state is unreachable, so that the present state becomes stale. Reported once per outage."""

    reason: str


class MarkReached(Struct, frozen=True):
    """The steps so far contain everything that cluster-state had when it got the request for this mark."""

    mark: int


Step = SnapshotBegun | BatchReceived | SnapshotComplete | MarkReached | Disconnected


class Marks:
    """Requests marks in the present stream of a subscription. One subscription at a time may have it."""

    def __init__(self) -> None:
        self._last = 0
        self._requests: asyncio.Queue[int] | None = None
        """Marks to request in the present stream; 0 ends the requests. Read at once."""

    def request(self) -> int:
        """Have cluster-state send a mark; returns it. MarkReached follows, unless the stream ends before. 0: there is
        no stream, or one without marks, as that of an earlier version.
        """
        if self._requests is None:
            return 0
        self._last += 1
        self._requests.put_nowait(self._last)
        return self._last

    def begin(self, subscriber: str) -> AsyncIterator[pb.FollowRequest]:
        """The requests of a new stream."""
        self._requests = asyncio.Queue()
        return _requests(subscriber, self._requests)

    def end(self) -> None:
        """The stream has ended."""
        if self._requests is not None:
            self._requests.put_nowait(0)
            self._requests = None


async def _requests(subscriber: str, marks: asyncio.Queue[int]) -> AsyncIterator[pb.FollowRequest]:
    yield pb.FollowRequest(subscriber=subscriber)
    while mark := await marks.get():
        yield pb.FollowRequest(mark=mark)


async def subscribe(channel: aio.Channel, subscriber: str, marks: Marks | None = None) -> AsyncGenerator[Step, None]:
    """The steps of the stream, without end. `subscriber`: name of the subscriber for the logs of cluster-state. With
    `marks`, these can be requested if cluster-state can send them.

    Close the generator (`contextlib.aclosing`) to end the subscription at once.
    """
    synced = _Synced()
    CACHE_SYNCED.read_from(synced.sample)
    try:
        async with aclosing(_steps(channel, subscriber, marks)) as steps:
            async for step in steps:
                synced.update(step)
                yield step
    finally:
        CACHE_SYNCED.read_from(None)


class _Synced:
    """Whether the subscriber's state is complete and up to date."""

    def __init__(self) -> None:
        self._current = False

    def update(self, step: Step) -> None:
        if isinstance(step, SnapshotComplete):
            self._current = True
        elif isinstance(step, Disconnected):
            self._current = False

    def sample(self) -> dict[tuple[str, ...], float]:
        return {(): float(self._current)}


async def _steps(channel: aio.Channel, subscriber: str, marks: Marks | None) -> AsyncGenerator[Step, None]:
    backoff = Backoff()
    reported = False
    usable = marks
    while True:
        reason = "cluster-state ended the stream"
        try:
            async with aclosing(_one_stream(channel, subscriber, usable)) as steps:
                async for step in steps:
                    reported = False
                    yield step
                    if isinstance(step, SnapshotComplete):
                        backoff.reset()
        except aio.AioRpcError as error:
            if usable is not None and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                usable = None  # cluster-state is of an earlier version
                continue
            reason = describe(error)
        except OutOfOrder as error:
            reason = str(error)
        if not reported:
            _log.warning("subscription_lost", reason=reason, subscriber=subscriber)
            reported = True
            yield Disconnected(reason)
        usable = marks
        await backoff.pause()


class OutOfOrder(RuntimeError):
    """The stream did not start with a snapshot, or completed one that it had not started."""


async def _one_stream(channel: aio.Channel, subscriber: str, marks: Marks | None) -> AsyncGenerator[Step, None]:
    stub: Any = pb_grpc.ClusterStateServiceStub(channel)
    begun = synced = False
    watch = pb.WatchRequest(subscriber=subscriber)
    call = stub.Watch(watch) if marks is None else stub.Follow(marks.begin(subscriber))
    try:
        async for message in call:
            kind = message.WhichOneof("step")
            if kind == "snapshot_begin":
                begun, synced = True, False
                yield SnapshotBegun(message.snapshot_begin.reason)
            elif kind == "batch":
                if not begun:
                    raise OutOfOrder("cluster-state sent changes before a snapshot")
                yield BatchReceived(decode_batch(message.batch))
            elif kind == "synced":
                if not begun or synced:
                    raise OutOfOrder("cluster-state completed a snapshot that it had not started")
                synced = True
                yield SnapshotComplete(decode_revision(message.synced.through))
            elif kind == "mark":
                yield MarkReached(message.mark)
    finally:
        if marks is not None:
            marks.end()
        call.cancel()
