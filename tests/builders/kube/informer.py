"""An informer with quick retries, and a record of what it delivers."""

import asyncio
from collections.abc import Callable
from typing import Any

import yaml

from builders.wait import WAIT_SECONDS
from muster.kube.informer import Informer, InformerOptions
from muster.kube.object_changes import ObjectChanges, Removed

QUICK = InformerOptions(
    page_size=3,
    batch_size=4,
    list_timeout_seconds=5,
    watch_seconds=(100, 100),
    idle_seconds=60,
    min_watch_seconds=0.05,
    retry_seconds=(0.001, 0.01),
    unavailable_seconds=(0.001, 0.01),
)


class Sink:
    """Records deliveries of an informer, and the resulting state of the cluster.

    `most`: changes that it takes in at a time; it returns the others.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.batches: list[ObjectChanges[Any]] = []
        self.names: dict[str, str] = {}
        self.through = 0
        self.ready: Callable[[], bool] = lambda: True
        """Until it is true, nothing is taken in."""

    def __call__(self, changes: ObjectChanges[Any]) -> ObjectChanges[Any] | None:
        if not self.ready():
            return changes
        left = None
        if self.most is not None and len(changes.items) > self.most:
            left = ObjectChanges(changes.kind, changes.items[self.most :], changes.through)
            changes = ObjectChanges(changes.kind, changes.items[: self.most])
        self.batches.append(changes)
        for item in changes.items:
            if isinstance(item, Removed):
                del self.names[item.uid]
            else:
                self.names[item.metadata.uid] = item.metadata.name
        self.through = changes.through or self.through
        return left

    @property
    def pods(self) -> list[str]:
        return sorted(self.names.values())

    @property
    def objects(self) -> list[str]:
        return [item.metadata.name for batch in self.batches for item in batch.items if not isinstance(item, Removed)]

    @property
    def items(self) -> list[Any]:
        return [item for batch in self.batches for item in batch.items if not isinstance(item, Removed)]

    @property
    def changes(self) -> int:
        return sum(len(batch.items) for batch in self.batches)


def kubeconfig(url: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {}}],
            "current-context": "test",
        }
    )


async def complete(informer: Informer[Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        await informer.complete.wait()
