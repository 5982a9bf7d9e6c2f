"""Limits of preemption: how soon a group may evict again after a plan in vain, and how many pods per hour in all."""

import math

from muster.retry.backoff import backoff_seconds

INITIAL_PAUSE_SECONDS = 60.0
"""Pause of a group after a plan whose capacity it did not get; it doubles with every such plan in a row."""
MAX_PAUSE_SECONDS = 3600.0
SECONDS_PER_HOUR = 3600.0


def pause_after(plans_in_vain: int) -> float:
    """Seconds without another plan for a group after so many in a row in vain."""
    return backoff_seconds(INITIAL_PAUSE_SECONDS, MAX_PAUSE_SECONDS, plans_in_vain)


class EvictionLimit:
    """Evictions for preemptors per hour, in the whole cluster: a token bucket, and so of constant size.

    A plan begins when there is a token, and takes one for each pod, also beyond zero: plans are whole, whatever their
    size. A term begins without tokens, since it does not know how many the last one used.
    """

    def __init__(self, per_hour: int) -> None:
        """`per_hour`: 0 for no limit."""
        self.per_hour = per_hour
        self._tokens = 0.0
        self._at: float | None = None

    def ready_at(self, now: float) -> float:
        """When the next plan may begin: `now` if it may at once."""
        if not self.per_hour:
            return now
        self._refill(now)
        missing = 1.0 - self._tokens
        return now if missing <= 0 else now + math.ceil(missing * SECONDS_PER_HOUR / self.per_hour)

    def use(self, pods: int, now: float) -> None:
        """A plan that evicts this many pods begins."""
        if self.per_hour:
            self._refill(now)
            self._tokens -= pods

    def _refill(self, now: float) -> None:
        passed = now - self._at if self._at is not None else 0.0
        self._at = now
        self._tokens = min(float(self.per_hour), self._tokens + passed * self.per_hour / SECONDS_PER_HOUR)
