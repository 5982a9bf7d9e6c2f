"""Keeps a leader's lease while its event loop is busy: one step over many gangs may take longer than a lease lives.

Without it a leader that has a lot to do loses its lease before it is done, and begins again, for ever. A process that
stands still as a whole is not helped, nor a loop that is busy for longer than any work takes.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

from muster.etcd.connection import Connection
from muster.etcd.errors import EtcdUnavailable

BUSY_SECONDS = 60.0
"""A loop that does not come to renew its lease for so long is stuck: somebody else had better lead."""
_LOOKS_PER_TTL: Final = 6
_LATE_PART: Final = 0.5  # of the TTL: the loop renews three times as often as the lease runs out

_log = structlog.get_logger()


class Held(Protocol):
    """A leadership, as far as its guard is concerned."""

    renewed_at: float
    """When the loop renewed the lease last."""

    def prolong(self, safe_until: float) -> None:
        """The lease lives at least until then. Safe to call from any thread."""


class LeaseKeepAlive:
    """A thread that renews when the loop is late. `renew` returns how long the lease lives, 0 if it is lost."""

    def __init__(
        self,
        connection: Connection,
        held: Held,
        renew: Callable[[Any], float],
        *,
        ttl_seconds: float,
        safe_part: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection, self._held, self._renew = connection, held, renew
        self._ttl_seconds, self._safe_part = ttl_seconds, safe_part
        self._now = now
        self._renewed_at = now()
        self._told = False
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="etcd lease guard", daemon=True).start()

    def close(self) -> None:
        """Renew no more."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._ttl_seconds / _LOOKS_PER_TTL):
            silent = self._now() - self._held.renewed_at
            if silent > BUSY_SECONDS:
                _log.error("the loop does not come back; its lease is kept no longer", silent_seconds=round(silent, 1))
                return
            late = self._ttl_seconds * _LATE_PART
            if silent < late:
                self._told = False
            elif self._now() - self._renewed_at >= late:
                self._help(silent)

    def _help(self, silent: float) -> None:
        asked = self._now()
        try:
            lease_seconds = self._connection.call(self._renew).value
        except (EtcdUnavailable, ValueError):  # ValueError: the channel is closed
            return
        if lease_seconds > 0 and not self._over.is_set():
            self._renewed_at = asked
            self._held.prolong(asked + lease_seconds * self._safe_part)
            if not self._told:
                self._told = True
                _log.warning("the loop is busy; its lease is kept meanwhile", silent_seconds=round(silent, 1))
