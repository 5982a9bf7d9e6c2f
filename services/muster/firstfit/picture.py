"""The cluster as cluster-state tells it, in plain dictionaries; a snapshot is built aside until it is whole."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from muster.gangs.facts import Batch, NodeFacts, PodClass, PodFacts
from muster.rpc.subscription import BatchReceived, Disconnected, SnapshotBegun, SnapshotComplete, Step


class Outdated(Exception):
    """What is known is not new enough; `known` says whether anything current is known at all."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


class Picture:
    """Nodes by name, pods that hold room by uid, classes by id, and the revision that all of it has reached."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, PodFacts] = {}
        self.classes: dict[str, PodClass] = {}
        self.revision: dict[str, int] = {}

    def apply(self, batch: Batch) -> None:
        """Take over a batch whole."""
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
        self.advance(batch.through)

    def advance(self, through: Mapping[str, int]) -> None:
        """Everything up to there has been seen."""
        self.revision.update((kind, max(version, self.revision.get(kind, 0))) for kind, version in through.items())

    def behind(self, revision: Mapping[str, int]) -> list[str]:
        """What of the revision has not been reached yet."""
        reached = self.revision
        return [f"{kind} {version}" for kind, version in revision.items() if reached.get(kind, 0) < version]


class Follower:
    """Holds the newest picture that is whole; `current` says that nothing was missed since."""

    def __init__(self) -> None:
        self.picture: Picture | None = None
        self.current = False
        self._building: Picture | None = None
        self._moved = asyncio.Event()

    async def follow(self, steps: AsyncIterator[Step], on_change: Callable[[bool], None]) -> None:
        """Take over steps for ever; `on_change` hears of `current`."""
        async for step in steps:
            self._take(step)
            on_change(self.current)
            self._moved.set()
            self._moved = asyncio.Event()

    def _take(self, step: Step) -> None:
        match step:
            case SnapshotBegun():
                self._building = Picture()
                if self.picture is not None:  # classes never change, and need not be sent twice
                    self._building.classes.update(self.picture.classes)
            case BatchReceived(batch):
                target = self._building or self.picture
                assert target is not None, "changes come after a snapshot has begun"
                target.apply(batch)
            case SnapshotComplete(through):
                assert self._building is not None, "only a snapshot that has begun is completed"
                self._building.advance(through)
                self.picture, self._building, self.current = self._building, None, True
            case Disconnected():
                self._building, self.current = None, False

    async def at(self, revision: Mapping[str, int], timeout_seconds: float) -> Picture:
        """The picture once it is at least so new. Raises Outdated when the time is over."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    if self.picture is not None and self.current and not self.picture.behind(revision):
                        return self.picture
                    await self._moved.wait()
        except TimeoutError:
            if self.picture is None or not self.current:
                raise Outdated("cluster-state is not heard of", known=False) from None
            behind = ", ".join(self.picture.behind(revision))
            raise Outdated(f"the deadline came before cluster-state told of {behind}", known=True) from None
