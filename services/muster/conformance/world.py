"""What the implementation under test has been told: the state by which its answers are judged."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TypeVar

from muster.gangs.facts import Batch, NodeFacts, PodClass, PodFacts, TopologyTree

T = TypeVar("T")

_PIECES = 3
"""A snapshot comes in so many batches of nodes and of pods: nothing may depend on where it is cut."""


class World:
    """Nodes by name, pods by uid, classes by id, trees by name; what the stream told and nothing else."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, PodFacts] = {}
        self.classes: dict[str, PodClass] = {}
        self.trees: dict[str, TopologyTree] = {}
        self.revision: dict[str, int] = {}

    def apply(self, batch: Batch) -> None:
        """Change it as the batch says."""
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
        """Pods that hold room."""
        return (pod for pod in self.pods.values() if pod.seated)

    def batches(self, order: Random | None) -> Iterator[Batch]:
        """The state as the batches of a snapshot: classes before pods, else in any order."""
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
