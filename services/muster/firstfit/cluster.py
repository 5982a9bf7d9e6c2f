"""The state of the cluster from the cluster-state stream, in plain dictionaries."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from msgspec.structs import replace

from muster.gangs.facts import Batch, NodeFacts, PodClass, PodFacts, split_kind
from muster.gangs.selection import PodSelection
from muster.rpc.subscription import BatchReceived, Disconnected, SnapshotBegun, SnapshotComplete, Step


class Outdated(Exception):
    """The state is older than requested; `known` says whether there is a current state at all."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


class Cluster:
    """Nodes by name, pods that hold capacity by uid, classes by id, selectors, label sets, and the revision reached."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, PodFacts] = {}
        self.classes: dict[str, PodClass] = {}
        self.selection = PodSelection()
        self.revision: dict[str, int] = {}

    def kind(self, kind: str) -> PodClass:
        """The class of a kind of pods, with their label set. Raises KeyError for an unknown class."""
        class_id, label_set = split_kind(kind)
        return replace(self.classes[class_id], id=kind, label_set=label_set)

    def apply(self, batch: Batch) -> None:
        self.selection.apply(batch)
        self.classes.update((pod_class.id, pod_class) for pod_class in batch.pod_classes)
        self.nodes.update((node.name, node) for node in batch.nodes)
        for name in batch.removed_nodes:
            self.nodes.pop(name, None)
        for pod in batch.pods:
            if pod.seated:
                self.pods[pod.uid] = pod
            else:
                self.pods.pop(pod.uid, None)
        for uid in batch.removed_pods:
            self.pods.pop(uid, None)
        for class_id in batch.removed_pod_classes:
            self.classes.pop(class_id, None)
        self.selection.forget(batch)
        self.advance(batch.through)

    def advance(self, through: Mapping[str, int]) -> None:
        """Everything up to these versions has been applied."""
        self.revision.update((kind, max(version, self.revision.get(kind, 0))) for kind, version in through.items())

    def missing(self, revision: Mapping[str, int]) -> list[str]:
        """Kinds and versions of the revision that have not been reached."""
        reached = self.revision
        return [f"{kind} {version}" for kind, version in revision.items() if reached.get(kind, 0) < version]


class Follower:
    """Holds the newest complete state; snapshots are built aside until complete. `current`: nothing was missed."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.current = False
        self._building: Cluster | None = None
        self._changed = asyncio.Event()

    async def follow(self, steps: AsyncIterator[Step], on_change: Callable[[bool], None]) -> None:
        """Apply steps until cancelled; `on_change` receives `current`."""
        async for step in steps:
            self._apply(step)
            on_change(self.current)
            self._changed.set()
            self._changed = asyncio.Event()

    def _apply(self, step: Step) -> None:
        match step:
            case SnapshotBegun():
                self._building = Cluster()
            case BatchReceived(batch):
                target = self._building or self.cluster
                assert target is not None, "changes before the first snapshot"
                target.apply(batch)
            case SnapshotComplete(through):
                assert self._building is not None, "completion of a snapshot that has not begun"
                self._building.advance(through)
                self.cluster, self._building, self.current = self._building, None, True
            case Disconnected():
                self._building, self.current = None, False

    async def at(self, revision: Mapping[str, int], timeout_seconds: float) -> Cluster:
        """The state once it has reached the revision. Raises Outdated after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    if self.cluster is not None and self.current and not self.cluster.missing(revision):
                        return self.cluster
                    await self._changed.wait()
        except TimeoutError:
            if self.cluster is None or not self.current:
                raise Outdated("not connected to cluster-state", known=False) from None
            missing = ", ".join(self.cluster.missing(revision))
            raise Outdated(f"cluster-state did not reach {missing} before the deadline", known=True) from None
