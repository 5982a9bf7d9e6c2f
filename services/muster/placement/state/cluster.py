"""The cluster that a solve works on: one snapshot with the deltas since."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import Batch, NodeFacts, PodClass
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import NodeTable, same_for_placement

_EAGER_PODS: Final = 64
"""Pods. Larger batches are taken over on arrival and not by the next solve, which a caller waits for."""

_RECENT_CLASSES: Final = 4
"""Classes, the most recently used, that are updated with such batches."""


class UnknownClass(RuntimeError):
    """cluster-state referred to a pod class before sending it; only a new snapshot can repair the stream."""

    def __init__(self, class_id: str) -> None:
        super().__init__(f"cluster-state sent pods of class {class_id!r} before the class itself")


class Cluster:
    """Nodes, capacity and pod classes at `revision`, by kind."""

    def __init__(self, pod_classes: Mapping[str, PodClass] | None = None) -> None:
        """`pod_classes`: classes of the previous snapshot, which the stream may not repeat."""
        self.pod_classes: dict[str, PodClass] = {}
        self.revision: dict[str, int] = {}
        self.nodes = NodeTable()
        self.capacity = Capacity()
        self.state = CapacityState(self.capacity, self.nodes, self.pod_classes)
        self._put_classes((pod_classes or {}).values())

    def apply(self, batch: Batch) -> None:
        """Apply a batch.

        Raises UnknownClass, after which the cluster is unusable.
        """
        self._put_classes(batch.pod_classes)
        if batch.removed_nodes:
            self.nodes.drop(batch.removed_nodes)
            for name in batch.removed_nodes:
                self.capacity.drop_node(name)
        if batch.nodes:
            self._put_nodes(batch.nodes)
        unbound = [pod.uid for pod in batch.pods if not pod.seated]
        unbound.extend(batch.removed_pods)
        self.capacity.release(unbound)
        try:
            self.capacity.seat((pod.uid, pod.class_id, pod.node) for pod in batch.pods if pod.seated)
        except KeyError as error:
            raise UnknownClass(error.args[0]) from None
        self.state.pod_counts.put_pods(batch.pods, unbound)
        self.state.trees.drop(batch.removed_trees)
        self.state.trees.put(batch.trees)
        if len(batch.pods) > _EAGER_PODS:
            self.state.refresh()
            self.state.update_recent(_RECENT_CLASSES)
        self.advance(batch.through)

    def advance(self, through: Mapping[str, int]) -> None:
        """Raise the revision to `through`."""
        for kind, version in through.items():
            if version > self.revision.get(kind, 0):
                self.revision[kind] = version

    def reached(self, revision: Mapping[str, int]) -> bool:
        """The cluster is at least as new as the revision."""
        return all(self.revision.get(kind, 0) >= version for kind, version in revision.items())

    def reserve(self, reservations: Iterable[tuple[str, str, tuple[str, ...]]]) -> None:
        """Reserve capacity for (node, class, uids) already decided; a pod already bound to a node is counted once,
        there.

        Unknown nodes are skipped. Raises KeyError for an unknown class.
        """
        counts: dict[str, dict[int, int]] = {}
        for node, class_id, uids in reservations:
            rows = counts.setdefault(class_id, {})
            row = self.nodes.row(node)
            if row is not None:
                unseen = sum(self.capacity.seated_on(uid) is None for uid in uids)
                rows[row] = rows.get(row, 0) + unseen
        for class_id, rows in counts.items():
            of_class = self.state.of(class_id)
            if rows:
                self.state.reserve_unchecked(of_class, _array(rows.keys()), _array(rows.values()))

    def _put_classes(self, pod_classes: Iterable[PodClass]) -> None:
        for pod_class in pod_classes:
            if pod_class.id not in self.pod_classes:
                self.pod_classes[pod_class.id] = pod_class
                self.state.pod_counts.put_class(self.capacity.put_class(pod_class), pod_class)

    def _put_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        changed = []
        for node in nodes:
            before = self.nodes.get(node.name)
            if before is None or not same_for_placement(before, node):
                changed.append((self.capacity.put_node(node), node))
        if changed:
            self.nodes.put(changed, rows=len(self.capacity.used))


def _array(numbers: Iterable[int]) -> Int64:
    return np.fromiter(numbers, np.int64)
