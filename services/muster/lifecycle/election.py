"""Leader election by a Lease, so that several replicas can run and another one takes over when the leader goes.

The leader stops leading by its own clock before another replica can acquire the Lease. A write in flight may still
arrive after that: controllers therefore write only values that are right whoever writes them, or pass the
resourceVersion that they have read.
"""

import asyncio
import random
import time
from typing import Final

import structlog

from muster.kube.responses import ApiStatusError, KubeUnreachable, Response
from muster.kube.session import KubeSession
from muster.lifecycle.lease import (
    BadLease,
    LeaseObserver,
    LeaseSpec,
    ObservedLease,
    acquired_lease,
    decode_lease,
    encode_lease,
    released_lease,
)
from muster.lifecycle.settings import Settings, lease_namespace
from muster.telemetry.metrics import expose_leadership

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # advances while the machine is suspended
_SAFE_FRACTION: Final = 0.8  # of the lease; the rest allows for late wake-ups and clock drift
_RENEWALS_PER_LEASE: Final = 3
_RELEASE_SECONDS: Final = 2.0

_log = structlog.get_logger(__name__)


def _now() -> float:
    return time.clock_gettime(_CLOCK)


class Leadership:
    """Whether this replica leads."""

    def __init__(self) -> None:
        self._safe_until = float("-inf")
        self._leading = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def leads(self) -> bool:
        """Whether this replica leads, by the clock. Check it before each write: the process may have been frozen."""
        if self._leading.is_set() and _now() >= self._safe_until:
            self.lose("the lease was not renewed in time")
        return self._leading.is_set()

    async def until_leading(self) -> None:
        """Waits until this replica leads."""
        await self._leading.wait()

    async def until_lost(self) -> None:
        """Waits until this replica does not lead."""
        await self._lost.wait()

    def extend(self, safe_until: float) -> None:
        """Starts or prolongs leading, until the given time."""
        self._safe_until = safe_until
        if not self._leading.is_set() and _now() < safe_until:
            _log.info("leadership_acquired")
            self._lost.clear()
            self._leading.set()
            expose_leadership(True)
        self._set_alarm()

    def lose(self, reason: str, *, wanted: bool = False) -> None:
        """Stops leading."""
        if self._leading.is_set():
            (_log.info if wanted else _log.warning)("leadership_lost", reason=reason)
            self._leading.clear()
            self._lost.set()
            expose_leadership(False)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self.leads:
            pause = max(0.0, self._safe_until - _now())
            self._alarm = asyncio.get_running_loop().call_later(pause, self._set_alarm)


class Election:
    """A candidate for one Lease."""

    def __init__(self, session: KubeSession, settings: Settings, leadership: Leadership) -> None:
        self._session = session
        self._leadership = leadership
        self._identity = settings.instance
        self._seconds = settings.lease_seconds
        self._namespace, self._name = lease_namespace(settings), settings.lease_name
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        self._path = f"{self._leases}/{self._name}"
        self._observer = LeaseObserver()
        self._held: ObservedLease | None = None
        self._last_error = ""

    async def run(self) -> None:
        """Acquires and renews the lease until cancelled, then releases it."""
        expose_leadership(self._leadership.leads)
        try:
            while True:
                pause = await self._step()
                await asyncio.sleep(pause * random.uniform(0.9, 1.0))  # noqa: S311 (so that candidates do not collide)
        finally:
            self._leadership.lose("shutting down", wanted=True)
            await self._release()

    async def _step(self) -> float:
        """Acquires or renews the lease if possible; returns the seconds until the next attempt."""
        beat = self._seconds / _RENEWALS_PER_LEASE
        try:
            async with asyncio.timeout(beat):
                pause = await self._acquire_or_wait(beat)
        except (ApiStatusError, KubeUnreachable, BadLease, TimeoutError) as error:
            problem = str(error) or "no answer in time"
            if problem != self._last_error:
                _log.warning("lease_unavailable", lease=f"{self._namespace}/{self._name}", error=problem)
            self._last_error = problem
            return beat / 2
        self._last_error = ""
        return pause

    async def _acquire_or_wait(self, beat: float) -> float:
        now = _now()
        found = self._held or await self._read()  # the holder need not read it: a conflict shows another's change
        if found is not None and found.spec.holder_identity != self._identity:
            self._leadership.lose(f"{found.spec.holder_identity!r} leads")
            left = self._observer.seconds_left(found, now)
            if left > 0:
                return min(left, beat)
        self._held = await self._put(found)
        if self._held is None:  # another candidate acquired it first
            return beat / 2
        self._leadership.extend(now + self._seconds * _SAFE_FRACTION)
        return beat

    async def _read(self) -> ObservedLease | None:
        response = await self._session.request("GET", self._path, timeout_seconds=self._seconds)
        if response.status == 404:
            return None
        return decode_lease(_checked(response).body)

    async def _put(self, found: ObservedLease | None) -> ObservedLease | None:
        """Acquires or renews the lease unless it has changed; None if it has."""
        spec = acquired_lease(found.spec if found is not None else None, self._identity, self._seconds, time.time())
        return await self._write(spec, found.version if found is not None else "")

    async def _write(self, spec: LeaseSpec, version: str) -> ObservedLease | None:
        body = encode_lease(self._namespace, self._name, spec, version)
        if version:
            response = await self._session.request("PUT", self._path, body=body, timeout_seconds=self._seconds)
        else:
            response = await self._session.request("POST", self._leases, body=body, timeout_seconds=self._seconds)
        if response.status == 409 or (response.status == 404 and version):
            return None
        return decode_lease(_checked(response).body)

    async def _release(self) -> None:
        mine, self._held = self._held, None
        if mine is None or mine.spec.holder_identity != self._identity:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._write(released_lease(mine.spec, time.time()), mine.version)
        except (ApiStatusError, KubeUnreachable, BadLease, TimeoutError) as error:
            _log.warning("lease_release_failed", error=str(error))


def _checked(response: Response) -> Response:
    """Raises ApiStatusError."""
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
    return response
