"""Work that controllers have noted and do later: each item once, in order, a slice at a time."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

Item = TypeVar("Item", bound=Hashable)

_AT_ONCE: Final = 64  # items between turns of the event loop, so that requests do not wait for a sweep

_log: Final = structlog.get_logger(__name__)


class WorkQueue(Generic[Item]):
    """Items that wait for `process`. An item that is added while it waits is done once."""

    def __init__(self, process: Callable[[Item], None]) -> None:
        self._process = process
        self._items: dict[Item, None] = {}
        self._wake = asyncio.Event()

    def add(self, item: Item) -> None:
        self._items[item] = None
        self._wake.set()

    async def run(self) -> None:
        """Work for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._items:
                for item in list(self._items)[:_AT_ONCE]:
                    del self._items[item]
                    try:
                        self._process(item)
                    except Exception:
                        _log.exception("controller failed", item=item)
                await asyncio.sleep(0)
