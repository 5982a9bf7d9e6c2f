"""Which events are worth an object of their own, which are repetitions of one, and which are too many.

The same event within 10 minutes raises the count of the first one; its count is written at most once per some seconds.
New ones draw from an allowance of the object they are about, so that nothing can flood the API server. Pure: the clock
is the caller's. What is remembered is bounded; what is forgotten costs an event more, never one less.
"""

from collections import OrderedDict
from typing import Final

from msgspec import Struct

SAME_SECONDS: Final = 600.0
COUNT_SECONDS: Final = 5.0
"""Between two writes of a count."""
BURST: Final = 25.0
REFILL_SECONDS: Final = 300.0
"""Until an object may have one event more. Both figures are those of the recorders of Kubernetes."""
MOST_SERIES: Final = 8192
MOST_OBJECTS: Final = 8192


class About(Struct, frozen=True):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Occurrence(Struct, frozen=True):
    """Equal ones are the same event."""

    about: About
    type: str
    reason: str
    action: str
    note: str


class Series:
    """An event object and how often it has happened."""

    __slots__ = ("count", "count_due", "event", "first_seen", "last_seen", "last_written", "name", "written_count")

    def __init__(self, event: Occurrence, name: str, now: float) -> None:
        self.event, self.name = event, name
        self.first_seen = self.last_seen = self.last_written = now
        self.count = self.written_count = 1
        self.count_due = False
        """A write of the count has been asked for and not begun."""


class Allowances:
    """A token bucket per object."""

    def __init__(self, most: int = MOST_OBJECTS) -> None:
        self._most = most
        self._buckets: OrderedDict[About, _Bucket] = OrderedDict()

    def take(self, about: About, now: float) -> bool:
        """True if the object may have one event more."""
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = self._buckets[about] = _Bucket(BURST, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(about)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            bucket.left_out += 1
            return False
        bucket.tokens -= 1
        return True

    def left_out(self, about: About) -> int:
        """Events that the object was refused since it was last given one."""
        bucket = self._buckets.get(about)
        return bucket.left_out if bucket else 0

    def forgive(self, about: About) -> None:
        """What was left out has been told: count anew."""
        bucket = self._buckets.get(about)
        if bucket:
            bucket.left_out = 0


class _Bucket:
    __slots__ = ("at", "left_out", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens, self.at, self.left_out = tokens, at, 0


class SeriesBook:
    """Remembers the events of the last minutes, the most recent ones."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._known: OrderedDict[Occurrence, Series] = OrderedDict()

    def find(self, event: Occurrence, now: float) -> Series | None:
        """The series that this is a repetition of."""
        series = self._known.get(event)
        if series is None or now - series.last_seen > SAME_SECONDS:
            return None
        self._known.move_to_end(event)
        return series

    def begin(self, series: Series) -> None:
        """Remember it."""
        self._known[series.event] = series
        self._known.move_to_end(series.event)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def forget(self, series: Series) -> None:
        """There is no such object at the API server; the next occurrence begins anew."""
        if self._known.get(series.event) is series:
            del self._known[series.event]
