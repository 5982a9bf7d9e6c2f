"""Follows cluster-state: the cluster as it is now, how long pods run that are seen to end, and when gangs are
seen to start.
"""

import asyncio
import time
from collections.abc import AsyncIterable, Callable
from contextlib import suppress
from typing import Final

from muster.forecast import metrics
from muster.forecast.present import CATCH_UP_SECONDS, Followed, Known
from muster.forecast.run_lengths import RunLengths, has_ended_by_itself
from muster.forecast.snapshot import Snapshot
from muster.forecast.start_errors import StartErrors
from muster.gangs.facts import Batch
from muster.rpc import subscription

AWAY: Final = "cluster-state cannot be reached"


class NotFollowing(RuntimeError):
    """The cluster is not known, or not any more."""


class Follower:
    """The cluster of cluster-state's stream, while that is complete and current."""

    def __init__(self) -> None:
        self.lengths = RunLengths()
        self.errors = StartErrors()
        self._followed: Followed | None = None
        self._arrived = asyncio.Event()
        self._last_message = time.monotonic()
        metrics.STREAM_AGE.read_from(self._stream_age)

    async def follow(self, steps: AsyncIterable[subscription.Step], report: Callable[[bool], None]) -> None:
        """Take in the stream without end; `report` gets whether the cluster is complete and current."""
        snapshot: Followed | None = None
        async for step in steps:
            self._last_message = time.monotonic()
            match step:
                case subscription.SnapshotBegun():
                    snapshot = Followed()
                case subscription.BatchReceived(batch):
                    if snapshot is not None:
                        snapshot.take(batch)
                    elif self._followed is not None:
                        self._learn(self._followed, batch)
                        self._followed.take(batch)
                case subscription.SnapshotComplete(through):
                    if snapshot is not None:
                        snapshot.through.update(through)
                        self._followed, snapshot = snapshot, None
                        report(True)
                case subscription.Disconnected():
                    self._followed = snapshot = None
                    report(False)
            self._arrived.set()

    def _stream_age(self) -> dict[tuple[str, ...], float]:
        return {} if self._followed is None else {(): time.monotonic() - self._last_message}

    def _learn(self, followed: Followed, batch: Batch) -> None:
        now, pods = time.time(), followed.cluster.pods
        for pod in batch.pods:
            before = pods.get(pod.uid)
            if before is not None and has_ended_by_itself(before, pod):
                self.lengths.ended(before, now)
            elif pod.seated and before is not None and not before.seated:
                self.errors.started(pod.gang or f"plain/{pod.namespace}/{pod.name}", now)

    async def snapshot(self, known: Known) -> Snapshot:
        """The cluster when it has all that the coordinator knew, or after CATCH_UP_SECONDS. Raises NotFollowing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self._followed is None or not self._followed.has(known):
                    self._arrived.clear()
                    await self._arrived.wait()
        if self._followed is None:
            raise NotFollowing(AWAY)
        return self._followed.snapshot(known)
