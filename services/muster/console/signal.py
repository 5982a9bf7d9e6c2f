"""A number that rises with every change, for any number of tasks that wait for the next one."""

import asyncio


class Signal:
    """Version of a state."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = asyncio.Event()

    def touch(self) -> None:
        """Announce a change."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer_than(self, version: int, timeout_seconds: float) -> None:
        """Return when there is a later version, or after the timeout."""
        if self.version > version:
            return
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
