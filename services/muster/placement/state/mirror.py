"""Mirrors the cluster from the Watch stream; a new snapshot is built separately and replaces the old when complete."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Final, NoReturn

import numpy as np
import structlog

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import Batch, NodeFacts, PodClass
from muster.gangs.selection import UNKNOWN_ROW, PodSelection
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import NodeTable, same_for_placement
from muster.placement.worker import Worker
from muster.retry.retrying import Backoff
from muster.rpc.subscription import BatchReceived, Disconnected, SnapshotBegun, SnapshotComplete, Step

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
            if before is None or not same_for_placement(before, node):
                changed.append((self.capacity.put_node(node), node))
        if changed:
            self.nodes.put(changed, rows=len(self.capacity.used))


def _array(numbers: Iterable[int]) -> Int64:
    return np.fromiter(numbers, np.int64)


_log = structlog.get_logger()


class NoCluster(RuntimeError):
    """There is no current mirror: no snapshot has arrived yet, or the connection to cluster-state is lost."""


class RevisionNotReached(RuntimeError):
    """The mirror is older than the requested revision."""


class Mirror:
    """The latest cluster. Hold `lock` to read or change the cluster across an await."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.worker = Worker()
        self.cluster: Cluster | None = None
        """The last complete snapshot with its deltas; stale while `current` is false."""
        self._next: Cluster | None = None
        self._lost = "no snapshot from cluster-state has arrived yet"
        self._advanced = asyncio.Event()

    @property
    def current(self) -> bool:
        """The stream is connected and its snapshot complete."""
        return not self._lost

    async def follow(
        self, subscribe: Callable[[], AsyncGenerator[Step, None]], on_change: Callable[[bool], None]
    ) -> None:
        """Follow the stream until cancelled; `on_change` is called when `current` changes."""
        backoff = Backoff()
        while True:
            try:
                async with aclosing(subscribe()) as steps:
                    async for step in steps:
                        before = self.current
                        async with self.lock:
                            self.apply_step(step)
                        if self.current != before:
                            on_change(self.current)
                        if isinstance(step, SnapshotComplete):
                            backoff.reset()
                            _freeze_snapshot()
            except UnknownClass as error:
                _log.error("subscription_broken", error=str(error))
                self._disconnect(str(error))
                on_change(False)
            await backoff.pause()

    def apply_step(self, step: Step) -> None:
        """Apply one step of the stream. Raises UnknownClass."""
        match step:
            case BatchReceived(batch):
                target = self._next if self._next is not None else self.cluster
                assert target is not None, "changes before a snapshot"
                target.apply(batch)
            case SnapshotBegun(reason):
                _log.info("snapshot_started", reason=reason)
                previous = self._next.all_classes if self._next is not None else {}
                self._next = Cluster(previous or (self.cluster.pod_classes if self.cluster is not None else None))
            case SnapshotComplete(through):
                assert self._next is not None, "snapshot completed before it started"
                self._next.advance(through)
                self.cluster, self._next, self._lost = self._next, None, ""
                _log.info("snapshot_completed", nodes=len(self.cluster.nodes), pods=self.cluster.capacity.seats)
            case Disconnected(reason):
                self._disconnect(f"connection to cluster-state lost: {reason}")
        self._advanced.set()
        self._advanced = asyncio.Event()

    async def reached(self, revision: Mapping[str, int], timeout_seconds: float) -> Cluster:
        """The cluster, current and at least as new as the revision; waits up to the timeout.

        Raises NoCluster and RevisionNotReached.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    cluster = self.cluster
                    if cluster is not None and self.current and cluster.reached(revision):
                        return cluster
                    await self._advanced.wait()
        except TimeoutError:
            self._raise_not_reached(revision)

    def _raise_not_reached(self, revision: Mapping[str, int]) -> NoReturn:
        if self.cluster is None or not self.current:
            raise NoCluster(self._lost)
        have = self.cluster.revision
        behind = ", ".join(
            f"{kind} {version} (reached: {have.get(kind, 0)})"
            for kind, version in sorted(revision.items())
            if have.get(kind, 0) < version
        )
        raise RevisionNotReached(f"deadline exceeded before cluster-state sent {behind}")

    def _disconnect(self, reason: str) -> None:
        self._next, self._lost = None, reason


def _freeze_snapshot() -> None:
    """Exclude the snapshot from cyclic garbage collection, which would pause solves for 0.1 s each time."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
