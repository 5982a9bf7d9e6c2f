"""The work queue of a controller: reconciles changed keys, one worker per key at a time, with retries after failures.

Namespaces take turns: however many keys of one have changed, a key of another is among the next, after those in
progress and one of each namespace that waits.

Only the leader reconciles. Changes while another replica leads need not be remembered: on becoming the leader, a
replica reconciles all keys.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from time import perf_counter
from typing import Final, Generic, TypeVar

import structlog

from muster.kube.responses import ApiStatusError, KubeUnreachable
from muster.lifecycle import metrics
from muster.lifecycle.election import Leadership
from muster.lifecycle.informers import SharedInformers
from muster.queues.fair_queue import FairQueue
from muster.retry.retrying import jittered_seconds

K = TypeVar("K", bound=Hashable)

_RETRY_SECONDS: Final = (0.2, 30.0)

_log = structlog.get_logger(__name__)


class WorkQueue(Generic[K]):
    """A queue of keys to reconcile.

    `reconcile` returns the seconds after which the key is reconciled again, or None. If it raises ApiStatusError or
    KubeUnreachable, it is retried with exponential backoff up to 30 s. `all_keys` returns the existing keys, and
    `namespace_of` the namespace of one. At most `workers` keys are reconciled concurrently, and never the same key
    twice.

    A queued key is there once, until it is reconciled; a timer until it fires; a count of failures until the key
    succeeds, as that of an object that is gone does. All end with leadership (I11).
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        all_keys: Callable[[], Iterable[K]],
        leadership: Leadership,
        informers: SharedInformers,
        *,
        namespace_of: Callable[[K], str],
        workers: int = 8,
    ) -> None:
        self._reconcile, self._all_keys = reconcile, all_keys
        self._leadership, self._informers = leadership, informers
        self._namespace_of = namespace_of
        self._workers = workers
        self._order: FairQueue[K, None] = FairQueue()
        self._queued: set[K] = set()
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._name = name
        metrics.watch(self)
        self._log = _log.bind(controller=name)

    def add(self, key: K, within_seconds: float = 0.0) -> None:
        """Queues a key, within the given time: further changes in that time are reconciled together."""
        if within_seconds > 0:
            timer = self._timers.get(key)
            if timer is None or timer.when() > asyncio.get_running_loop().time() + within_seconds:
                self.add_after(key, within_seconds)
        elif self._leadership.leads and key not in self._queued:
            self._queued.add(key)
            metrics.ADDS.labels(self._name).add()
            if key not in self._busy:
                self._append(key)

    @property
    def name(self) -> str:
        """The controller's name."""
        return self._name

    @property
    def depth(self) -> int:
        """The number of queued keys."""
        return len(self._queued)

    def add_after(self, key: K, seconds: float) -> None:
        """Queues a key after a delay, unless it is queued sooner."""
        self._cancel_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._timer_fired, key)

    async def run(self) -> None:
        """Reconciles until cancelled, while this replica leads and the informers have synced."""
        await self._informers.synced.wait()
        while True:
            await self._leadership.until_leading()
            for key in self._all_keys():
                self.add(key)
            await self._work_while_leading()
            self._clear()

    async def _work_while_leading(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(self._work_loop()) for _ in range(self._workers)]
            await self._leadership.until_lost()
            for worker in workers:
                worker.cancel()

    async def _work_loop(self) -> None:
        while True:
            while not self._order:
                self._wake.clear()
                await self._wake.wait()
            [entry] = self._order.take(1)
            key = entry.key
            self._queued.discard(key)
            self._cancel_timer(key)
            self._busy.add(key)
            try:
                await self._process(key)
            finally:
                self._busy.discard(key)
                if key in self._queued:
                    self._append(key)

    def _append(self, key: K) -> None:
        self._order.put(self._namespace_of(key), key, None)
        self._wake.set()

    async def _process(self, key: K) -> None:
        began = perf_counter()
        try:
            requeue_seconds = await self._reconcile(key)
        except (ApiStatusError, KubeUnreachable) as error:
            self._retry(key, error, getattr(error, "retry_after_seconds", None) or 0.0)
        except Exception as error:  # a bug that one key triggers must not stop the others
            self._log.error("reconcile_crashed", key=str(key), exc_info=error)
            self._retry(key, error, 1.0)
        else:
            self._failures.pop(key, None)
            if requeue_seconds is not None and key not in self._queued:
                self.add_after(key, requeue_seconds)
        finally:
            metrics.WORK_SECONDS.labels(self._name).observe(perf_counter() - began)

    def _retry(self, key: K, error: Exception, min_seconds: float) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        metrics.RETRIES.labels(self._name).add()
        pause = max(min_seconds, jittered_seconds(_RETRY_SECONDS, failures))
        log = self._log.warning if failures & (failures - 1) == 0 else self._log.debug  # 1st, 2nd, 4th, 8th ...
        log("reconcile_failed", key=str(key), error=str(error), failures=failures, pause_seconds=round(pause, 3))
        self.add_after(key, pause)

    def _timer_fired(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _clear(self) -> None:
        for key in list(self._timers):
            self._cancel_timer(key)
        self._order.clear()
        self._queued.clear()
        self._failures.clear()
