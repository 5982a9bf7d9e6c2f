"""A Write call: conditions and events on their way, and the count of what came of them."""

import asyncio
from typing import Final

from muster.binding.v1 import binding_pb2 as pb

_MOST_FAILURES: Final = 10


class WriteCall:
    """Counts until everything that was expected has been settled."""

    def __init__(self) -> None:
        self.response = pb.WriteResponse()
        self._unsettled = 0
        self._failed = 0
        self._all = asyncio.Event()
        self._all.set()

    @property
    def failed(self) -> int:
        """Writes given up, also those that the response has no room for."""
        return self._failed

    def expect(self, writes: int) -> None:
        """So many will be settled."""
        self._unsettled += writes
        if self._unsettled:
            self._all.clear()

    def written(self) -> None:
        """The API server took it, or it was so already."""
        self.response.written += 1
        self._settled()

    def gone(self) -> None:
        """There is nothing to write it to."""
        self.response.gone += 1
        self._settled()

    def failure(self, what: str) -> None:
        """Given up."""
        self._failed += 1
        if len(self.response.failures) < _MOST_FAILURES:
            self.response.failures.append(what)
        self._settled()

    def suppressed(self) -> None:
        """Left out on purpose."""
        self.response.suppressed += 1
        self._settled()

    async def finished(self) -> pb.WriteResponse:
        """When all is settled."""
        await self._all.wait()
        return self.response

    def _settled(self) -> None:
        self._unsettled -= 1
        if not self._unsettled:
            self._all.set()
