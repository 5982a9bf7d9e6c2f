"""A virtual cluster: facts that only change by what is played on it.

Like cluster-state it counts revisions: every change raises that of all kinds, and `whole` is a snapshot.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from muster.gangs.facts import (
    NODE_REVISIONS,
    POD_REVISIONS,
    TREE_REVISIONS,
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

_KINDS: Final = (NODE_REVISIONS, POD_REVISIONS, TREE_REVISIONS)
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
"""Field of a batch, and of this cluster: the field with the keys of removed facts, and the key of a fact."""


class VirtualCluster:
    """Facts by kind and key. Their number is bounded by what the creator puts in, and by `apply`."""

    def __init__(self, revision: int = 0) -> None:
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
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        """Uids of the pods of each gang that has any."""
        self.revision = revision

    @property
    def through(self) -> dict[str, int]:
        """The revisions that it has reached, by kind."""
        return dict.fromkeys(_KINDS, self.revision)

    def apply(self, batch: Batch) -> Batch:
        """Change the facts. Returns the batch with the revisions that the change has here."""
        self._index(batch)
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
        self.revision += 1
        return replace(batch, changed=self.through, through=self.through)

    def _index(self, batch: Batch) -> None:
        for uid in batch.removed_pods:
            self._leave(uid)
        for pod in batch.pods:
            self._leave(pod.uid)
            if pod.gang:
                self.members[pod.gang].add(pod.uid)

    def _leave(self, uid: str) -> None:
        before = self.pods.get(uid)
        if before is None or not before.gang:
            return
        self.members[before.gang].discard(uid)
        if not self.members[before.gang]:
            del self.members[before.gang]

    def whole(self) -> Batch:
        """A snapshot."""
        return Batch(
            **{field: tuple(getattr(self, field).values()) for field in _FIELDS},
            device_objects=tuple(self.device_objects.values()),
            changed=self.through,
            through=self.through,
        )
