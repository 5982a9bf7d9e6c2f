"""A Write call: conditions and events on their way, and the count of what came of them."""

import asyncio
from typing import Final

from muster.binding.pipeline import Job
from muster.binding.retry_policy import DONE, Verdict
from muster.binding.v1 import binding_pb2 as pb
from muster.kube.session import KubeSession

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


class WriteJob(Job):
    """A job that the call counts, once; what it is about is its own business."""

    __slots__ = ("_call", "_session")

    def __init__(self, call: WriteCall, session: KubeSession) -> None:
        super().__init__()
        self._call, self._session = call, session

    def _written(self) -> Verdict:
        self._call.written()
        return DONE

    def _gone(self) -> Verdict:
        self._call.gone()
        return DONE

    def _refused(self, why: str) -> Verdict:
        self.give_up(why)
        return DONE
