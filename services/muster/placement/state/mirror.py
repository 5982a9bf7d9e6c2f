"""Mirrors the cluster from the Watch stream; a new snapshot is built separately and replaces the old when complete.

Large changes, and solves, run one after another in a worker thread, so that the event loop is never held.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import Final, NoReturn, TypeVar

import structlog

from muster.gangs.facts import Batch
from muster.placement.state.cluster import Cluster, UnknownClass
from muster.retry.retrying import Backoff
from muster.rpc.subscription import BatchReceived, Disconnected, SnapshotBegun, SnapshotComplete, Step

_LARGE_BATCH: Final = 50
"""Changes. Larger batches are applied in the worker thread; smaller ones take less time than handing them over."""

_log = structlog.get_logger()

_Result = TypeVar("_Result")


class NoCluster(RuntimeError):
    """The mirror is not current: no snapshot has arrived yet, or the connection to cluster-state is lost."""


class RevisionNotReached(RuntimeError):
    """The mirror is older than the requested revision."""


class Worker:
    """One thread. Its Python code lets the event loop run every few milliseconds, and kernels run beside it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")

    async def run(self, work: Callable[[], _Result], abandon: Callable[[], None] | None = None) -> _Result:
        """The result of the work. A caller that is cancelled calls `abandon` and waits until the work has ended, so
        that locks it holds are held as long as the work goes on.
        """
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, partial(copy_context().run, work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if abandon is not None:
                abandon()
            while not future.done():
                try:
                    await asyncio.wait((future,))
                except asyncio.CancelledError:
                    continue
            if not future.cancelled():
                future.exception()  # retrieved: the caller is gone
            raise


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
                            await self._take(step)
                        if self.current != before:
                            on_change(self.current)
                        if isinstance(step, SnapshotComplete):
                            backoff.reset()
            except UnknownClass as error:
                _log.error("subscription_broken", error=str(error))
                self._disconnect(str(error))
                on_change(False)
            await backoff.pause()

    async def _take(self, step: Step) -> None:
        """Apply one step, off the event loop if that takes long. Raises UnknownClass."""
        if isinstance(step, BatchReceived) and _is_large(step.batch):
            await self.worker.run(partial(self._target.apply, step.batch))
            self._report_advance()
        else:
            self.apply_step(step)

    @property
    def _target(self) -> Cluster:
        """The cluster that batches change: the snapshot that is not complete yet, if there is one."""
        target = self._next if self._next is not None else self.cluster
        assert target is not None, "changes before a snapshot"
        return target

    def apply_step(self, step: Step) -> None:
        """Apply one step of the stream. Raises UnknownClass."""
        match step:
            case BatchReceived(batch):
                self._target.apply(batch)
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
        self._report_advance()

    def _report_advance(self) -> None:
        """Wake callers that wait for a revision."""
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


def _is_large(batch: Batch) -> bool:
    """Applying it takes long: many changes, or some whose cost depends on the cluster."""
    by_cluster = batch.trees or batch.removed_trees or batch.selectors or batch.namespaces or batch.removed_namespaces
    changes = len(batch.pods) + len(batch.nodes) + len(batch.pod_classes) + len(batch.label_sets)
    removed = len(batch.removed_pods) + len(batch.removed_nodes) + len(batch.removed_pod_classes)
    return bool(by_cluster) or changes + removed + len(batch.removed_label_sets) > _LARGE_BATCH
