"""cluster-state's main path: informers report object changes, the state derives facts, the broadcaster sends them."""

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import structlog
from msgspec.structs import replace

from muster.clusterstate import metrics
from muster.clusterstate.broadcaster import Broadcaster
from muster.clusterstate.creation_failures import CreationFailures
from muster.clusterstate.encodable import NotEncoded
from muster.clusterstate.event_passes import Pace
from muster.clusterstate.settings import Settings
from muster.clusterstate.state import ClusterState
from muster.clusterstate.trees import Trees
from muster.clusterstate.watch import FULL_NAME, WatchServicer, register
from muster.dialects import kueue_workload
from muster.dialects.registry import CONTROLLER_GANG_KINDS
from muster.gangs.facts import Batch
from muster.kube.api_resources import (
    ALL,
    BUDGETS,
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    NAMESPACES,
    NODES,
    RESOURCE_SLICES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    topologies,
)
from muster.kube.informer import Informer, InformerOptions
from muster.kube.line_batches import Spacing
from muster.kube.malformed_objects import MalformedObjects, Reason, Unreadable
from muster.kube.object_changes import ObjectChanges
from muster.kube.session import KubeSession
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer

_log = structlog.get_logger(__name__)

_SWEEP_SECONDS = 30.0
"""A pod class that no pod has had for this long is dropped."""
_SLICES_PER_STEP = 16
_BUDGETS_PER_STEP = 1
_BEFORE_PODS = (
    BUDGETS.kind,
    NAMESPACES.kind,
    CLAIMS.kind,
    VOLUMES.kind,
    STORAGE_CLASSES.kind,
    CSI_NODES.kind,
    CSI_DRIVERS.kind,
    STORAGE_CAPACITIES.kind,
    *CONTROLLER_GANG_KINDS,
)
"""Kinds to list before pods, so that pods need not be computed twice."""
_PACE = InformerOptions(spacing=Spacing(quiet_seconds=0.005, longest_seconds=0.05))
"""Each delivery becomes a message to every subscriber, which costs all of them more than a change in it."""
_REVIEW_SECONDS = 1.0
"""Trees are updated at once after a node change, then not again for this long, because a changed tree is sent whole."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; then end the subscriptions and return.

    Ready once all kinds have been listed. Stays ready if the API server is unreachable later: the state is stale then,
    but complete and consistent. Raises BadKubeconfig, CannotListen, BadCertificates.
    """
    session = await KubeSession.connect(settings.kube)
    service = ClusterStateService(session, settings)
    try:
        await service.start()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(service.follow())
            await until_stopped()
            following.cancel()
    finally:
        await service.stop()
        await session.close()


class ClusterStateService:
    """One replica of cluster-state."""

    def __init__(
        self,
        session: KubeSession,
        settings: Settings,
        pace: InformerOptions = _PACE,
        event_pace: Pace = Pace(),  # noqa: B008 (frozen)
    ) -> None:
        trees = Trees(settings.label_keys, settings.default_tree)
        self.state = ClusterState(settings.scheduler_names, trees, settings.arbitrator_owner_kinds, perf_counter)
        self.broadcaster = Broadcaster(self.state.snapshot, report=self._note_not_encoded)
        self.complete = asyncio.Event()
        """Set once all kinds have been listed and snapshots may be sent."""
        self._watch = WatchServicer(self.broadcaster, self.complete)
        self._server = RpcServer.from_settings(settings, "cluster-state")
        self._server.add(register, self._watch, FULL_NAME)
        unread = () if settings.kueue_workloads else (kueue_workload.DEFINITION.revision_key,)
        nodes = replace(NODES, label_selector=settings.node_selector)
        resources = (nodes, *(each for each in ALL if each is not NODES), topologies(settings.topology_namespace))
        self._informers = {
            resource.kind: Informer(session, resource, self._take_in, _pace_of(resource.kind, pace))
            for resource in resources
            if resource.kind not in unread
        }
        self._failures = CreationFailures(session, self.state, self.broadcaster.publish, event_pace)
        self._malformed: dict[str, MalformedObjects] = {}  # by kind of facts (I11)
        self._stale = asyncio.Event()
        self._work = asyncio.Event()
        metrics.FACTS.read_from(self._facts)

    async def start(self) -> int:
        """Listen; returns the port."""
        return await self._server.start()

    async def stop(self) -> None:
        """Drain and stop listening."""
        await self._server.stop()

    async def follow(self) -> None:
        """Follow the API server until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._advance(), name="compute facts again")
            first = [self._informers[kind] for kind in _BEFORE_PODS]
            await _start(tasks, first)
            await _start(tasks, [each for each in self._informers.values() if each not in first])
            unread = [kind for kind, informer in self._informers.items() if informer.last_response_at is None]
            for _ in self.state.settle(unread):
                await asyncio.sleep(0)  # I12
            _log.info("state_complete", **self.state.sizes())
            self.complete.set()
            self._server.set_ready(True)
            tasks.create_task(self._review(), name="review trees")
            tasks.create_task(self._failures.run(), name="list events")
            while True:
                await asyncio.sleep(_SWEEP_SECONDS)
                self.broadcaster.publish(self.state.sweep())
                self._work.set()

    def _facts(self) -> dict[tuple[str, ...], float]:
        return {(kind,): count for kind, count in self.state.sizes().items()}

    def _take_in(self, changes: ObjectChanges[Any]) -> ObjectChanges[Any] | None:
        """Apply changes; returns those for which the time of a slice did not suffice (I12)."""
        batch, left = self.state.apply(changes)
        if self.state.has_work:
            self._work.set()
        self._publish(batch)
        if self.complete.is_set() and self.state.take_history_restarted():
            self.broadcaster.restart(f"{changes.kind} have a lower revision: was the API server restored?")
        if self.state.trees.stale:
            self._stale.set()
        return left

    def _publish(self, batch: Batch) -> None:
        if self.complete.is_set():
            self.broadcaster.publish(batch)
        else:
            self.broadcaster.note(batch)

    def _note_not_encoded(self, found: Sequence[NotEncoded]) -> None:
        """Count and log what cannot be sent to subscribers; pods that depend on it wait."""
        for each in found:
            malformed = self._malformed.setdefault(each.kind, MalformedObjects(each.kind))
            unreadable = Unreadable(Reason.ENCODING, each.message, each.id, each.namespace, each.name)
            malformed.note(unreadable, effect=each.effect, error=each.error)
        self.state.not_encoded(found)
        if self.state.has_work:
            self._work.set()

    async def _advance(self) -> None:
        """Compute what changes have left, in slices between which other tasks run (I12)."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self.state.has_work:
                batch = self.state.advance()
                self._publish(batch)
                await asyncio.sleep(0)

    async def _review(self) -> None:
        """Update trees after node changes, at intervals."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            self.broadcaster.publish(self.state.review())
            self._work.set()
            await asyncio.sleep(_REVIEW_SECONDS)


def _pace_of(kind: str, pace: InformerOptions) -> InformerOptions:
    """Objects that take long are handled in smaller steps (I12): a ResourceSlice with 128 devices takes 2 ms, and a
    disruption budget that covers 20,000 label sets 40 ms.
    """
    most = {RESOURCE_SLICES.kind: _SLICES_PER_STEP, BUDGETS.kind: _BUDGETS_PER_STEP}.get(kind)
    return pace if most is None else replace(pace, batch_size=min(pace.batch_size, most))


async def _start(tasks: asyncio.TaskGroup, informers: Sequence[Informer[Any]]) -> None:
    """Start informers and wait until all of them have completed their first lists."""
    for informer in informers:
        tasks.create_task(informer.run(), name=f"informer {informer.resource.kind}")
    for informer in informers:
        await informer.complete.wait()
