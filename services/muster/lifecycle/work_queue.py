"""Work of a controller, by key: what changed is looked at soon, once at a time, and again after failures.

Only the leader works. What happens while another replica leads need not be remembered: once this one leads, it looks at
everything there is.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Final, Generic, TypeVar

import structlog

from muster.kube.responses import ApiStatusError, KubeUnreachable
from muster.lifecycle import metrics
from muster.lifecycle.election import Leadership
from muster.lifecycle.watches import Watches
from muster.retry.retrying import jittered_seconds

K = TypeVar("K")

_RETRY_SECONDS: Final = (0.2, 30.0)

_log = structlog.get_logger(__name__)


class WorkQueue(Generic[K]):
    """Keys that want to be looked at. `look` brings the world in line with what a key stands for.

    `look` returns the seconds after which it wants to look again, or None. It may raise ApiStatusError or
    KubeUnreachable: then it is called again after a pause, ever longer up to half a minute. `everything` are the keys
    that there are. At most `at_once` keys are looked at at the same time, one key never twice.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[K], Awaitable[float | None]],
        everything: Callable[[], Iterable[K]],
        leadership: Leadership,
        watches: Watches,
        *,
        at_once: int = 8,
    ) -> None:
        self._look, self._everything = look, everything
        self._leadership, self._watches = leadership, watches
        self._at_once = at_once
        self._order: deque[K] = deque()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._name = name
        metrics.watch(self)
        self._log = _log.bind(controller=name)

    def add(self, key: K, within_seconds: float = 0.0) -> None:
        """Something about it changed. It is looked at within so long: what changes meanwhile, is seen at once."""
        if within_seconds > 0:
            timer = self._timers.get(key)
            if timer is None or timer.when() > asyncio.get_running_loop().time() + within_seconds:
                self.add_after(key, within_seconds)
        elif self._leadership.leads and key not in self._waiting:
            self._waiting.add(key)
            metrics.ADDS.labels(self._name).add()
            if key not in self._busy:
                self._order.append(key)
                self._wake.set()

    @property
    def name(self) -> str:
        """Of the controller."""
        return self._name

    @property
    def depth(self) -> int:
        """Keys that wait to be looked at."""
        return len(self._waiting)

    def add_after(self, key: K, seconds: float) -> None:
        """Look at it then; sooner if something about it changes, and then not by this call."""
        self._disarm(key)
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._ring, key)

    async def run(self) -> None:
        """Until cancelled: while this replica leads, and has seen all there is."""
        await self._watches.complete.wait()
        while True:
            await self._leadership.gained()
            for key in self._everything():
                self.add(key)
            await self._work_while_leading()
            self._forget_all()

    async def _work_while_leading(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(self._work()) for _ in range(self._at_once)]
            await self._leadership.lost()
            for worker in workers:
                worker.cancel()

    async def _work(self) -> None:
        while True:
            while not self._order:
                self._wake.clear()
                await self._wake.wait()
            key = self._order.popleft()
            self._waiting.discard(key)
            self._disarm(key)
            self._busy.add(key)
            try:
                await self._try(key)
            finally:
                self._busy.discard(key)
                if key in self._waiting:
                    self._order.append(key)
                    self._wake.set()

    async def _try(self, key: K) -> None:
        began = perf_counter()
        try:
            again_after = await self._look(key)
        except (ApiStatusError, KubeUnreachable) as error:
            self._retry(key, error, getattr(error, "retry_after_seconds", None) or 0.0)
        except Exception as error:  # a mistake of ours about one key must not keep the others from being looked at
            self._log.error("failed unexpectedly", key=str(key), exc_info=error)
            self._retry(key, error, 1.0)
        else:
            self._failures.pop(key, None)
            if again_after is not None and key not in self._waiting:
                self.add_after(key, again_after)
        finally:
            metrics.WORK_SECONDS.labels(self._name).observe(perf_counter() - began)

    def _retry(self, key: K, error: Exception, least_seconds: float) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        metrics.RETRIES.labels(self._name).add()
        pause = max(least_seconds, jittered_seconds(_RETRY_SECONDS, failures))
        say = self._log.warning if failures & (failures - 1) == 0 else self._log.debug  # ever less often
        say("failed; tried again", key=str(key), error=str(error), failures=failures, pause_seconds=round(pause, 3))
        self.add_after(key, pause)

    def _ring(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _disarm(self, key: K) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _forget_all(self) -> None:
        for key in list(self._timers):
            self._disarm(key)
        self._order.clear()
        self._waiting.clear()
        self._failures.clear()
