"""Leader election: one key in etcd, attached to a lease that the leader keeps alive.

Two mechanisms prevent two leaders. A leader knows by its own clock when its lease may have expired, and gives up
leadership before that; and all its writes are fenced by the create revision of its key (`Store.commit`), which holds
even if its clock stopped.

A candidate that learns that the leader's process has ended revokes the leader's lease, so that it need not expire. A
wrong verdict costs a change of leaders and nothing else: the key is deleted, which fences the writes of a leader that
lives, and it learns that by its watch.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import grpc
import structlog
from msgspec import Struct

from muster.etcd.errors import EtcdUnavailable
from muster.etcd.key_watch import KeyWatch
from muster.etcd.lease_keepalive import LeaseKeepAlive
from muster.etcd.store import Fence, Store
from muster.retry.retrying import Backoff

__all__ = ["Election", "Fence", "LeaderKey", "Leadership"]

_log = structlog.get_logger()

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # advances while the machine is suspended
_SAFE_SHARE: Final = 0.9  # of the TTL: the rest covers late wake-ups and clock drift
_RENEWALS_PER_TTL: Final = 3
_RETRIES_PER_TTL: Final = 20


def _now() -> float:
    return time.clock_gettime(_CLOCK)


class LeaderKey(Struct, frozen=True):
    """The leader key as read; `revision` is the revision of the store at that time."""

    identity: str
    create_revision: int
    lease_id: int
    revision: int
    address: str = ""
    """Where the leader serves; empty: it is not known."""


class Leadership:
    """One term of leadership. `lost` is set when it ends, for any reason."""

    def __init__(self, fence: Fence, lease_id: int, safe_until: float) -> None:
        self.fence = fence
        self.lost = asyncio.Event()
        self.loss_reason = ""
        """Set together with `lost`."""
        self.lease_id = lease_id
        self.keeper: asyncio.Task[None] | None = None
        """Task that renews the lease, and revokes it once leadership is lost."""
        self.safe_until = safe_until
        """Time on this machine's clock before which no other leader is possible."""
        self.renewed_at = _now()
        """Time of the last renewal by the event loop."""
        self._alarm: asyncio.TimerHandle | None = None
        self.extend(safe_until)

    @property
    def held(self) -> bool:
        """No other leader is possible now. Check before acting: after a freeze `lost` may not be set yet."""
        if not self.lost.is_set() and _now() >= self.safe_until:
            self.lose("the lease was not renewed in time")
        return not self.lost.is_set()

    async def resign(self) -> None:
        """Give up leadership, and revoke the lease so that another replica can take over at once."""
        self.lose("resigned")
        if self.keeper is not None:
            await asyncio.gather(self.keeper, return_exceptions=True)

    def extend(self, safe_until: float) -> None:
        """Record a renewal: the lease lives at least until then."""
        self.prolong(safe_until)
        self.renewed_at = _now()
        self._set_alarm()

    def prolong(self, safe_until: float) -> None:
        """Like `extend`, from any thread, while the event loop is busy."""
        self.safe_until = max(self.safe_until, safe_until)

    def lose(self, reason: str) -> None:
        """End the leadership."""
        if self._alarm is not None:
            self._alarm.cancel()
        if not self.lost.is_set():
            self.loss_reason = reason
            self.lost.set()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self.held:
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, self.safe_until - _now()), self._set_alarm)


class Election:
    """A candidate in the election for one leader key."""

    def __init__(
        self,
        store: Store,
        key: str = "/muster/v1/leader",
        identity: str = "",
        ttl_seconds: int = 3,
        *,
        address: str = "",
        until_ended: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`identity` is the value of the leader key. etcd's default minimum TTL of a lease is 2 seconds.

        `address`: where this candidate serves, for the others. `until_ended` returns once the process that served at an
        address has ended; a leader that is not known to have ended is replaced when its lease expires.
        """
        self._store, self._key, self._identity, self._ttl_seconds = store, key, identity, ttl_seconds
        self._address_key, self._address, self._until_ended = f"{key}-address", address, until_ended
        self._leadership: Leadership | None = None
        self._outage = False
        self._stale_lease = 0  # of an ended leadership, or leader; the key may still be attached to it

    async def campaign(self) -> Leadership:
        """Wait until this candidate is leader, also through outages of etcd."""
        backoff = Backoff()
        while True:
            try:
                await self._revoke_stale_lease()
                leader = await self._read_key()
                if leader is not None:
                    await self._until_replaced(leader)
                    backoff.reset()
                    continue
                leadership = await self._take_key()
            except EtcdUnavailable as error:
                self._note_outage("campaign_failed", error)
                await backoff.pause()
                continue
            if leadership is not None and leadership.held:
                epoch = leadership.fence.create_revision
                _log.info("leadership_acquired", key=self._key, identity=self._identity, epoch=epoch)
                self._leadership = leadership
                leadership.keeper = asyncio.create_task(self._keep(leadership))
                return leadership

    async def leader(self) -> LeaderKey | None:
        """The leader key, or None. Raises EtcdUnavailable."""
        return await self._read_key()

    async def resign(self) -> None:
        """Resign the last leadership, if there was one."""
        if self._leadership is not None:
            await self._leadership.resign()

    # -- the leader key

    async def _read_key(self) -> LeaderKey | None:
        def request(client: Any) -> LeaderKey | None:
            found = client.get_response(self._key)
            if not found.kvs:
                return None
            kv, addresses = found.kvs[0], client.get_response(self._address_key).kvs
            return LeaderKey(
                kv.value.decode(errors="replace"),
                kv.create_revision,
                kv.lease,
                found.header.revision,
                # Both keys are on one lease: the address of another leader is on another.
                next((each.value.decode(errors="replace") for each in addresses if each.lease == kv.lease), ""),
            )

        leader = await self._store.ask(request)
        if self._outage:
            self._outage = False
            _log.info("etcd_recovered", key=self._key)
        return leader

    def _note_outage(self, event: str, error: EtcdUnavailable) -> None:
        """Log the first failure of an outage."""
        if not self._outage:
            self._outage = True
            _log.warning(event, key=self._key, error=str(error))

    async def _take_key(self) -> Leadership | None:
        """Create the key on a new lease, if it does not exist."""
        started = _now()
        lease = await self._store.ask(lambda client: client.lease(self._ttl_seconds))
        try:
            leader = await self._store.ask(self._create_key(lease.id))
        except BaseException:
            self._stale_lease = lease.id  # the key may exist although the answer was lost
            raise
        if leader.lease_id != lease.id:
            self._stale_lease = lease.id
            return None
        leadership = Leadership(Fence(self._key, leader.create_revision), lease.id, started + lease.ttl * _SAFE_SHARE)
        if not leadership.held:  # it took too long
            self._stale_lease = lease.id
        return leadership

    def _create_key(self, lease_id: int) -> Callable[[Any], LeaderKey]:
        def request(client: Any) -> LeaderKey:
            make = client.transactions
            _, responses = client.transaction(
                compare=[make.create(self._key) == 0],
                success=[
                    make.put(self._address_key, self._address, lease_id),
                    make.put(self._key, self._identity, lease_id),
                    make.get(self._key),
                ],
                failure=[make.get(self._key)],
            )
            value, found = responses[-1][0]
            return LeaderKey(value.decode(errors="replace"), found.create_revision, found.lease_id, 0)

        return request

    async def _until_replaced(self, leader: LeaderKey) -> None:
        """Wait until the key is gone or another leader's, or its lease may be revoked."""
        key: LeaderKey | None = leader
        async with self._end_of(leader) as ended:
            while key is not None and key.create_revision == leader.create_revision:
                await self._until_changed(key, ended)
                if ended.is_set():
                    _log.info("leader_ended", key=self._key, identity=leader.identity, address=leader.address)
                    self._stale_lease = leader.lease_id
                    return
                key = await self._read_key()

    @asynccontextmanager
    async def _end_of(self, leader: LeaderKey) -> AsyncIterator[asyncio.Event]:
        """An event that is set when the leader's process is known to have ended."""
        ended = asyncio.Event()
        if self._until_ended is None or not leader.address:
            yield ended
            return
        waiting = asyncio.ensure_future(self._until_ended(leader.address))
        waiting.add_done_callback(partial(_note_end, ended))
        try:
            yield ended
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _until_changed(self, leader: LeaderKey, ended: asyncio.Event) -> None:
        """Wait for a change of the key or the end of the leader, but not longer than a TTL: a broken watch may miss the
        deletion.
        """
        watch = KeyWatch(self._store.connection, self._key, leader.revision)
        try:
            await _first_of(watch.ended, ended, timeout_seconds=self._ttl_seconds)
        finally:
            watch.close()

    async def _revoke_stale_lease(self) -> None:
        """Revoke the lease of an ended leadership, so that no candidate waits for its expiry."""
        if self._stale_lease:
            lease_id, self._stale_lease = self._stale_lease, 0
            try:
                await self._revoke(lease_id)
            except BaseException:
                self._stale_lease = lease_id
                raise

    async def _revoke(self, lease_id: int) -> None:
        def request(client: Any) -> None:
            try:
                client.revoke_lease(lease_id)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:  # it has expired already
                    raise

        await self._store.ask(request)

    # -- while leading

    async def _keep(self, leadership: Leadership) -> None:
        """Renew the lease until leadership is lost, then revoke it."""
        keepalive = LeaseKeepAlive(
            self._store.connection,
            leadership,
            partial(_renewed, self._key, leadership),
            ttl_seconds=self._ttl_seconds,
            safe_share=_SAFE_SHARE,
            now=_now,
        )
        try:
            while leadership.held:
                await self._renewals(leadership)
        except Exception as error:
            _log.error("lease_renewal_crashed", key=self._key, exc_info=error)
            leadership.lose(f"internal error: {type(error).__name__}: {error}")
        finally:
            keepalive.close()
            leadership.lose("the election was stopped")
        _log.warning("leadership_lost", key=self._key, identity=self._identity, reason=leadership.loss_reason)
        self._stale_lease = leadership.lease_id
        with suppress(EtcdUnavailable):
            await self._revoke_stale_lease()

    async def _renewals(self, leadership: Leadership) -> None:
        """Renew at intervals, and at once when the key changes, until the watch ends."""
        watch = KeyWatch(self._store.connection, self._key, leadership.fence.create_revision)
        try:
            while leadership.held and not watch.ended.is_set():
                await _first_of(watch.ended, leadership.lost, timeout_seconds=self._ttl_seconds / _RENEWALS_PER_TTL)
                if leadership.held:
                    await self._renew(leadership)
        finally:
            watch.close()

    async def _renew(self, leadership: Leadership) -> None:
        started = _now()
        try:
            lease_seconds = await self._store.ask(partial(_refresh, leadership.lease_id))
            leader = await self._read_key()
        except EtcdUnavailable as error:
            self._note_outage("lease_renewal_failed", error)
            await _first_of(leadership.lost, timeout_seconds=self._ttl_seconds / _RETRIES_PER_TTL)
            return
        if lease_seconds <= 0:
            leadership.lose("the lease has expired or was revoked")
        elif leader is None or leader.create_revision != leadership.fence.create_revision:
            leadership.lose("the leader key was removed" if leader is None else f"{leader.identity!r} leads")
        else:
            leadership.extend(started + lease_seconds * _SAFE_SHARE)


def _note_end(ended: asyncio.Event, waited: asyncio.Future[None]) -> None:
    """Set the event if the wait returned. If it failed, the leader's lease is waited for."""
    if waited.cancelled():
        return
    if (error := waited.exception()) is not None:
        _log.error("leader_not_followed", exc_info=error)
    else:
        ended.set()


def _refresh(lease_id: int, client: Any) -> int:
    """New TTL of the lease in seconds; 0 if the lease does not exist any more."""
    return max((int(answer.TTL) for answer in client.refresh_lease(lease_id)), default=0)


def _renewed(key: str, leadership: Leadership, client: Any) -> float:
    """New TTL of the lease in seconds; 0 if the lease does not exist any more, or the key is another leader's."""
    lease_seconds = _refresh(leadership.lease_id, client)
    found = client.get_response(key).kvs
    ours = bool(found) and found[0].create_revision == leadership.fence.create_revision
    return lease_seconds if ours else 0


async def _first_of(*events: asyncio.Event, timeout_seconds: float) -> None:
    """Wait until one of the events is set, or for `timeout_seconds`."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
