"""Metrics of what is asked of the API server, and of what is watched there."""

from time import monotonic
from typing import Final, Protocol
from weakref import WeakValueDictionary

from muster.telemetry.metrics import CALL_BUCKETS, counter, histogram, sampled

REQUEST_SECONDS: Final = histogram(
    "rest_client_request_duration_seconds",
    "How long requests to the API server took, with the wait for a connection; watches are not among them.",
    CALL_BUCKETS,
    ("verb",),
)
REQUESTS: Final = counter(
    "rest_client_requests_total",
    'Requests to the API server by the status of the answer; "<error>" had none. Watches are not among them.',
    ("code", "method"),
)
NO_ANSWER: Final = "<error>"

EVENTS: Final = counter("muster_watch_events_total", "Lines that watches of the API server brought.", ("kind",))
LISTS: Final = counter(
    "muster_lists_total", "Times that a kind was listed whole: at the start, and when a watch cannot go on.", ("kind",)
)
FAILURES: Final = counter(
    "muster_watch_failures_total", "Lists and watches that failed and were tried again.", ("kind",)
)
OBJECTS: Final = sampled("muster_watched_objects", "Objects that are known of a kind.", ("kind",))
SILENCE: Final = sampled(
    "muster_watch_silence_seconds",
    "How long nothing was heard of the API server about a kind. A quiet watch is opened anew every 30 s, which counts "
    "as being heard.",
    ("kind",),
)


class Watched(Protocol):
    """What follows a kind."""

    @property
    def kind(self) -> str: ...
    @property
    def objects(self) -> int: ...
    @property
    def heard_at(self) -> float | None:
        """By the monotonic clock; None: it never was, or the kind is not to be had."""


_watched: Final[WeakValueDictionary[str, Watched]] = WeakValueDictionary()


def watch(watched: Watched) -> None:
    """Tell of it for as long as it is there, and of none before it that follows the same kind."""
    _watched[watched.kind] = watched


def _objects() -> dict[tuple[str, ...], float]:
    return {(kind,): float(each.objects) for kind, each in _watched.items()}


def _silence() -> dict[tuple[str, ...], float]:
    now = monotonic()
    return {(kind,): now - at for kind, each in _watched.items() if (at := each.heard_at) is not None}


OBJECTS.read_from(_objects)
SILENCE.read_from(_silence)
