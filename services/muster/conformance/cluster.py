"""The cluster that the implementation under test has been shown; its answers are checked against it."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

from muster.gangs.facts import Batch, NodeFacts, PodClass, PodFacts, TopologyTree

T = TypeVar("T")

_PIECES = 3
"""Batches of nodes and of pods per snapshot; answers must not depend on the boundaries."""


class Cluster:
    """Nodes by name, pods by uid, classes by id, trees by name."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, PodFacts] = {}
        self.classes: dict[str, PodClass] = {}
        self.trees: dict[str, TopologyTree] = {}
        self.revision: dict[str, int] = {}

    def apply(self, batch: Batch) -> None:
        self.classes.update((each.id, each) for each in batch.pod_classes)
        self.nodes.update((each.name, each) for each in batch.nodes)
        self.pods.update((each.uid, each) for each in batch.pods)
        self.trees.update((each.name, each) for each in batch.trees)
        for name in batch.removed_nodes:
            self.nodes.pop(name, None)
        for uid in batch.removed_pods:
            self.pods.pop(uid, None)
        for name in batch.removed_trees:
            self.trees.pop(name, None)
        self.revision.update(batch.through)

    def seated(self) -> Iterator[PodFacts]:
        """Pods that hold capacity."""
        return (pod for pod in self.pods.values() if pod.seated)

    def batches(self, order: Random | None) -> Iterator[Batch]:
        """The batches of a snapshot: classes before pods, everything else shuffled by `order` if given."""
        yield Batch(pod_classes=_shuffled(self.classes.values(), order))
        for trees in _cut(_shuffled(self.trees.values(), order), 1):
            yield Batch(trees=trees)
        for nodes in _cut(_shuffled(self.nodes.values(), order), _PIECES):
            yield Batch(nodes=nodes)
        for pods in _cut(_shuffled(self.pods.values(), order), _PIECES):
            yield Batch(pods=pods)


def _shuffled(facts: Iterable[T], order: Random | None) -> tuple[T, ...]:
    listed = list(facts)
    if order is not None:
        order.shuffle(listed)
    return tuple(listed)


def _cut(facts: Sequence[T], pieces: int) -> Iterator[tuple[T, ...]]:
    size = max(1, -(-len(facts) // pieces))
    for start in range(0, len(facts), size):
        yield tuple(facts[start : start + size])
