"""Renews a leader's lease from a thread while its event loop is busy: one step over many gangs may outlast the TTL.

Without it a busy leader would lose its lease before it is done, and start over, forever. It does not help a process
that is frozen as a whole, nor a loop that is busy for longer than any step takes.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

from muster.etcd.connection import Connection
from muster.etcd.errors import EtcdUnavailable

MAX_BUSY_SECONDS = 60.0
"""A loop that has not renewed its lease for this long is stuck, and another replica should lead."""
_CHECKS_PER_TTL: Final = 6
_LATE_SHARE: Final = 0.5  # of the TTL: the loop renews three times as often as the lease runs out

_log = structlog.get_logger()


class RenewedLeadership(Protocol):
    """The part of a Leadership that the keepalive uses."""

    renewed_at: float
    """Time of the last renewal by the event loop."""

    def prolong(self, safe_until: float) -> None:
        """Record that the lease lives at least until then. Thread-safe."""


class LeaseKeepAlive:
    """A thread that renews the lease when the event loop is late. `renew` returns the new TTL, 0: the lease is lost."""

    def __init__(
        self,
        connection: Connection,
        leadership: RenewedLeadership,
        renew: Callable[[Any], float],
        *,
        ttl_seconds: float,
        safe_share: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection, self._leadership, self._renew = connection, leadership, renew
        self._ttl_seconds, self._safe_share = ttl_seconds, safe_share
        self._now = now
        self._renewed_at = now()
        self._logged = False
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="etcd lease keepalive", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(self._ttl_seconds / _CHECKS_PER_TTL):
            late_seconds = self._now() - self._leadership.renewed_at
            if late_seconds > MAX_BUSY_SECONDS:
                _log.error("event_loop_stuck", late_seconds=round(late_seconds, 1))
                return
            allowed = self._ttl_seconds * _LATE_SHARE
            if late_seconds < allowed:
                self._logged = False
            elif self._now() - self._renewed_at >= allowed:
                self._renew_late(late_seconds)

    def _renew_late(self, late_seconds: float) -> None:
        started = self._now()
        try:
            lease_seconds = self._connection.call(self._renew).value
        except (EtcdUnavailable, ValueError):  # ValueError: the channel is closed
            return
        if lease_seconds > 0 and not self._closed.is_set():
            self._renewed_at = started
            self._leadership.prolong(started + lease_seconds * self._safe_share)
            if not self._logged:
                self._logged = True
                _log.warning("lease_renewed_for_busy_event_loop", late_seconds=round(late_seconds, 1))
