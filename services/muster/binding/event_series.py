"""Aggregates repeated events into series and rate-limits new events per object.

An event that repeats within 10 minutes raises the count of its first occurrence; counts are written at most every
COUNT_INTERVAL_SECONDS. New events take a token from the bucket of the object they regard, so that no object can flood
the API server. Pure: the caller passes the time. Memory is bounded in number, and in time by `expire` (I11); forgetting
a series costs one more event object and never loses an event.
"""

from collections import OrderedDict
from typing import Final

from msgspec import Struct

SERIES_SECONDS: Final = 600.0
COUNT_INTERVAL_SECONDS: Final = 5.0
"""Least time between two writes of a count."""
BURST: Final = 25.0  # events; as client-go's event recorder has it
REFILL_SECONDS: Final = 300.0
"""Time until an object gets one more token, as client-go's event recorder has it."""
MAX_SERIES: Final = 4096
"""As client-go's event recorder has it."""
MAX_OBJECTS: Final = 4096


class Regarding(Struct, frozen=True):
    """The object that an event regards."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventKey(Struct, frozen=True):
    """Identity of an event: equal keys are repetitions of one event."""

    regarding: Regarding
    type: str
    reason: str
    action: str
    note: str


class Series:
    """An event object and its number of occurrences."""

    __slots__ = ("count", "count_due", "event", "first_seen", "last_seen", "last_written", "name", "written_count")

    def __init__(self, event: EventKey, name: str, now: float) -> None:
        self.event, self.name = event, name
        self.first_seen = self.last_seen = self.last_written = now
        self.count = self.written_count = 1
        self.count_due = False
        """A write of the count is scheduled and has not begun."""


class ObjectRateLimiter:
    """A token bucket per object: of at most `max_objects`, and each until it is full again."""

    def __init__(self, max_objects: int = MAX_OBJECTS) -> None:
        self._max_objects = max_objects
        self._buckets: OrderedDict[Regarding, _Bucket] = OrderedDict()

    def take(self, regarding: Regarding, now: float) -> bool:
        """Take a token of the object; False: it has none left, and the event is suppressed."""
        bucket = self._buckets.get(regarding)
        if bucket is None:
            bucket = self._buckets[regarding] = _Bucket(BURST, now)
            if len(self._buckets) > self._max_objects:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(regarding)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            bucket.suppressed += 1
            return False
        bucket.tokens -= 1
        return True

    def suppressed(self, regarding: Regarding) -> int:
        """Number of suppressed events of the object since the last `reset_suppressed`."""
        bucket = self._buckets.get(regarding)
        return bucket.suppressed if bucket else 0

    def reset_suppressed(self, regarding: Regarding) -> None:
        """Restart the count of suppressed events, after it has been logged."""
        bucket = self._buckets.get(regarding)
        if bucket:
            bucket.suppressed = 0

    def expire(self, now: float) -> None:
        """Drop the buckets that are full again."""
        full = [
            regarding
            for regarding, bucket in self._buckets.items()
            if bucket.tokens + (now - bucket.at) / REFILL_SECONDS >= BURST
        ]
        for regarding in full:
            del self._buckets[regarding]
        self._buckets = OrderedDict(self._buckets)

    def __len__(self) -> int:
        """Number of buckets."""
        return len(self._buckets)


class _Bucket:
    __slots__ = ("at", "suppressed", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens, self.at, self.suppressed = tokens, at, 0


class SeriesCache:
    """The most recent event series: at most `max_series`, and each until SERIES_SECONDS after its last event."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._known: OrderedDict[EventKey, Series] = OrderedDict()

    def find(self, event: EventKey, now: float) -> Series | None:
        """The series that this event repeats; None: the event is new."""
        series = self._known.get(event)
        if series is None or now - series.last_seen > SERIES_SECONDS:
            return None
        self._known.move_to_end(event)
        return series

    def add(self, series: Series) -> None:
        """Add a series; the one that repeated longest ago is dropped beyond `max_series`."""
        self._known[series.event] = series
        self._known.move_to_end(series.event)
        if len(self._known) > self._max_series:
            self._known.popitem(last=False)

    def forget(self, series: Series) -> None:
        """Drop a series whose object does not exist; the next occurrence creates a new one."""
        if self._known.get(series.event) is series:
            del self._known[series.event]

    def expire(self, now: float) -> None:
        """Drop the series that no event can continue any more."""
        ended = [event for event, series in self._known.items() if now - series.last_seen > SERIES_SECONDS]
        for event in ended:
            del self._known[event]
        self._known = OrderedDict(self._known)

    def __len__(self) -> int:
        """Number of series."""
        return len(self._known)
