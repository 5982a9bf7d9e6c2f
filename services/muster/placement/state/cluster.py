"""The mirrored cluster: nodes, capacity, pod classes, selectors and label sets at one revision."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import Batch, NodeFacts, PodClass
from muster.gangs.node_columns import same_but_revision
from muster.gangs.selection import UNKNOWN_ROW, PodSelection
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import NodeTable

_EAGER_PODS: Final = 64
"""Pods. Larger batches are taken over on arrival and not by the next solve, which a caller waits for."""

_RECENT_CLASSES: Final = 4
"""Classes, the most recently used, that are updated with such batches."""


class UnknownClass(RuntimeError):
    """cluster-state referred to a pod class or label set before sending it; only a new snapshot can repair the
    stream.
    """

    def __init__(self, id_: str) -> None:
        super().__init__(f"cluster-state sent a pod of class or label set {id_!r} before that itself")


class Cluster:
    """Nodes, capacity, pod classes, selectors and label sets at `revision`, by kind."""

    def __init__(self, pod_classes: Mapping[str, PodClass] | None = None) -> None:
        """`pod_classes`: classes of the previous snapshot. The coordinator may name one that another replica of
        cluster-state, which has not had pods of it, does not send; such classes are known until the next snapshot.
        """
        # I11: classes end when the stream removes them; those taken over from the previous snapshot end with this one.
        self.pod_classes: dict[str, PodClass] = {}
        self.revision: dict[str, int] = {}
        self.nodes = NodeTable()
        self.capacity = Capacity()
        self.selection = PodSelection()
        self.state = CapacityState(self.capacity, self.nodes, self.pod_classes, self.selection)
        self._previous_classes = dict(pod_classes or {})

    def apply(self, batch: Batch) -> None:
        """Apply a batch.

        Raises UnknownClass, after which the cluster is unusable.
        """
        self.selection.apply(batch)
        self._put_classes(batch.pod_classes)
        if self._previous_classes:
            self.know_classes({pod.class_id for pod in batch.pods})
        if batch.removed_nodes:
            self.nodes.drop(batch.removed_nodes)
            for name in batch.removed_nodes:
                self.capacity.drop_node(name)
        if batch.nodes:
            self._put_nodes(batch.nodes)
        unbound = [pod.uid for pod in batch.pods if not pod.seated]
        unbound.extend(batch.removed_pods)
        self.capacity.release(unbound)
        labels = self.selection.rows
        try:
            self.capacity.seat(
                (pod.uid, pod.class_id, pod.node, labels[pod.label_set] if pod.label_set else UNKNOWN_ROW)
                for pod in batch.pods
                if pod.seated
            )
        except KeyError as error:
            raise UnknownClass(error.args[0]) from None
        self.state.pod_counts.put_pods(batch.pods, unbound)
        self.state.trees.drop(batch.removed_trees)
        self.state.trees.put(batch.trees)
        self._forget(batch)
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

    @property
    def all_classes(self) -> dict[str, PodClass]:
        """The classes of this snapshot and of the previous one."""
        return {**self._previous_classes, **self.pod_classes}

    def know_classes(self, class_ids: Iterable[str]) -> None:
        """Take over those of the classes that only the previous snapshot had."""
        for class_id in class_ids if self._previous_classes else ():
            if class_id not in self.pod_classes and (known := self._previous_classes.get(class_id)) is not None:
                self._put_classes([known])

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
                if unseen:
                    rows[row] = rows.get(row, 0) + unseen
        self.state.reserve_all([(kind, _array(rows.keys()), _array(rows.values())) for kind, rows in counts.items()])

    def _put_classes(self, pod_classes: Iterable[PodClass]) -> None:
        for pod_class in pod_classes:
            if pod_class.id not in self.pod_classes:
                self.pod_classes[pod_class.id] = pod_class
                self.state.pod_counts.put_class(self.capacity.put_class(pod_class), pod_class)

    def _forget(self, batch: Batch) -> None:
        """Forget classes, selectors and label sets that no pod has any more."""
        if batch.removed_pod_classes or batch.removed_label_sets:
            self.state.forget(frozenset(batch.removed_pod_classes), frozenset(batch.removed_label_sets))
        for class_id in batch.removed_pod_classes:
            if self.pod_classes.pop(class_id, None) is not None:
                index = self.capacity.drop_class(class_id)
                assert index is not None, f"class {class_id} has no index"
                self.state.pod_counts.drop_class(index)
        self.selection.forget(batch)

    def _put_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        changed = []
        for node in nodes:
            before = self.nodes.get(node.name)
            if before is None or not same_but_revision(before, node):
                changed.append((self.capacity.put_node(node), node))
        if changed:
            self.nodes.put(changed, rows=len(self.capacity.used))


def _array(numbers: Iterable[int]) -> Int64:
    return np.fromiter(numbers, np.int64)
