"""What subscribers have to be told next."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from muster.gangs.facts import (
    Batch,
    DisruptionBudget,
    GangFacts,
    NodeFacts,
    PodClass,
    PodFacts,
    TopologyTree,
)

T = TypeVar("T")


class News:
    """The newest facts by uid, name or id (None: it is gone), and the revisions of the changes that brought them."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts | None] = {}
        self.pods: dict[str, PodFacts | None] = {}
        self.budgets: dict[str, DisruptionBudget | None] = {}
        self.trees: dict[str, TopologyTree | None] = {}
        self._changed: dict[str, int] = {}

    def raise_revision(self, kind: str, revision: int) -> None:
        """A change of this kind is among what is told."""
        self._changed[kind] = max(revision, self._changed.get(kind, 0))

    def tell_pods(self, changed: Sequence[PodFacts]) -> bool:
        """Whether there are any."""
        for facts in changed:
            self.pods[facts.uid] = facts
        return bool(changed)

    def batch(
        self, classes: tuple[PodClass, ...], gangs: list[GangFacts], gone: list[str], through: Mapping[str, int]
    ) -> Batch:
        """All of it, so that nothing is left to be told.

        But for revisions that nobody can be asked to have reached: in the midst of a list, what is in it is no point in
        history.
        """
        reached = {kind: revision for kind, revision in self._changed.items() if revision <= through.get(kind, 0)}
        for kind in reached:
            del self._changed[kind]
        nodes, no_nodes = _taken(self.nodes)
        pods, no_pods = _taken(self.pods)
        budgets, no_budgets = _taken(self.budgets)
        trees, no_trees = _taken(self.trees)
        return Batch(
            pod_classes=classes,
            nodes=nodes,
            removed_nodes=no_nodes,
            pods=pods,
            removed_pods=no_pods,
            gangs=tuple(gangs),
            removed_gangs=tuple(gone),
            changed={kind: revision for kind, revision in reached.items() if revision},
            through=dict(through),
            budgets=budgets,
            removed_budgets=no_budgets,
            trees=trees,
            removed_trees=no_trees,
        )


def _taken(facts: dict[str, T | None]) -> tuple[tuple[T, ...], tuple[str, ...]]:
    """What is there, and the names of what is not; both are forgotten."""
    if not facts:
        return (), ()
    there = tuple([each for each in facts.values() if each is not None])
    gone = tuple([name for name, each in facts.items() if each is None])
    facts.clear()
    return there, gone
