"""The ledger: which capacity of which node is in use, by bound pods and by reservations (kube-scheduler's cache).

Free is what is allocatable, minus pods that cluster-state reports as bound, minus reservations: the seats of members
that were decided here and are not observed as bound yet (kube-scheduler's assumed pods). A pod counts once: its
reservation ends when it is observed (`observe`) or released. No answer of placement is acted on before `refusal` has
accepted it (I3); nominated capacity of other groups counts as used there.

Amounts are arrays, int64[nodes, resources], in `capacity`. Members that placement need not tell apart are of one
kind: their class, and one of their label sets (`kind`). The ledger itself counts by class.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

import numpy as np

from muster.coordinator.core.cache.device_choices import DeviceChoices
from muster.coordinator.core.cache.nodes import EligibleNodes
from muster.coordinator.core.cache.volume_choices import VolumeChoices
from muster.coordinator.core.effects import Rejection, RejectionReason
from muster.coordinator.core.events import ClusterEvent, EventKind, Seat
from muster.gangs.capacity import NOT_OFFERED, Capacity, Int64
from muster.gangs.counted_resources import is_storage_capacity
from muster.gangs.facts import NodeFacts, PodClass, PodFacts, kind_id
from muster.gangs.node_columns import same_but_revision
from muster.gangs.node_filters import filter_reason
from muster.gangs.quantity import MAX_AMOUNT
from muster.gangs.selection import PodSelection
from muster.gangs.solve import Reservation

MAX_PODS_PER_NODE = 2**31
"""More pods of a class on one node do not count: the sum over all nodes stays far from the end of int64."""


class Ledger:
    """Nodes, classes, seated pods and reservations, and which selectors select which label sets.

    Nodes and pods end with their objects, classes after their last pod, reservations when the pod is observed on a node
    or they are released (I5).
    """

    def __init__(self) -> None:
        self.capacity = Capacity()
        self.nodes: dict[str, NodeFacts] = {}
        self.classes: dict[str, PodClass] = {}
        self.eligible = EligibleNodes(self.capacity, self.classes)
        self.selection = PodSelection()
        self.volumes = VolumeChoices()
        self.devices = DeviceChoices()
        self.reserved: dict[str, Seat] = {}
        self.sums = 0
        """How often `max_pods` was computed, which takes 0.1 ms for 5,000 nodes: work of a step is counted in these."""
        self._free_at = -1
        self._free_in_all: dict[str, int] = {}
        """Free amount by resource of the nodes, as of that version of the capacity."""
        self._disturbed: set[str] = set()
        """Names of nodes until `take_disturbed`, which every step calls."""
        self._retired: set[str] = set()
        """Removed classes that were in use, or may be named by an answer under way: until neither is the case."""

    # -- what is seen

    def put_node(self, node: NodeFacts) -> list[ClusterEvent]:
        """Take in a node's newest state. Returns the changes by which it may take pods that it could not."""
        before = self.nodes.get(node.name)
        self.nodes[node.name] = node
        if before is not None and same_but_revision(before, node):
            return []
        self._disturbed.add(node.name)
        self.eligible.put_node(self.capacity.put_node(node), node)
        self.volumes.put_node(node)
        if before is None:
            return [ClusterEvent(EventKind.NODE_ADDED, (node.name,))]
        return list(_improvements(before, node))

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self.nodes.pop(name, None)
        self._disturbed.add(name)
        self.eligible.drop_node(name)
        self.volumes.drop_node(name)
        self.devices.drop_node(name)
        self.capacity.drop_node(name)

    def put_class(self, pod_class: PodClass) -> None:
        """Take in a class. A class never changes, because its id is a hash of its content."""
        self._retired.discard(pod_class.id)
        if pod_class.id not in self.classes:
            self.classes[pod_class.id] = pod_class
            self.capacity.put_class(pod_class)

    @property
    def has_retired_classes(self) -> bool:
        """There are classes to be forgotten with the next batch."""
        return bool(self._retired)

    def retire_classes(self, class_ids: Iterable[str], in_use: Container[str]) -> None:
        """No pod has these classes any more. They are forgotten with the next call, unless they are in use or a
        reservation has them: a solve under way may name them.
        """
        reserved = {seat.class_id for seat in self.reserved.values()}
        forgotten = [class_id for class_id in self._retired if class_id not in reserved and class_id not in in_use]
        for class_id in forgotten:
            del self.classes[class_id]
            self.capacity.drop_class(class_id)
            self.eligible.forget_class(class_id)
        self._retired.difference_update(forgotten)
        self._retired.update(class_id for class_id in class_ids if class_id in self.classes)

    def kind(self, class_id: str, label_set: str) -> str:
        """Id of the kind of pods with a class and a label set."""
        return kind_id(class_id, self.selection.representative(label_set))

    def observe(self, pods: Sequence[PodFacts]) -> tuple[list[str], bool]:
        """Take in pods' newest states: an observed pod counts where it is, whatever was reserved for it. Returns the
        nodes on which capacity became free, and whether a pod was scheduled that inter-pod rules select.
        """
        seated = [pod for pod in pods if pod.seated]
        known, selected = self.capacity.seated_uids(), False
        for pod in seated:
            seat = self.reserved.pop(pod.uid, None)
            if seat is not None and seat.volumes:
                self.volumes.bound(seat)
            if seat is not None and seat.devices:
                self.devices.bound(seat)
            if seat is not None or pod.uid not in known:
                selected = selected or bool(self.selection.representative(pod.label_set))
            if seat is None or seat.node != pod.node:
                self._disturbed.add(pod.node)
        # A seated pod leaves what it had if it was bound elsewhere than decided, or was resized.
        if self.volumes.has_bound_pods or self.devices.has_bound_pods:
            for pod in pods:
                if pod.phase.ended or not pod.node:
                    self.volumes.end_pod(pod.uid)
                    self.devices.end_pod(pod.uid)
        left = self.capacity.seat([(pod.uid, pod.class_id, pod.node, 0) for pod in seated]) if seated else []
        freed = self._free([pod.uid for pod in pods if not pod.seated and pod.uid not in self.reserved])
        return [*left, *freed], selected

    def forget(self, uids: Iterable[str]) -> list[str]:
        """Pods are gone. Returns the nodes on which capacity became free."""
        uids = list(uids)
        for uid in uids:
            self._pop(uid)
        if self.volumes.has_bound_pods or self.devices.has_bound_pods:
            for uid in uids:
                self.volumes.end_pod(uid)
                self.devices.end_pod(uid)
        return self._free(uids)

    @property
    def disturbed(self) -> Collection[str]:
        """Nodes on which capacity changed, until `take_disturbed`."""
        return self._disturbed

    def take_disturbed(self) -> set[str]:
        """Nodes that changed since the last call, took pods that were not expected there, or for whose reservations
        devices were chosen that others got.
        """
        disturbed, self._disturbed = self._disturbed, set()
        if self.devices.take_contested():
            disturbed.update(seat.node for seat in self.reserved.values() if seat.devices)
        return disturbed

    # -- reservations

    def reserve(self, seats: Sequence[Seat]) -> list[str]:
        """Reserve capacity for pods that are decided and not observed as bound. Returns the nodes on which capacity of
        their former reservations became free.
        """
        self._disturbed.update(seat.node for seat in seats if seat.uid in self.reserved)
        self.reserved.update((seat.uid, seat) for seat in seats)
        for seat in seats:
            if seat.volumes:
                self.volumes.take(seat)
            if seat.devices:
                self.devices.take(seat)
        return self.capacity.seat((seat.uid, seat.class_id, seat.node, 0) for seat in seats)

    def release(self, uids: Iterable[str]) -> list[str]:
        """Release reservations; pods that are observed on a node keep their capacity. Returns the nodes on which
        capacity became free.
        """
        return self._free([uid for uid in uids if self._pop(uid) is not None])

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, by node and kind of pods."""
        grouped: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for seat in self.reserved.values():
            grouped[seat.node, self.kind(seat.class_id, seat.label_set)].append(seat.uid)
        return tuple(Reservation(node, kind, tuple(uids)) for (node, kind), uids in grouped.items())

    # -- checks

    def refusal(
        self, demand: Mapping[tuple[str, str], int], nominated: Mapping[str, Int64] | None = None
    ) -> Rejection | None:
        """Why this many pods by (node, class) may not be reserved; None: they may.

        Checks that nodes exist and pass the filters, and that the sum fits in the capacity that is free and not
        nominated. Nominated amounts may be below zero: capacity that becomes free before the pods are bound.
        """
        for node, class_id in demand:
            if node not in self.nodes:
                return Rejection(RejectionReason.UNKNOWN, f"node {node[:253]} does not exist", node)
            if class_id not in self.classes:
                return Rejection(RejectionReason.UNKNOWN, f"pod class {class_id} is not known", node)
            if lacked := self.capacity.lacking(class_id):
                return Rejection(
                    RejectionReason.INSUFFICIENT_CAPACITY, f"no node has {min(lacked)}, which the pods request", node
                )
            if (reason := self.why_unfit(node, class_id)) is not None:
                return Rejection(RejectionReason.FILTERED, f"node {node}: {reason}", node)
        return self._overfull(demand, nominated or {})

    def overcommitted(self, node: str, class_id: str) -> bool:
        """The node is gone, or more of a resource that the class requests is used there than it has.

        Other resources do not count: a seat released for them would be assigned again, for ever. Neither does storage
        capacity, which ends as soon as the volume that was to be provisioned from it exists.
        """
        if node not in self.nodes:
            return True
        row, requested = self.capacity.rows[node], self.capacity.vectors[self.capacity.classes[class_id]]
        over = (self.capacity.used[row] > self.capacity.allocatable[row]) & (requested > 0)
        if not over.any():
            return False
        columns = set(np.flatnonzero(over).tolist())
        exceeded = {name for name, at in self.capacity.resources.items() if at in columns}
        if NOT_OFFERED in exceeded:
            exceeded = (exceeded - {NOT_OFFERED}) | self.capacity.lacking(class_id).keys()
        return any(not is_storage_capacity(name) for name in exceeded)

    def untenable(self, seat: Seat) -> bool:
        """The reservation cannot be kept: its node is gone, overcommitted, or does not pass the filters any more, or
        its devices are lost.
        """
        if self.overcommitted(seat.node, seat.class_id) or self.why_unfit(seat.node, seat.class_id) is not None:
            return True
        return bool(seat.devices) and self.devices.has_lost(seat)

    def could_take(self, node: str, class_id: str) -> bool:
        """The node would take a pod of the class if it were empty."""
        if node not in self.nodes or class_id not in self.classes:
            return False
        return self.eligible.takes(self.capacity.rows[node], class_id)

    def rows_of(self, nodes: Iterable[str]) -> Int64:
        """Rows of those of the nodes that exist, for `could_take_one_of`."""
        return np.array([self.capacity.rows[node] for node in nodes if node in self.nodes], np.int64)

    def could_take_one_of(self, rows: Int64, class_id: str) -> bool:
        """One of the nodes in these rows would take a pod of the class if it were empty."""
        return class_id in self.classes and len(rows) > 0 and bool(self.eligible.of(class_id)[rows].any())

    def max_pods(self, class_id: str) -> int:
        """How many pods of a class would fit if all nodes were empty; nodes that the filters exclude do not count."""
        self.sums += 1
        capacity = self.capacity
        vector = capacity.vectors[capacity.classes[class_id]]
        requested = np.flatnonzero(vector)
        if not len(requested):
            return MAX_AMOUNT
        allocatable = capacity.allocatable[np.flatnonzero(self.eligible.of(class_id))]
        fits = (allocatable[:, requested] // vector[requested]).min(axis=1)
        return int(np.minimum(fits, MAX_PODS_PER_NODE).sum())

    def free_in_all(self, resource: str) -> int:
        """Free amount of a resource on all schedulable nodes together."""
        capacity = self.capacity
        if self._free_at != capacity.version:
            self._free_at = capacity.version
            nodes = self.nodes.values()
            rows = [capacity.rows[node.name] for node in nodes if node.ready and not node.unschedulable]
            free = np.maximum(capacity.allocatable[rows] - capacity.used[rows], 0).sum(axis=0, dtype=np.float64)
            self._free_in_all = {name: int(free[column]) for name, column in capacity.resources.items()}
        return self._free_in_all.get(resource, 0)

    def _overfull(self, demand: Mapping[tuple[str, str], int], nominated: Mapping[str, Int64]) -> Rejection | None:
        if not demand:
            return None
        capacity = self.capacity
        wanted = [capacity.rows[node] for node, _ in demand]
        rows = sorted(set(wanted))
        index_of = {row: index for index, row in enumerate(rows)}
        classes = [capacity.classes[class_id] for _, class_id in demand]
        needed = np.zeros((len(rows), capacity.vectors.shape[1]), np.int64)
        counts = np.fromiter(demand.values(), np.int64)
        np.add.at(needed, [index_of[row] for row in wanted], capacity.vectors[classes] * counts[:, None])
        free = capacity.allocatable[rows] - capacity.used[rows]
        for index, row in enumerate(rows if nominated else ()):
            if (vector := nominated.get(capacity.names[row])) is not None:
                free[index, : len(vector)] -= vector
        over = (needed > free) & (needed > 0)
        if not over.any():
            return None
        row, column = np.argwhere(over)[0]
        resource = next(name for name, index in capacity.resources.items() if index == column)
        node = capacity.names[rows[row]]
        has, needs = max(0, free[row, column]), needed[row, column]
        return Rejection(
            RejectionReason.INSUFFICIENT_CAPACITY, f"node {node} has {has} {resource} free, {needs} would be used", node
        )

    def why_unfit(self, node: str, class_id: str) -> str | None:
        """Which filter excludes the node for pods of the class, however empty it is; None: none does."""
        if self.could_take(node, class_id):
            return None
        return filter_reason(self.classes[class_id], self.nodes[node])

    def _pop(self, uid: str) -> Seat | None:
        """End a reservation; its volumes and devices can be chosen again."""
        seat = self.reserved.pop(uid, None)
        if seat is not None and seat.volumes:
            self.volumes.release(seat)
        if seat is not None and seat.devices:
            self.devices.release(seat.uid)
        return seat

    def _free(self, uids: Iterable[str]) -> list[str]:
        return self.capacity.release(uids)


def _improvements(before: NodeFacts, after: NodeFacts) -> Iterator[ClusterEvent]:
    """Changes of a node by which it may accept pods that it rejected."""
    nodes = (after.name,)
    if before.labels != after.labels:
        keys = {key for key, _ in before.labels.items() ^ after.labels.items()}
        yield ClusterEvent(EventKind.NODE_LABELS_CHANGED, nodes, keys)
    if before.taints != after.taints:
        yield ClusterEvent(EventKind.NODE_TAINTS_CHANGED, nodes)
    if (before.unschedulable and not after.unschedulable) or (after.ready and not before.ready):
        yield ClusterEvent(EventKind.NODE_SCHEDULABLE, nodes)
    had = dict(before.allocatable)
    increased = any(amount > had.get(name, 0) for name, amount in after.allocatable)
    if increased or before.device_backed != after.device_backed:
        yield ClusterEvent(EventKind.NODE_ALLOCATABLE_INCREASED, nodes)
