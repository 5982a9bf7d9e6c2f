"""Collects the facts that changed since the last batch."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from muster.clusterstate.label_sets import LabelSets
from muster.clusterstate.pod_classes import Classes
from muster.gangs.facts import (
    Batch,
    DeviceObject,
    DeviceObjectKind,
    DisruptionBudget,
    GangFacts,
    NodeFacts,
    PodFacts,
    StaticClaim,
    StaticVolume,
    TopologyTree,
)
from muster.gangs.selectors import NamespaceFacts

T = TypeVar("T")


class PendingBatch:
    """The newest facts by uid, name or id (None: removed), and the revisions of the changes that caused them.

    Facts are taken with each batch, revisions once the kind has reached them (I11).
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts | None] = {}
        self.pods: dict[str, PodFacts | None] = {}
        self.budgets: dict[str, DisruptionBudget | None] = {}
        self.trees: dict[str, TopologyTree | None] = {}
        self.namespaces: dict[str, NamespaceFacts | None] = {}
        self.static_volumes: dict[str, StaticVolume | None] = {}
        self.static_claims: dict[str, StaticClaim | None] = {}
        self.device_objects: dict[tuple[DeviceObjectKind, str], DeviceObject] = {}
        self._changed: dict[str, int] = {}

    def raise_revision(self, kind: str, revision: int) -> None:
        """Note that the batch contains a change of this kind."""
        self._changed[kind] = max(revision, self._changed.get(kind, 0))

    def lower_revision(self, kind: str, through: int) -> None:
        """Forget changes of this kind that are newer than its restored history."""
        if self._changed.get(kind, 0) > through:
            self._changed[kind] = through

    def add_pods(self, changed: Sequence[PodFacts]) -> bool:
        """Add pods; returns whether there are any."""
        for facts in changed:
            self.pods[facts.uid] = facts
        return bool(changed)

    def take(
        self,
        gangs: list[GangFacts],
        removed_gangs: list[str],
        through: Mapping[str, int],
        classes: Classes,
        label_sets: LabelSets,
    ) -> Batch:
        """The batch of all that was collected, here and as changes of classes and label sets; nothing is left there.

        Only revisions that are not yet in `through` stay: in the middle of a list, the objects read so far are no
        state that the cluster ever had, so that no subscriber may wait for it.
        """
        reached = {kind: revision for kind, revision in self._changed.items() if revision <= through.get(kind, 0)}
        for kind in reached:
            del self._changed[kind]
        nodes, removed_nodes = _taken(self.nodes)
        pods, removed_pods = _taken(self.pods)
        budgets, removed_budgets = _taken(self.budgets)
        trees, removed_trees = _taken(self.trees)
        pod_classes, removed_pod_classes = _taken(classes.changed)
        selectors, removed_selectors = _taken(classes.changed_selectors)
        changed_sets, removed_label_sets = _taken(label_sets.changed)
        namespaces, removed_namespaces = _taken(self.namespaces)
        static_volumes, removed_static_volumes = _taken(self.static_volumes)
        static_claims, removed_static_claims = _taken(self.static_claims)
        device_objects = tuple(self.device_objects.values())
        self.device_objects.clear()
        return Batch(
            pod_classes=pod_classes,
            nodes=nodes,
            removed_nodes=removed_nodes,
            pods=pods,
            removed_pods=removed_pods,
            gangs=tuple(gangs),
            removed_gangs=tuple(removed_gangs),
            changed={kind: revision for kind, revision in reached.items() if revision},
            through=dict(through),
            budgets=budgets,
            removed_budgets=removed_budgets,
            trees=trees,
            removed_trees=removed_trees,
            removed_pod_classes=removed_pod_classes,
            selectors=selectors,
            removed_selectors=removed_selectors,
            label_sets=changed_sets,
            removed_label_sets=removed_label_sets,
            namespaces=namespaces,
            removed_namespaces=removed_namespaces,
            static_volumes=static_volumes,
            removed_static_volumes=removed_static_volumes,
            static_claims=static_claims,
            removed_static_claims=removed_static_claims,
            device_objects=device_objects,
        )


def _taken(facts: dict[str, T | None]) -> tuple[tuple[T, ...], tuple[str, ...]]:
    """Facts that exist and names of removed ones; both are cleared."""
    if not facts:
        return (), ()
    existing = tuple([each for each in facts.values() if each is not None])
    removed = tuple([name for name, each in facts.items() if each is None])
    facts.clear()
    return existing, removed
