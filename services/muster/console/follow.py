"""Keeps the state up to date: follows the streams of cluster-state and the coordinator, and reads the records."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import structlog
from grpc import aio

from muster.console.cluster import Cluster
from muster.console.coordinator import CoordinatorClient, NoAnswer, UnknownGang
from muster.console.forecast import ForecastClient, NoForecast, start_row
from muster.console.records import HeldSeat
from muster.console.state import Forecast, State
from muster.coordinator.v1.coordinator_pb2 import WatchRequest
from muster.retry.retrying import Backoff
from muster.rpc.errors import describe
from muster.rpc.expected_starts import assumption
from muster.rpc.subscription import BatchReceived, Disconnected, SnapshotBegun, SnapshotComplete, Step

COORDINATOR, CLUSTER_STATE = "coordinator", "cluster-state"

_RENDER_SECONDS: Final = 0.1
"""Changes within this time are rendered together."""
_LOOK_SECONDS: Final = 0.5
_LEADER_SECONDS: Final = 5.0
_RECORDS_SECONDS: Final = 0.2
"""Preemptions take seconds, so a record of one is read before it is over."""
_UNCHANGED_RECORDS_SECONDS: Final = 30.0
_RECORDS_SHARE: Final = 0.05
"""Share of time for which the coordinator may be asked for records: they have all gangs."""
_STARTS_SECONDS: Final = 15.0
"""Least time between questions for expected starts."""
_UNCHANGED_STARTS_SECONDS: Final = 60.0
"""Time after which expected starts are asked for again although no gang has changed: pods end, and time passes."""
_STARTS_SHARE: Final = 0.2
"""Share of time for which the service forecast may be asked for them: each answer plays the whole cluster."""
_MAX_HOLDING: Final = 100
"""Gangs that hold reservations without a permit, of which the nodes are shown."""
_GANGS_AT_A_TIME: Final = 200

_log = structlog.get_logger()


async def follow_cluster(
    state: State, steps: Callable[[], AsyncGenerator[Step, None]], on_synced: Callable[[], None]
) -> None:
    """Apply the steps of the stream until cancelled. `on_synced` is called after every complete snapshot."""
    cluster = Cluster()
    renderer = _Renderer(state)
    async with asyncio.TaskGroup() as tasks, aclosing(steps()) as stream:
        rendering = tasks.create_task(renderer.run())
        try:
            async for step in stream:
                match step:
                    case SnapshotBegun():
                        cluster = Cluster()
                    case BatchReceived(batch):
                        cluster.apply(batch)
                        if cluster is state.cluster:
                            renderer.changed.set()
                    case SnapshotComplete():
                        state.replace_cluster(cluster)
                        renderer.changed.set()
                        state.connect(CLUSTER_STATE, connected=True, detail="", now_seconds=int(time.time()))
                        on_synced()
                    case Disconnected(reason):
                        state.connect(CLUSTER_STATE, connected=False, detail=reason, now_seconds=int(time.time()))
        finally:
            rendering.cancel()


class _Renderer:
    """Renders what has changed, some rows at a time, so that the loop is never held for long (I12)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.changed = asyncio.Event()

    async def run(self) -> None:
        while True:
            await self._state_changed()
            for _ in self._state.render():
                await asyncio.sleep(0)
            await asyncio.sleep(_RENDER_SECONDS)

    async def _state_changed(self) -> None:
        """Nodes also change with the records, which are read at intervals."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self.changed.wait()
        except TimeoutError:
            pass
        self.changed.clear()


async def follow_gangs(state: State, client: CoordinatorClient) -> None:
    """Watch the gangs, and again after each end of the stream, until cancelled."""
    backoff = Backoff()
    while True:
        reason = "the coordinator ended the stream"
        listed: set[str] | None = set()
        stream = client.stub.Watch(WatchRequest())
        try:
            async for message in stream:
                for number, gang in enumerate(message.gangs, start=1):
                    state.gangs.put(gang, _now_millis(), live=listed is None)
                    if listed is not None:
                        listed.add(gang.id)
                    if number % _GANGS_AT_A_TIME == 0:
                        await asyncio.sleep(0)
                for removed in message.removed:
                    state.gangs.remove(removed)
                if message.synced and listed is not None:
                    state.gangs.keep_only(listed)
                    listed = None
                    backoff.reset()
                    state.connect(COORDINATOR, connected=True, detail="", now_seconds=int(time.time()))
        except aio.AioRpcError as error:
            reason = describe(error)
        finally:
            stream.cancel()
        if state.sources[COORDINATOR].connected:
            _log.warning("coordinator_lost", reason=reason)
        state.connect(COORDINATOR, connected=False, detail=reason, now_seconds=int(time.time()))
        await backoff.pause()


async def follow_leader(state: State, client: CoordinatorClient) -> None:
    """Ask who leads, until cancelled."""
    while True:
        try:
            state.lead(await client.leader())
        except NoAnswer:
            state.lead("")
        await asyncio.sleep(_LEADER_SECONDS)


async def follow_records(state: State, client: CoordinatorClient, wanted: Callable[[], bool]) -> None:
    """Read the records after changes of gangs, while somebody looks, until cancelled."""
    loop = asyncio.get_running_loop()
    version, read_at, pause = -1, float("-inf"), _RECORDS_SECONDS
    while True:
        unchanged = version == state.gangs.feed.version and loop.time() - read_at < _UNCHANGED_RECORDS_SECONDS
        if wanted() and not unchanged:
            version, read_at = state.gangs.feed.version, loop.time()
            try:
                records = await client.records()
                held = await _held(state, client)
            except NoAnswer as error:
                _log.debug("records_not_read", reason=str(error))
            else:
                state.use_records(records, held, int(time.time()))
            pause = max(_RECORDS_SECONDS, (loop.time() - read_at) / _RECORDS_SHARE)
        await asyncio.sleep(pause)


async def follow_starts(state: State, client: ForecastClient, wanted: Callable[[], bool]) -> None:
    """Ask for the expected starts while somebody looks, after gangs have changed and each minute, until cancelled."""
    loop = asyncio.get_running_loop()
    version, asked_at, pause = -1, float("-inf"), _LOOK_SECONDS
    while True:
        unchanged = version == state.gangs.feed.version and loop.time() - asked_at < _UNCHANGED_STARTS_SECONDS
        if wanted() and not unchanged:
            asked_at = loop.time()
            version = state.gangs.feed.version
            try:
                answer = await client.starts()
            except NoForecast as error:
                version = -1
                state.miss_starts(str(error))
            else:
                now = answer.basis.read_unix_millis // 1000
                rows = {each.gang: start_row(each) for each in answer.gangs}
                state.use_starts(rows, Forecast(assumption(answer), "", now))
            pause = max(_STARTS_SECONDS, (loop.time() - asked_at) / _STARTS_SHARE)
        await asyncio.sleep(pause)
        pause = _LOOK_SECONDS


async def _held(state: State, client: CoordinatorClient) -> list[HeldSeat]:
    """Pods that hold reservations without a permit. Raises NoAnswer."""
    held: list[HeldSeat] = []
    for gang in state.gangs.holding[:_MAX_HOLDING]:
        try:
            answer = await client.explain(gang)
        except UnknownGang:
            continue
        held += [
            HeldSeat(member.reserved_node, pod.class_id, pod.namespace)
            for member in answer.members
            if member.reserved_node and (pod := state.cluster.pod_named(member.pod)) is not None
        ]
    return held


def _now_millis() -> int:
    return time.time_ns() // 1_000_000
