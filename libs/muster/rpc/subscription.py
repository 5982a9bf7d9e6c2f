"""A subscription to cluster-state that survives outages: each is reported once and followed by a new snapshot."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from typing import Final

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

_LOOK_SECONDS: Final = 0.05
"""Interval at which a subscriber without a connection looks whether there is one (see kept_connection)."""

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


Step = SnapshotBegun | BatchReceived | SnapshotComplete | Disconnected


async def subscribe(channel: aio.Channel, subscriber: str) -> AsyncGenerator[Step, None]:
    """The steps of the stream, without end. `subscriber`: name of the subscriber for the logs of cluster-state.

    Close the generator (`contextlib.aclosing`) to end the subscription at once.
    """
    synced = _Synced()
    CACHE_SYNCED.read_from(synced.sample)
    try:
        async with aclosing(_steps(channel, subscriber)) as steps:
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


async def _steps(channel: aio.Channel, subscriber: str) -> AsyncGenerator[Step, None]:
    backoff = Backoff()
    reported = False
    while True:
        reason = "cluster-state ended the stream"
        try:
            async with aclosing(_one_stream(channel, subscriber)) as steps:
                async for step in steps:
                    reported = False
                    yield step
                    if isinstance(step, SnapshotComplete):
                        backoff.reset()
        except aio.AioRpcError as error:
            reason = describe(error)
        except OutOfOrder as error:
            reason = str(error)
        if not reported:
            _log.warning("subscription_lost", reason=reason, subscriber=subscriber)
            reported = True
            yield Disconnected(reason)
        await _pause(channel, backoff.next_seconds())


async def _pause(channel: aio.Channel, seconds: float) -> None:
    """Wait before the next attempt: if there is no connection, only until there is one."""
    deadline = monotonic() + seconds
    refused = channel.get_state() is grpc.ChannelConnectivity.READY
    while (left := deadline - monotonic()) > 0:
        if not refused and channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return
        await asyncio.sleep(left if refused else min(left, _LOOK_SECONDS))


class OutOfOrder(RuntimeError):
    """The stream did not start with a snapshot, or completed one that it had not started."""


async def _one_stream(channel: aio.Channel, subscriber: str) -> AsyncGenerator[Step, None]:
    stub = pb_grpc.ClusterStateServiceStub(channel)
    begun = synced = False
    call = stub.Watch(pb.WatchRequest(subscriber=subscriber))
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
    finally:
        call.cancel()
