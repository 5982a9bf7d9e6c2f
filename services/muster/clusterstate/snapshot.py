"""The whole state at one moment, to be sent piece by piece while the state goes on changing."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from muster.gangs.facts import Batch, DisruptionBudget, GangFacts, NodeFacts, PodClass, PodFacts, TopologyTree

T = TypeVar("T")

PIECE: Final = 1000
"""Objects per message: encoding one takes a few milliseconds, during which nothing else happens."""


class Snapshot(Struct, frozen=True):
    """References to facts, which never change themselves. `through`: everything up to here is in it."""

    pod_classes: Sequence[PodClass]
    nodes: Sequence[NodeFacts]
    gangs: Sequence[GangFacts]
    pods: Sequence[PodFacts]
    through: dict[str, int]
    budgets: Sequence[DisruptionBudget] = ()
    trees: Sequence[TopologyTree] = ()

    def __len__(self) -> int:
        """Number of objects."""
        parts = (self.pod_classes, self.nodes, self.gangs, self.pods, self.budgets, self.trees)
        return sum(map(len, parts))

    def pieces(self) -> Iterator[Batch]:
        """Batches that make up the state: classes before the pods that name them.

        Revisions are left out: they hold only for the whole.
        """
        for classes in _cut(self.pod_classes):
            yield Batch(pod_classes=classes)
        for nodes in _cut(self.nodes):
            yield Batch(nodes=nodes)
        for tree in self.trees:  # large by itself
            yield Batch(trees=(tree,))
        for gangs in _cut(self.gangs):
            yield Batch(gangs=gangs)
        for budgets in _cut(self.budgets):
            yield Batch(budgets=budgets)
        for pods in _cut(self.pods):
            yield Batch(pods=pods)


def _cut(facts: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(facts), PIECE):
        yield tuple(facts[start : start + PIECE])
