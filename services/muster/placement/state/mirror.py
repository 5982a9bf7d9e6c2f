"""Keeps the cluster up to date from the Watch stream; a new snapshot is built aside and takes over when complete."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import NoReturn

import structlog

from muster.placement.state.cluster import Cluster, UnknownClass
from muster.retry.retrying import Backoff
from muster.rpc.subscription import Changes, Disconnected, SnapshotBegun, SnapshotComplete, Step

_log = structlog.get_logger()


class NoCluster(RuntimeError):
    """Nothing current is known: cluster-state was never heard, or is lost."""


class RevisionNotReached(RuntimeError):
    """What is known is older than what was asked for."""


class Mirror:
    """The cluster as last heard of. `lock` is held by who reads or changes it over a point where others may run."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.cluster: Cluster | None = None
        """What was complete last; it may be out of date while `current` is false."""
        self._next: Cluster | None = None
        self._lost = "no snapshot of cluster-state has come yet"
        self._moved = asyncio.Event()

    @property
    def current(self) -> bool:
        """The stream is alive and its snapshot complete."""
        return not self._lost

    async def follow(
        self, subscribe: Callable[[], AsyncGenerator[Step, None]], on_change: Callable[[bool], None]
    ) -> None:
        """Follow the stream until cancelled; `on_change` hears when what is known becomes current or stops being so."""
        backoff = Backoff()
        while True:
            try:
                async with aclosing(subscribe()) as steps:
                    async for step in steps:
                        before = self.current
                        async with self.lock:
                            self.take(step)
                        if self.current != before:
                            on_change(self.current)
                        if isinstance(step, SnapshotComplete):
                            backoff.reset()
                            _spare_the_collector()
            except UnknownClass as error:
                _log.error("stream is broken, asking for a new snapshot", error=str(error))
                self._lose(str(error))
                on_change(False)
            await backoff.pause()

    def take(self, step: Step) -> None:
        """Take over one step of the stream. Raises UnknownClass."""
        match step:
            case Changes(batch):
                target = self._next if self._next is not None else self.cluster
                assert target is not None, "changes before a snapshot"
                target.apply(batch)
            case SnapshotBegun(reason):
                _log.info("snapshot begins", reason=reason)
                known = self._next if self._next is not None else self.cluster
                self._next = Cluster(known.pod_classes if known is not None else None)
            case SnapshotComplete(through):
                assert self._next is not None, "a snapshot ended that never began"
                self._next.advance(through)
                self.cluster, self._next, self._lost = self._next, None, ""
                _log.info("snapshot complete", nodes=len(self.cluster.nodes), pods=self.cluster.capacity.seats)
            case Disconnected(reason):
                self._lose(f"cluster-state is lost: {reason}")
        self._moved.set()
        self._moved = asyncio.Event()

    async def reached(self, revision: Mapping[str, int], timeout_seconds: float) -> Cluster:
        """The cluster, current and at least as new as the revision; waits for it up to the timeout.

        Raises NoCluster and RevisionNotReached.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    cluster = self.cluster
                    if cluster is not None and self.current and cluster.reached(revision):
                        return cluster
                    await self._moved.wait()
        except TimeoutError:
            self._refuse(revision)

    def _refuse(self, revision: Mapping[str, int]) -> NoReturn:
        if self.cluster is None or not self.current:
            raise NoCluster(self._lost)
        have = self.cluster.revision
        behind = ", ".join(
            f"{kind} {version} (reached: {have.get(kind, 0)})"
            for kind, version in sorted(revision.items())
            if have.get(kind, 0) < version
        )
        raise RevisionNotReached(f"the deadline came before cluster-state told of {behind}")

    def _lose(self, reason: str) -> None:
        self._next, self._lost = None, reason


def _spare_the_collector() -> None:
    """A snapshot stays for long: to look for cycles in it again and again would stop solves, for 0.1 s each time."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
