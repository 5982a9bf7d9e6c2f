"""Reads what the scheduler knows now: the facts of the cluster from cluster-state, and from the leading coordinator the
records, the settings, and what only its memory holds.
"""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import count
from typing import Final, NamedTuple

import grpc
import msgspec
from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as state_grpc
from muster.coordinator.core.events import Record
from muster.coordinator.core.term_state import TermState
from muster.coordinator.v1 import coordinator_pb2_grpc
from muster.coordinator.v1.coordinator_pb2 import RecordsRequest
from muster.forecast.snapshot import Snapshot, decode_record, decode_term_state
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import NODE_REVISIONS, POD_REVISIONS, Batch
from muster.rpc.errors import describe
from muster.rpc.watch_codec import decode_batch, decode_revision

CLUSTER_SECONDS: Final = 120.0
"""Timeout of a snapshot of cluster-state: enough for a million pods."""
RECORDS_SECONDS: Final = 60.0
ATTEMPTS: Final = 6
"""Calls of the coordinator's replicas until one leads: they are called in turn."""
CATCH_UP_SECONDS: Final = 5.0
"""How long to follow the cluster until it is as new as what the coordinator knows."""


class OtherVersion(RuntimeError):
    """What was sent cannot be read by this version of Muster."""


class Unreachable(RuntimeError):
    """A call of a service failed, which is "cluster-state" or "coordinator"."""

    def __init__(self, service: str, error: aio.AioRpcError) -> None:
        super().__init__(f"{service} does not answer: {describe(error)}")
        self.service, self.error = service, error


class Incomplete(RuntimeError):
    """The stream of cluster-state ended too early."""


class Known(NamedTuple):
    """What the leading coordinator knows at a time, besides the cluster."""

    unix_seconds: float
    settings: dict[str, str]
    records: tuple[Record, ...]
    term_state: TermState


async def read_present(cluster_state: aio.Channel, coordinator: aio.Channel, subscriber: str) -> Snapshot:
    """The snapshot. Raises Unreachable, OtherVersion, Incomplete.

    The cluster is followed until it has all that the coordinator had seen.
    """
    call = state_grpc.ClusterStateServiceStub(cluster_state).Watch(
        state_pb.WatchRequest(subscriber=subscriber), timeout=CLUSTER_SECONDS
    )
    try:
        async with aclosing(_followed(call)) as states:
            followed = await anext(states)
            known = await read_known(coordinator)
            until = time.monotonic() + CATCH_UP_SECONDS
            while not followed.has(known) and time.monotonic() < until:
                followed = await anext(states)
    except aio.AioRpcError as error:
        raise Unreachable("cluster-state", error) from error
    except StopAsyncIteration:
        raise Incomplete("cluster-state closed the stream before the snapshot was complete; try again") from None
    finally:
        call.cancel()
    return followed.snapshot(known)


class Followed:
    """The cluster as it was streamed so far. `through`: all changes up to these revisions are in it; `newest`: the
    highest of an object or a change.
    """

    def __init__(self) -> None:
        self.cluster = VirtualCluster()
        self.through: dict[str, int] = {}
        self.newest: dict[str, int] = {}

    def take(self, batch: Batch) -> None:
        """Take in a part of the snapshot, or a change."""
        self.cluster.apply(batch)
        self.through.update(batch.through)
        of_objects = {
            POD_REVISIONS: max((pod.revision for pod in batch.pods), default=0),
            NODE_REVISIONS: max((node.revision for node in batch.nodes), default=0),
        }
        for kind, revision in (*of_objects.items(), *batch.changed.items()):
            self.newest[kind] = max(revision, self.newest.get(kind, 0))

    def has(self, known: Known) -> bool:
        """All that the coordinator had seen is in the cluster."""
        return _reached(self.through, known.term_state.revision)

    def snapshot(self, known: Known) -> Snapshot:
        """Both together. If the cluster is newer than what the coordinator knew, or older, groups that were
        unschedulable are tried once, since what changed in between may help them.
        """
        state = known.term_state
        exact = state.exact and self.has(known) and _reached(state.revision, self.newest)
        return Snapshot(
            known.unix_seconds,
            known.settings,
            known.records,
            self.cluster.whole(),
            state if exact else state.outdated(),
            dict(self.through),
            exact,
        )


async def _followed(
    call: "aio.UnaryStreamCall[state_pb.WatchRequest, state_pb.WatchResponse]",
) -> AsyncGenerator[Followed, None]:
    """The cluster after the snapshot, and after each change."""
    followed, synced = Followed(), False
    async for message in call:
        match message.WhichOneof("step"):
            case "snapshot_begin":
                followed, synced = Followed(), False
            case "batch":
                followed.take(decode_batch(message.batch))
            case "synced":
                synced = True
                followed.through.update(decode_revision(message.synced.through))
        if synced:
            yield followed


def _reached(reached: Mapping[str, int], revision: Mapping[str, int]) -> bool:
    """No kind is lower."""
    return all(reached.get(kind, 0) >= least for kind, least in revision.items())


async def read_known(channel: aio.Channel) -> Known:
    """What the coordinator knows. A channel to several replicas calls each in turn, until the one that leads answers.
    Raises Unreachable, OtherVersion.
    """
    for attempt in count(1):
        try:
            return await _read_known(channel)
        except aio.AioRpcError as error:
            if attempt == ATTEMPTS or error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise Unreachable("coordinator", error) from error
    raise AssertionError


async def _read_known(channel: aio.Channel) -> Known:
    settings, records, term_state = dict[str, str](), list[Record](), bytearray()
    stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    try:
        async for response in stub.Records(RecordsRequest(), timeout=RECORDS_SECONDS):
            settings.update(response.settings)
            records += [decode_record(each) for each in response.records]
            term_state += response.term_state
        state = decode_term_state(bytes(term_state)) if term_state else TermState()  # of an older coordinator
        return Known(time.time(), settings, tuple(records), state)
    except msgspec.DecodeError as error:
        raise OtherVersion(f"the coordinator sent what cannot be read: {error}") from error
