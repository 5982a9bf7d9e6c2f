"""Who leads: one key in etcd, bound to a lease that its holder must keep alive.

Two things keep two leaders apart. A leader knows by its own clock when its lease can have run out, and calls itself
lost before that; and whatever it writes is fenced by the revision at which it created the key (`Store.commit`), which
holds also if its clock stood still.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
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

__all__ = ["Election", "Fence", "Leadership"]

_log = structlog.get_logger()

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine is suspended
_SAFE_PART: Final = 0.9  # of the TTL: the rest is for a late wake-up and for clocks that run at different speeds
_RENEWALS_PER_TTL: Final = 3
_RETRIES_PER_TTL: Final = 20


def _now() -> float:
    return time.clock_gettime(_CLOCK)


class _Seat(Struct, frozen=True):
    """The leader key as found; `revision` is that of the store at that moment."""

    identity: str
    create_revision: int
    lease_id: int
    revision: int


class Leadership:
    """One time of being leader. `lost` is set when it ends, for whatever reason."""

    def __init__(self, fence: Fence, lease_id: int, safe_until: float) -> None:
        self.fence = fence
        self.lost = asyncio.Event()
        self.why_lost = ""
        """Set together with `lost`."""
        self.lease_id = lease_id
        self.keeper: asyncio.Task[None] | None = None
        """What keeps the lease alive, and gives it back once leadership is lost."""
        self.safe_until = safe_until
        """On this machine's clock: nobody else can lead before."""
        self.renewed_at = _now()
        """When the event loop made sure of that last."""
        self._alarm: asyncio.TimerHandle | None = None
        self.extend(safe_until)

    @property
    def held(self) -> bool:
        """Nobody else can lead now. Ask before acting: after a freeze, `lost` may not have had the time to be set."""
        if not self.lost.is_set() and _now() >= self.safe_until:
            self.lose("the lease was not renewed in time")
        return not self.lost.is_set()

    async def resign(self) -> None:
        """Stop leading, and let others take over at once if etcd can be told."""
        self.lose("resigned")
        if self.keeper is not None:
            await asyncio.gather(self.keeper, return_exceptions=True)

    def extend(self, safe_until: float) -> None:
        """The lease lives at least until then."""
        self.prolong(safe_until)
        self.renewed_at = _now()
        self._set_alarm()

    def prolong(self, safe_until: float) -> None:
        """As `extend`, from any thread, while the event loop is busy with something else."""
        self.safe_until = max(self.safe_until, safe_until)

    def lose(self, why: str) -> None:
        """It is over."""
        if self._alarm is not None:
            self._alarm.cancel()
        if not self.lost.is_set():
            self.why_lost = why
            self.lost.set()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self.held:
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, self.safe_until - _now()), self._set_alarm)


class Election:
    """Takes part in the election for one leader key."""

    def __init__(self, store: Store, key: str = "/muster/v1/leader", identity: str = "", ttl_seconds: int = 3) -> None:
        """`identity` is what others see as the leader. etcd makes leases of 2 seconds at least by its defaults."""
        self._store, self._key, self._identity, self._ttl_seconds = store, key, identity, ttl_seconds
        self._leadership: Leadership | None = None
        self._outage = False
        self._left_lease = 0  # of a leadership that was lost; the key may hang on it

    async def campaign(self) -> Leadership:
        """Wait until this is the leader. While etcd is away, it goes on waiting."""
        backoff = Backoff()
        while True:
            try:
                await self._give_back_left_lease()
                seat = await self._look()
                if seat is not None:
                    await self._until_changed(seat)
                    backoff.reset()
                    continue
                leadership = await self._take_seat()
            except EtcdUnavailable as error:
                self._note_outage("cannot campaign", error)
                await backoff.pause()
                continue
            if leadership is not None and leadership.held:
                _log.info("leading", key=self._key, identity=self._identity, epoch=leadership.fence.create_revision)
                self._leadership = leadership
                leadership.keeper = asyncio.create_task(self._keep(leadership))
                return leadership

    async def leader(self) -> str | None:
        """Identity of the leader; None if there is none. Raises EtcdUnavailable."""
        seat = await self._look()
        return None if seat is None else seat.identity

    async def resign(self) -> None:
        """`Leadership.resign` of the last leadership, if there was one."""
        if self._leadership is not None:
            await self._leadership.resign()

    # -- the seat

    async def _look(self) -> _Seat | None:
        def request(client: Any) -> _Seat | None:
            found = client.get_response(self._key)
            if not found.kvs:
                return None
            kv = found.kvs[0]
            return _Seat(kv.value.decode(errors="replace"), kv.create_revision, kv.lease, found.header.revision)

        seat = await self._store.ask(request)
        if self._outage:
            self._outage = False
            _log.info("etcd answers again", key=self._key)
        return seat

    def _note_outage(self, event: str, error: EtcdUnavailable) -> None:
        """Log the first failure of an outage."""
        if not self._outage:
            self._outage = True
            _log.warning(event, key=self._key, error=str(error))

    async def _take_seat(self) -> Leadership | None:
        """Create the key, if there is none, on a new lease."""
        asked = _now()
        lease = await self._store.ask(lambda client: client.lease(self._ttl_seconds))
        try:
            seat = await self._store.ask(self._create_key(lease.id))
        except BaseException:
            self._left_lease = lease.id  # the key may be there, though nobody told us
            raise
        if seat.lease_id != lease.id:
            self._left_lease = lease.id
            return None
        leadership = Leadership(Fence(self._key, seat.create_revision), lease.id, asked + lease.ttl * _SAFE_PART)
        if not leadership.held:  # it took too long
            self._left_lease = lease.id
        return leadership

    def _create_key(self, lease_id: int) -> Callable[[Any], _Seat]:
        def request(client: Any) -> _Seat:
            make = client.transactions
            _, responses = client.transaction(
                compare=[make.create(self._key) == 0],
                success=[make.put(self._key, self._identity, lease_id), make.get(self._key)],
                failure=[make.get(self._key)],
            )
            value, found = responses[-1][0]
            return _Seat(value.decode(errors="replace"), found.create_revision, found.lease_id, 0)

        return request

    async def _until_changed(self, seat: _Seat) -> None:
        """Wait for a change of the key. A watch may be silent though the key is gone, so look again after a TTL."""
        watch = KeyWatch(self._store.connection, self._key, seat.revision)
        try:
            await _first_of(watch.over, timeout_seconds=self._ttl_seconds)
        finally:
            watch.close()

    async def _give_back_left_lease(self) -> None:
        """Nobody leads by it any more, so nobody need wait until it runs out."""
        if self._left_lease:
            lease_id, self._left_lease = self._left_lease, 0
            try:
                await self._revoke(lease_id)
            except BaseException:
                self._left_lease = lease_id
                raise

    async def _revoke(self, lease_id: int) -> None:
        def request(client: Any) -> None:
            try:
                client.revoke_lease(lease_id)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:  # it has run out, which is as good
                    raise

        await self._store.ask(request)

    # -- while leading

    async def _keep(self, leadership: Leadership) -> None:
        """Renew the lease until leadership is lost, then give it back."""
        guard = LeaseKeepAlive(
            self._store.connection,
            leadership,
            partial(_renewed, self._key, leadership),
            ttl_seconds=self._ttl_seconds,
            safe_part=_SAFE_PART,
            now=_now,
        )
        try:
            while leadership.held:
                await self._renewals(leadership)
        except Exception as error:
            _log.error("the lease is not kept any more", key=self._key, exc_info=error)
            leadership.lose(f"internal error: {type(error).__name__}: {error}")
        finally:
            guard.close()
            leadership.lose("the election was stopped")
        _log.warning("not leading any more", key=self._key, identity=self._identity, why=leadership.why_lost)
        self._left_lease = leadership.lease_id
        with suppress(EtcdUnavailable):
            await self._give_back_left_lease()

    async def _renewals(self, leadership: Leadership) -> None:
        """Renew at intervals, and at once when the key changes, for as long as one watch lasts."""
        watch = KeyWatch(self._store.connection, self._key, leadership.fence.create_revision)
        try:
            while leadership.held and not watch.over.is_set():
                await _first_of(watch.over, leadership.lost, timeout_seconds=self._ttl_seconds / _RENEWALS_PER_TTL)
                if leadership.held:
                    await self._renew(leadership)
        finally:
            watch.close()

    async def _renew(self, leadership: Leadership) -> None:
        asked = _now()
        try:
            lease_seconds = await self._store.ask(partial(_refresh, leadership.lease_id))
            seat = await self._look()
        except EtcdUnavailable as error:
            self._note_outage("cannot renew the lease", error)
            await _first_of(leadership.lost, timeout_seconds=self._ttl_seconds / _RETRIES_PER_TTL)
            return
        if lease_seconds <= 0:
            leadership.lose("the lease has run out or was revoked")
        elif seat is None or seat.create_revision != leadership.fence.create_revision:
            leadership.lose("the leader key was removed" if seat is None else f"{seat.identity!r} leads")
        else:
            leadership.extend(asked + lease_seconds * _SAFE_PART)


def _refresh(lease_id: int, client: Any) -> int:
    """New TTL of the lease in seconds; 0 if there is no such lease any more."""
    return max((int(answer.TTL) for answer in client.refresh_lease(lease_id)), default=0)


def _renewed(key: str, leadership: Leadership, client: Any) -> float:
    """New TTL of the lease in seconds; 0 if there is no such lease any more, or the key is not that of this leader."""
    lease_seconds = _refresh(leadership.lease_id, client)
    found = client.get_response(key).kvs
    ours = bool(found) and found[0].create_revision == leadership.fence.create_revision
    return lease_seconds if ours else 0


async def _first_of(*events: asyncio.Event, timeout_seconds: float) -> None:
    """Wait until one of the events is set, but no longer than that."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
