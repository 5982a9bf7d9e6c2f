"""Work queue of controllers: each item once, in order, in batches."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import structlog

Item = TypeVar("Item", bound=Hashable)

_BATCH_ITEMS: Final = 64  # items between turns of the event loop, so that requests are not delayed

_log: Final = structlog.get_logger(__name__)


class WorkQueue(Generic[Item]):
    """Queue of items for `process`. An item that is already queued is not added again."""

    def __init__(self, process: Callable[[Item], None]) -> None:
        self._process = process
        self._items: dict[Item, None] = {}
        self._wake = asyncio.Event()

    def add(self, item: Item) -> None:
        self._items[item] = None
        self._wake.set()

    async def run(self) -> None:
        """Process items until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._items:
                for item in list(self._items)[:_BATCH_ITEMS]:
                    del self._items[item]
                    try:
                        self._process(item)
                    except Exception:
                        _log.exception("controller_failed", item=item)
                await asyncio.sleep(0)
