"""Retries of failed items with exponential backoff."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 10.0


class Retries(Generic[Item]):
    """Calls `retry` for each failed item after a pause that doubles with each consecutive failure."""

    def __init__(self, retry: Callable[[Item], None]) -> None:
        self._retry = retry
        self._failures: dict[Item, int] = {}
        """Consecutive failures; an entry ends with `forget`."""
        self._timers: dict[Item, asyncio.TimerHandle] = {}

    def failed(self, item: Item) -> int:
        """Note a failure and schedule a retry. Returns the number of consecutive failures."""
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        if item not in self._timers:
            pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 16))
            self._timers[item] = asyncio.get_running_loop().call_later(pause, self._due, item)
        return failures

    def forget(self, item: Item) -> None:
        """Forget the failures: the item has succeeded, or is gone."""
        self._failures.pop(item, None)
        if (timer := self._timers.pop(item, None)) is not None:
            timer.cancel()

    def stop(self) -> None:
        for item in list(self._failures):
            self.forget(item)

    def _due(self, item: Item) -> None:
        del self._timers[item]
        self._retry(item)
