"""Current state of a local cluster for display: gangs, processes, notices. Background tasks write it, views read it."""

import asyncio
import time
from collections import deque

import grpc

from muster.cli.gangs import apply_step
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.coordinator.v1.coordinator_pb2 import Gang
from muster.localcluster.stack import Stack
from muster.rpc.channel import open_channel

_MAX_NOTICES = 5
_RECONNECT_SECONDS = 0.5
_PROBE_SECONDS = 1.0


class ClusterView:
    """State with a version that changes on every update."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}
        self.serving: dict[str, bool] = {}
        """Process name -> outcome of its last readiness probe."""
        self.notices: deque[str] = deque(maxlen=_MAX_NOTICES)
        self.ready = False
        """All processes have started."""
        self.gangs_changed_at = time.monotonic()
        self.source: object = None
        """The stream of gangs that was complete last. Others are of former leaders, which may not know that yet."""
        self.version = 0
        self._changed = asyncio.Event()

    def notice(self, text: str) -> None:
        """Add a line for the user."""
        self.notices.append(text)
        self.touch()

    def apply(self, step: coordinator_pb2.WatchResponse) -> None:
        """Apply a step of the coordinator's Watch."""
        apply_step(self.gangs, step)
        self.gangs_changed_at = time.monotonic()
        self.touch()

    def touch(self) -> None:
        """Announce a change."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer_than(self, version: int) -> int:
        """Wait for a version after the given one; returns the current one."""
        while self.version <= version:
            await self._changed.wait()
        return self.version


async def probe_processes(stack: Stack, view: ClusterView) -> None:
    """Probe every process once a second, until cancelled."""
    while True:
        names = list(stack.children)
        answers = await asyncio.gather(*(stack.serving(name) for name in names))
        if (serving := dict(zip(names, answers, strict=True))) != view.serving:
            view.serving = serving
            view.touch()
        await asyncio.sleep(_PROBE_SECONDS)


async def watch_gangs(address: str, view: ClusterView) -> None:
    """Keep the gangs current until cancelled, across restarts of the coordinator."""
    channel = open_channel(address, PLAIN_TEXT)
    stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    try:
        while True:
            listed: set[str] | None = set()
            try:
                async for step in (stream := stub.Watch(coordinator_pb2.WatchRequest())):
                    if listed is None and view.source is not stream:
                        continue
                    view.apply(step)
                    if listed is not None:
                        listed.update(gang.id for gang in step.gangs)
                        if step.synced:
                            _remove_unlisted(view, listed)
                            listed, view.source = None, stream
            except grpc.aio.AioRpcError:
                pass  # it is restarting, or does not lead yet; the views show which process is down
            await asyncio.sleep(_RECONNECT_SECONDS)
    finally:
        await channel.close()


def _remove_unlisted(view: ClusterView, listed: set[str]) -> None:
    """Remove gangs that disappeared while the stream was broken."""
    for removed in view.gangs.keys() - listed:
        del view.gangs[removed]
