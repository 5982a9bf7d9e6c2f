"""Leader fence: admits only calls with the epoch of the leader key in etcd, and stops running calls of earlier leaders.

An epoch that etcd has confirmed is admitted at once. Any other is confirmed first, and never remembered if etcd has
another: otherwise one call with a made-up epoch would lock the leader out. etcd may also confirm a lower epoch, after
a restore from a backup.

The last confirmed epoch is kept in memory, and is valid until another one is confirmed. Until then a deposed leader
can only write what it had made durable while it led.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import structlog

from muster.binding import metrics
from muster.rpc.errors import RpcError

_log = structlog.get_logger()


class LeaderUnknown(Exception):
    """etcd's leader key cannot be read now. The message says why."""


class LeaderFence:
    """The epoch that etcd confirmed last, and the running calls by epoch, until they end (I11)."""

    def __init__(self, read_epoch: Callable[[], Awaitable[int]]) -> None:
        """`read_epoch` returns the create revision of the leader key as it is after the call began; 0: none leads.

        Raises LeaderUnknown.
        """
        self._read_epoch = _SharedRead(read_epoch)
        self._confirmed = 0
        self._running: dict[Callable[[str], None], int] = {}

    @asynccontextmanager
    async def admit(self, epoch: int, stop: Callable[[str], None]) -> AsyncIterator[None]:
        """Run a call of the leader with this epoch inside; `stop` is called with the reason if another leader calls.

        Raises RpcError: INVALID_ARGUMENT without an epoch, FAILED_PRECONDITION if etcd has another, UNAVAILABLE if it
        cannot be confirmed now.
        """
        if epoch == 0:
            raise RpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "leader_epoch is 0; set it to the create revision of the caller's leader key",
            )
        if epoch != self._confirmed:
            await self._confirm(epoch)
        self._running[stop] = epoch
        try:
            yield
        finally:
            del self._running[stop]

    async def _confirm(self, epoch: int) -> None:
        try:
            current = await self._read_epoch()
        except LeaderUnknown as error:
            metrics.EPOCHS_REFUSED.labels("unknown").add()
            message = f"leader epoch {epoch} cannot be confirmed: {error}; retry"
            raise RpcError(grpc.StatusCode.UNAVAILABLE, message) from error
        if current and current != self._confirmed:
            self._change_to(current)
        if epoch == current:
            return
        superseded = epoch < current
        metrics.EPOCHS_REFUSED.labels("superseded" if superseded else "unconfirmed").add()
        if superseded:
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, _superseded(epoch, current))
        found = f"the leader key in etcd has create revision {current}" if current else "no coordinator leads"
        _log.warning("leader_epoch_refused", leader_epoch=epoch, confirmed=current)
        raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, f"leader epoch {epoch} is not confirmed by etcd: {found}")

    def _change_to(self, epoch: int) -> None:
        earlier, self._confirmed = self._confirmed, epoch
        if earlier:
            _log.info("leader_epoch_changed", leader_epoch=epoch, earlier=earlier, stopped_calls=len(self._running))
        for stop, of_call in list(self._running.items()):
            stop(_superseded(of_call, epoch))


class _SharedRead:
    """Reads for all callers that wait, one at a time: a caller's read begins after its call, so it is not outdated."""

    def __init__(self, read: Callable[[], Awaitable[int]]) -> None:
        self._read = read
        self._running: asyncio.Future[int | LeaderUnknown] | None = None
        self._next: asyncio.Future[int | LeaderUnknown] | None = None

    async def __call__(self) -> int:
        if self._next is None:
            self._next = asyncio.ensure_future(self._after(self._running))
        result = await asyncio.shield(self._next)
        if isinstance(result, LeaderUnknown):
            raise result
        return result

    async def _after(self, running: asyncio.Future[int | LeaderUnknown] | None) -> int | LeaderUnknown:
        """A failure is returned, not raised: all callers may have been cancelled by then."""
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        try:
            return await self._read()
        except LeaderUnknown as error:
            return error


def _superseded(epoch: int, current: int) -> str:
    return f"leader epoch {epoch} is superseded: epoch {current} leads; the caller no longer does"
