"""Facts by kind and key, kept up to date with batches."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from muster.gangs.facts import (
    Batch,
    DeviceObject,
    DisruptionBudget,
    GangFacts,
    NodeFacts,
    PodClass,
    PodFacts,
    StaticClaim,
    StaticVolume,
    TopologyTree,
)
from muster.gangs.selectors import LabelSet, NamespaceFacts, PodSelector

_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "nodes": ("removed_nodes", lambda facts: facts.name),
    "pods": ("removed_pods", lambda facts: facts.uid),
    "pod_classes": ("removed_pod_classes", lambda facts: facts.id),
    "gangs": ("removed_gangs", lambda facts: facts.id),
    "selectors": ("removed_selectors", lambda facts: facts.id),
    "label_sets": ("removed_label_sets", lambda facts: facts.id),
    "namespaces": ("removed_namespaces", lambda facts: facts.name),
    "budgets": ("removed_budgets", lambda facts: facts.id),
    "trees": ("removed_trees", lambda facts: facts.name),
    "static_volumes": ("removed_static_volumes", lambda facts: facts.name),
    "static_claims": ("removed_static_claims", lambda facts: facts.id),
}
"""Field of a batch, and of the store: the field with the keys of removed facts, and the key of a fact."""


class FactsStore:
    """The newest facts of all batches that were put in, without their revisions. An entry ends when it is removed."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, PodFacts] = {}
        self.pod_classes: dict[str, PodClass] = {}
        self.gangs: dict[str, GangFacts] = {}
        self.selectors: dict[str, PodSelector] = {}
        self.label_sets: dict[str, LabelSet] = {}
        self.namespaces: dict[str, NamespaceFacts] = {}
        self.budgets: dict[str, DisruptionBudget] = {}
        self.trees: dict[str, TopologyTree] = {}
        self.static_volumes: dict[str, StaticVolume] = {}
        self.static_claims: dict[str, StaticClaim] = {}
        self.device_objects: dict[tuple[int, str], DeviceObject] = {}

    def put(self, batch: Batch) -> None:
        """Take in a delta, or a snapshot into an empty store."""
        for field, (removed, key) in _FIELDS.items():
            facts: dict[str, Any] = getattr(self, field)
            for gone in getattr(batch, removed):
                facts.pop(gone, None)
            facts.update((key(each), each) for each in getattr(batch, field))
        for each in batch.device_objects:
            if each.content:
                self.device_objects[each.kind, each.name] = each
            else:
                self.device_objects.pop((each.kind, each.name), None)

    def snapshot(self, changed: Mapping[str, int], through: Mapping[str, int]) -> Batch:
        """All facts, with these revisions."""
        return Batch(
            **{field: tuple(getattr(self, field).values()) for field in _FIELDS},
            device_objects=tuple(self.device_objects.values()),
            changed=dict(changed),
            through=dict(through),
        )
