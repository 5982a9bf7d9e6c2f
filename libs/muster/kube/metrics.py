"""Metrics of requests to the API server and of watches."""

from time import monotonic
from typing import Final, Protocol
from weakref import WeakValueDictionary

from muster.telemetry.metrics import CALL_BUCKETS, counter, histogram, sampled

REQUEST_SECONDS: Final = histogram(
    "rest_client_request_duration_seconds",
    "Duration of requests to the API server, the wait for a connection included; without watches.",
    CALL_BUCKETS,
    ("verb",),
)
REQUESTS: Final = counter(
    "rest_client_requests_total",
    'Requests to the API server by status code; "<error>": no response. Without watches.',
    ("code", "method"),
)
NO_RESPONSE: Final = "<error>"

EVENTS: Final = counter("muster_watch_events_total", "Events received from watches of the API server.", ("kind",))
LISTS: Final = counter(
    "muster_watch_lists_total", "Complete lists of a kind: at the start, and when a watch cannot be resumed.", ("kind",)
)
FAILURES: Final = counter("muster_watch_failures_total", "Failed lists and watches; all are retried.", ("kind",))
MALFORMED: Final = counter(
    "muster_malformed_objects_total",
    "Objects of a kind that could not be read, or only in part, at each list or change of them. Reasons: "
    "not_an_object, identity (no name or uid), revision (no usable resourceVersion), fields (some have wrong types), "
    "rejected (its content made a computation fail: a defect of Muster), encoding (facts of this kind could not be "
    "sent to subscribers, at each attempt: a defect of Muster).",
    ("kind", "reason"),
)
OBJECTS: Final = sampled("muster_watched_objects", "Objects of a kind as of its watch.", ("kind",))
IDLE: Final = sampled(
    "muster_watch_idle_seconds",
    "Time since the API server last sent anything about a kind. Idle watches are reopened every 30 s, which counts as "
    "a response.",
    ("kind",),
)


class Watched(Protocol):
    """An informer."""

    @property
    def kind(self) -> str: ...
    @property
    def objects(self) -> int: ...
    @property
    def last_response_at(self) -> float | None:
        """Time of the last response by the monotonic clock; None: never, or the kind is not available."""


_watched: Final[WeakValueDictionary[str, Watched]] = WeakValueDictionary()


def expose_watch(watched: Watched) -> None:
    """Expose the metrics of an informer while it exists; replaces an earlier one of the same kind."""
    _watched[watched.kind] = watched


def _objects() -> dict[tuple[str, ...], float]:
    return {(kind,): float(each.objects) for kind, each in _watched.items()}


def _idle() -> dict[tuple[str, ...], float]:
    now = monotonic()
    return {(kind,): now - at for kind, each in _watched.items() if (at := each.last_response_at) is not None}


OBJECTS.read_from(_objects)
IDLE.read_from(_idle)
