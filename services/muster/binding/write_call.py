"""A Write call: counts the outcomes of its conditions, annotations, objects and events."""

import asyncio
from abc import abstractmethod
from typing import Final

from muster.binding.pipeline import Job
from muster.binding.retry_policy import DONE, WriteOutcome, unreachable_outcome
from muster.binding.v1 import binding_pb2 as pb
from muster.kube.responses import KubeUnreachable
from muster.kube.session import KubeSession

_MAX_FAILURE_MESSAGES: Final = 10


class WriteCall:
    """Counts settled writes until all expected ones are settled."""

    def __init__(self) -> None:
        self.response = pb.WriteResponse()
        self._unsettled = 0
        self._failed = 0
        self._all = asyncio.Event()
        self._all.set()

    @property
    def failed(self) -> int:
        """Number of failed writes; the response has the messages of the first few."""
        return self._failed

    def expect(self, writes: int) -> None:
        """Add to the number of writes to wait for."""
        self._unsettled += writes
        if self._unsettled:
            self._all.clear()

    def written(self) -> None:
        """Count a write that the API server accepted, or that would have changed nothing."""
        self.response.written += 1
        self._settled()

    def gone(self) -> None:
        """Count a write whose object does not exist any more."""
        self.response.gone += 1
        self._settled()

    def failure(self, message: str) -> None:
        """Count a failed write."""
        self._failed += 1
        if len(self.response.failures) < _MAX_FAILURE_MESSAGES:
            self.response.failures.append(message)
        self._settled()

    def suppressed(self) -> None:
        """Count an event suppressed by the rate limit."""
        self.response.suppressed += 1
        self._settled()

    async def finished(self) -> pb.WriteResponse:
        """Wait until all writes are settled."""
        await self._all.wait()
        return self.response

    def _settled(self) -> None:
        self._unsettled -= 1
        if not self._unsettled:
            self._all.set()


class WriteJob(Job):
    """Base of the jobs of a Write call, each counted once by the call."""

    __slots__ = ("_call", "_session")

    def __init__(self, call: WriteCall, session: KubeSession) -> None:
        super().__init__()
        self._call, self._session = call, session

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        try:
            return await self._attempt(timeout_seconds)
        except KubeUnreachable as error:
            return unreachable_outcome(error)

    @abstractmethod
    async def _attempt(self, timeout_seconds: float) -> WriteOutcome:
        """Write once. Raises KubeUnreachable."""

    def _written(self) -> WriteOutcome:
        self._call.written()
        return DONE

    def _gone(self) -> WriteOutcome:
        self._call.gone()
        return DONE

    def _refused(self, reason: str) -> WriteOutcome:
        self.give_up(reason)
        return DONE
