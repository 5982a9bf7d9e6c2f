"""Batches the results of a call's pods for the response stream."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Generic, TypeVar

_BATCH_SECONDS: Final = 0.005  # results within this time share a message
_MAX_PER_MESSAGE: Final = 1000

R = TypeVar("R")


class Results(Generic[R]):
    """Results of a call, until every pod has one."""

    def __init__(self, pods: int, ended: Callable[[Mapping[str, int]], None]) -> None:
        """`ended` is called with the number of pods by outcome when every pod has a result."""
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._unsettled = pods
        self._waiting: list[R] = []
        self._some, self._all = asyncio.Event(), asyncio.Event()
        self._outcomes: Counter[str] = Counter()
        self._retries = 0
        self._ended = ended

    @property
    def complete(self) -> bool:
        """Every pod has its result."""
        return not self._unsettled

    def add(self, result: R, outcome: str, attempts: int) -> None:
        """Add a pod's result; `outcome` is its name in logs and metrics."""
        self._waiting.append(result)
        self._outcomes[outcome] += 1
        self._retries += max(0, attempts - 1)
        self._unsettled -= 1
        self._some.set()
        if not self._unsettled:
            self._all.set()
            self._ended(self._outcomes)

    async def batches(self) -> AsyncIterator[list[R]]:
        """All results in batches, as they arrive."""
        while self._unsettled or self._waiting:
            await self._some.wait()
            if self._unsettled:
                try:
                    async with asyncio.timeout(_BATCH_SECONDS):
                        await self._all.wait()
                except TimeoutError:
                    pass
            batch, self._waiting = self._waiting[:_MAX_PER_MESSAGE], self._waiting[_MAX_PER_MESSAGE:]
            if not self._waiting:
                self._some.clear()
            yield batch

    def summary(self) -> dict[str, object]:
        """Retries, seconds and pods by outcome, for the call's log line."""
        seconds = round(self._loop.time() - self._started, 4)
        return {"retries": self._retries, "seconds": seconds, **self._outcomes}
