"""Fencing: once a later leader has called, earlier ones are refused, and their running calls send nothing more.

What was seen is kept in memory. After a restart the first caller sets the mark anew; a leader that was deposed before
and calls first is bounded by what it had made durable while it led.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import structlog

from muster.rpc.errors import RpcError

_log = structlog.get_logger()


class Epochs:
    """Knows the highest leader epoch seen, and which calls run."""

    def __init__(self) -> None:
        self._highest = 0
        self._running: dict[Callable[[str], None], int] = {}

    @contextmanager
    def admitted(self, epoch: int, stop: Callable[[str], None]) -> Iterator[None]:
        """A call of that leader runs inside; `stop` is called with the reason when a later leader comes meanwhile.

        Raises RpcError: INVALID_ARGUMENT without an epoch, FAILED_PRECONDITION with one that is too low.
        """
        if epoch == 0:
            raise RpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "leader_epoch is 0; set it to the create revision of the caller's leader key",
            )
        if epoch < self._highest:
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, _deposed(epoch, self._highest))
        if epoch > self._highest:
            self._raise_to(epoch)
        self._running[stop] = epoch
        try:
            yield
        finally:
            del self._running[stop]

    def _raise_to(self, epoch: int) -> None:
        earlier, self._highest = self._highest, epoch
        if earlier:
            _log.info("a later leader called", leader_epoch=epoch, earlier=earlier, stopped_calls=len(self._running))
        for stop, of_call in list(self._running.items()):
            stop(_deposed(of_call, epoch))


def _deposed(epoch: int, highest: int) -> str:
    return f"leader epoch {epoch} is over: epoch {highest} has called; the caller no longer leads"
