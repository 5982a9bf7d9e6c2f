"""Which replica leads: the holder of a Lease, so that several replicas are safe and one takes over when another goes.

The leader calls itself lost by its own clock before anybody else can take the Lease. A write that was under way then
may still arrive: controllers therefore write only what is so whoever writes it, or with the resourceVersion that they
have seen.
"""

import asyncio
import random
import time
from typing import Final

import structlog

from muster.kube.responses import ApiStatusError, KubeUnreachable, Response
from muster.kube.session import KubeSession
from muster.lifecycle.lease import BadLease, LeaseSpec, Seen, Vigil, decode_lease, encode_lease, given_back, taken
from muster.lifecycle.settings import Settings, lease_namespace
from muster.telemetry.metrics import expose_leadership

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine is suspended
_SAFE_PART: Final = 0.8  # of the lease: the rest is for a late wake-up and for clocks that run at different speeds
_RENEWALS_PER_LEASE: Final = 3
_RESIGN_SECONDS: Final = 2.0

_log = structlog.get_logger(__name__)


def _now() -> float:
    return time.clock_gettime(_CLOCK)


class Leadership:
    """Whether this replica leads."""

    def __init__(self) -> None:
        self._safe_until = float("-inf")
        self._gained = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def leads(self) -> bool:
        """Nobody else can lead now. Ask before each write: after a freeze, nobody may have had the time to tell."""
        if self._gained.is_set() and _now() >= self._safe_until:
            self.lose("the lease was not renewed in time")
        return self._gained.is_set()

    async def gained(self) -> None:
        """Wait until this replica leads."""
        await self._gained.wait()

    async def lost(self) -> None:
        """Wait until it does not."""
        await self._lost.wait()

    def extend(self, safe_until: float) -> None:
        """It leads, at least until then."""
        self._safe_until = safe_until
        if not self._gained.is_set() and _now() < safe_until:
            _log.info("leading")
            self._lost.clear()
            self._gained.set()
            expose_leadership(True)
        self._set_alarm()

    def lose(self, why: str, *, wanted: bool = False) -> None:
        """It does not lead any more."""
        if self._gained.is_set():
            (_log.info if wanted else _log.warning)("not leading any more", why=why)
            self._gained.clear()
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
    """Takes part in the election by one Lease."""

    def __init__(self, session: KubeSession, settings: Settings, leadership: Leadership) -> None:
        self._session = session
        self._leadership = leadership
        self._identity = settings.instance
        self._seconds = settings.lease_seconds
        self._namespace, self._name = lease_namespace(settings), settings.lease_name
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        self._path = f"{self._leases}/{self._name}"
        self._vigil = Vigil()
        self._mine: Seen | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Stand, lead, and stand again, until cancelled; then the lease is given back."""
        expose_leadership(self._leadership.leads)
        try:
            while True:
                pause = await self._step()
                await asyncio.sleep(pause * random.uniform(0.9, 1.0))  # noqa: S311 (so that candidates do not meet)
        finally:
            self._leadership.lose("it stops", wanted=True)
            await self._give_back()

    async def _step(self) -> float:
        """Take or renew the lease if that may be; returns the seconds until the next look."""
        beat = self._seconds / _RENEWALS_PER_LEASE
        try:
            async with asyncio.timeout(beat):
                pause = await self._take_or_wait(beat)
        except (ApiStatusError, KubeUnreachable, BadLease, TimeoutError) as error:
            trouble = str(error) or "no answer in time"
            if trouble != self._trouble:
                _log.warning("the lease cannot be had", lease=f"{self._namespace}/{self._name}", error=trouble)
            self._trouble = trouble
            return beat / 2
        self._trouble = ""
        return pause

    async def _take_or_wait(self, beat: float) -> float:
        asked = _now()
        found = (
            self._mine or await self._look()
        )  # who holds it need not look: somebody else's change shows in a conflict
        if found is not None and found.spec.holder_identity != self._identity:
            self._leadership.lose(f"{found.spec.holder_identity!r} leads")
            left = self._vigil.seconds_left(found, asked)
            if left > 0:
                return min(left, beat)
        self._mine = await self._put(found)
        if self._mine is None:  # another one was quicker
            return beat / 2
        self._leadership.extend(asked + self._seconds * _SAFE_PART)
        return beat

    async def _look(self) -> Seen | None:
        response = await self._session.request("GET", self._path, timeout_seconds=self._seconds)
        if response.status == 404:
            return None
        return decode_lease(_checked(response).body)

    async def _put(self, found: Seen | None) -> Seen | None:
        """Make it ours, as long as it is as found. None: it is not."""
        spec = taken(found.spec if found is not None else None, self._identity, self._seconds, time.time())
        return await self._write(spec, found.version if found is not None else "")

    async def _write(self, spec: LeaseSpec, version: str) -> Seen | None:
        body = encode_lease(self._namespace, self._name, spec, version)
        if version:
            response = await self._session.request("PUT", self._path, body=body, timeout_seconds=self._seconds)
        else:
            response = await self._session.request("POST", self._leases, body=body, timeout_seconds=self._seconds)
        if response.status == 409 or (response.status == 404 and version):
            return None
        return decode_lease(_checked(response).body)

    async def _give_back(self) -> None:
        mine, self._mine = self._mine, None
        if mine is None or mine.spec.holder_identity != self._identity:
            return
        try:
            async with asyncio.timeout(_RESIGN_SECONDS):
                await self._write(given_back(mine.spec, time.time()), mine.version)
        except (ApiStatusError, KubeUnreachable, BadLease, TimeoutError) as error:
            _log.warning("the lease could not be given back; it runs out by itself", error=str(error))


def _checked(response: Response) -> Response:
    """Raises ApiStatusError."""
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
    return response
