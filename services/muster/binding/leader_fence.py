"""Leader fence: rejects calls with a leader epoch below the highest seen, and stops running calls of earlier leaders.

The highest epoch is kept in memory. After a restart the first caller sets it; a deposed leader that calls first can
only write what it had made durable while it led.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import structlog

from muster.rpc.errors import RpcError

_log = structlog.get_logger()


class LeaderFence:
    """The highest leader epoch seen, and the running calls by epoch."""

    def __init__(self) -> None:
        self._highest = 0
        self._running: dict[Callable[[str], None], int] = {}

    @contextmanager
    def admit(self, epoch: int, stop: Callable[[str], None]) -> Iterator[None]:
        """Run a call of the leader with this epoch inside; `stop` is called with the reason if a later leader calls.

        Raises RpcError: INVALID_ARGUMENT without an epoch, FAILED_PRECONDITION if the epoch is too low.
        """
        if epoch == 0:
            raise RpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "leader_epoch is 0; set it to the create revision of the caller's leader key",
            )
        if epoch < self._highest:
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, _superseded(epoch, self._highest))
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
            _log.info("leader_epoch_raised", leader_epoch=epoch, earlier=earlier, stopped_calls=len(self._running))
        for stop, of_call in list(self._running.items()):
            stop(_superseded(of_call, epoch))


def _superseded(epoch: int, highest: int) -> str:
    return f"leader epoch {epoch} is superseded: epoch {highest} has called; the caller no longer leads"
