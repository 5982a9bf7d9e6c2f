"""The console's state of a cluster without its server, for `muster top`."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from msgspec import Struct

from muster.console.coordinator import CoordinatorClient
from muster.console.follow import follow_cluster, follow_gangs, follow_leader, follow_records
from muster.console.gangs import PENDING, QUEUED
from muster.console.pages import overview
from muster.console.signal import Signal
from muster.console.state import State
from muster.coordinator.v1.coordinator_pb2 import Gang
from muster.rpc.subscription import subscribe

_LOOK_SECONDS: Final = 0.2
"""Pause between looks: records that are read need not change a row."""

__all__ = ["Followed", "following"]


class Followed(Struct, frozen=True):
    """The state of a cluster, which is kept up to date."""

    state: State
    signal: Signal

    @property
    def complete(self) -> bool:
        """Both services have sent all that there is, and the nodes are added up."""
        state = self.state
        connected = all(source.connected for source in state.sources.values())
        added_up = state.totals.nodes == len(state.cluster.nodes) and not state.cluster.changed_nodes
        return connected and state.records_read and bool(state.leader) and added_up

    @property
    def missing(self) -> list[str]:
        """Services that have not sent all that there is, with the cause."""
        sources = self.state.sources.values()
        return [f"{source.name}: {source.detail}" for source in sources if not source.connected]

    @property
    def failing(self) -> bool:
        """A service cannot be followed, rather than that it is still sending what there is."""
        return any(not source.connected and source.since_seconds for source in self.state.sources.values())

    def overview(self) -> dict[str, Any]:
        """As on the console's first page."""
        return overview(self.state, None, int(time.time()))

    def pending(self) -> list[Gang]:
        """Gangs that have not started: those in the queue first, in its order."""
        gangs = [gang for id_ in self.state.gangs.ids() if (gang := self.state.gangs.get(id_)) is not None]
        return sorted(
            (gang for gang in gangs if gang.phase in PENDING),
            key=lambda gang: (
                gang.phase not in QUEUED,
                -gang.priority,
                gang.created_seconds,
                gang.namespace,
                gang.name,
            ),
        )

    async def until_complete(self) -> None:
        """Return once the state is complete; has no deadline of its own."""
        while not self.complete:
            await self.signal.newer_than(self.signal.version, _LOOK_SECONDS)


@contextlib.asynccontextmanager
async def following(cluster_state: grpc.aio.Channel, coordinator: grpc.aio.Channel) -> AsyncIterator[Followed]:
    """Follow a cluster during the block."""
    signal = Signal()
    state, client = State(signal.touch), CoordinatorClient(coordinator)
    tasks = [
        asyncio.create_task(work)
        for work in (
            follow_cluster(state, lambda: subscribe(cluster_state, "muster top"), lambda: None),
            follow_gangs(state, client),
            follow_leader(state, client),
            follow_records(state, client, lambda: True),
        )
    ]
    try:
        yield Followed(state, signal)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
