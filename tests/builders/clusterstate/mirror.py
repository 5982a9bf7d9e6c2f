"""A subscriber of cluster-state that mirrors the state and checks the contract."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from builders.wait import WAIT_SECONDS
from muster.gangs.facts import DisruptionBudget, GangFacts, NodeFacts, PodClass, PodFacts, TopologyTree
from muster.gangs.selection import PodSelection
from muster.rpc.channel import open_channel
from muster.rpc.subscription import BatchReceived, Disconnected, SnapshotBegun, SnapshotComplete, subscribe


class Mirror:
    """Facts by uid, name and id."""

    def __init__(self) -> None:
        self.pods: dict[str, PodFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.gangs: dict[str, GangFacts] = {}
        self.classes: dict[str, PodClass] = {}
        self.budgets: dict[str, DisruptionBudget] = {}
        self.trees: dict[str, TopologyTree] = {}
        self.selection = PodSelection()
        self.through: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        self.snapshots = 0
        self.disconnected = 0
        self._synced = False
        self._changed_event = asyncio.Event()
        self._broken: AssertionError | None = None

    async def follow(self, port: int) -> None:
        """Follow the stream until cancelled."""
        try:
            async with (
                open_channel(f"127.0.0.1:{port}") as channel,
                aclosing(subscribe(channel, "mirror")) as steps,
            ):
                async for step in steps:
                    self._take(step)
                    self._changed_event.set()
        except AssertionError as broken:
            self._broken = broken
            self._changed_event.set()

    async def until(self, condition: Callable[[], object], *, seconds: float = 20) -> None:
        """Wait until the condition holds for a complete state."""
        try:
            async with asyncio.timeout(seconds):
                while not (self._synced and condition()):
                    await self._step()
        except TimeoutError:
            raise AssertionError(f"pods {self.names}, gangs {list(self.gangs)}, {self.through}") from None

    async def until_disconnected(self) -> None:
        """Wait until the subscription has failed at least once."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.disconnected:
                await self._step()

    async def _step(self) -> None:
        if self._broken is not None:
            raise self._broken
        self._changed_event.clear()
        await self._changed_event.wait()

    @property
    def names(self) -> dict[str, PodFacts]:
        """Pods by "namespace/name"; the newest one if an old one is terminating."""
        return {f"{pod.namespace}/{pod.name}": pod for pod in sorted(self.pods.values(), key=lambda pod: pod.revision)}

    def _take(self, step: SnapshotBegun | BatchReceived | SnapshotComplete | Disconnected) -> None:
        match step:
            case SnapshotBegun():
                self._synced = False
                self.pods, self.nodes, self.gangs, self.classes, self.budgets = {}, {}, {}, {}, {}
                self.trees, self.selection = {}, PodSelection()
            case SnapshotComplete(through=through):
                self.snapshots += 1
                self._synced, self.through = True, through
            case Disconnected():
                self.disconnected += 1
            case BatchReceived(batch=batch):
                self.classes.update((each.id, each) for each in batch.pod_classes)
                self.nodes.update((node.name, node) for node in batch.nodes)
                self.gangs.update((gang.id, gang) for gang in batch.gangs)
                self.budgets.update((budget.id, budget) for budget in batch.budgets)
                self.trees.update((tree.name, tree) for tree in batch.trees)
                self.selection.apply(batch)
                for pod in batch.pods:
                    assert pod.class_id in self.classes, "classes come before the pods that name them"
                    assert not pod.label_set or pod.label_set in self.selection.rows, (
                        "label sets come before the pods that name them"
                    )
                    self.pods[pod.uid] = pod
                for name in batch.removed_nodes:
                    self.nodes.pop(name, None)
                for uid in batch.removed_pods:
                    self.pods.pop(uid, None)
                for id_ in batch.removed_gangs:
                    self.gangs.pop(id_, None)
                for id_ in batch.removed_budgets:
                    self.budgets.pop(id_, None)
                for name in batch.removed_trees:
                    self.trees.pop(name, None)
                for id_ in batch.removed_pod_classes:
                    self.classes.pop(id_, None)
                self.selection.forget(batch)
                if self._synced:
                    assert all(batch.through[kind] >= revision for kind, revision in batch.changed.items())
                    assert all(batch.through.get(kind, 0) >= revision for kind, revision in self.through.items())
                    self.through = batch.through
                    self.changed.update(batch.changed)


@asynccontextmanager
async def mirroring(port: int) -> AsyncIterator[Mirror]:
    """A mirror of the cluster-state at a port of this machine."""
    mirror = Mirror()
    task = asyncio.create_task(mirror.follow(port))
    try:
        yield mirror
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
