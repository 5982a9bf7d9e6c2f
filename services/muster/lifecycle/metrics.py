"""Metrics of controllers, named as controllers of Kubernetes name them, and of the quota webhook."""

from typing import Final, Protocol
from weakref import WeakValueDictionary

from muster.telemetry.metrics import CALL_BUCKETS, counter, histogram, sampled

ADDS: Final = counter("workqueue_adds_total", "Keys that were put into a controller's queue.", ("name",))
RETRIES: Final = counter("workqueue_retries_total", "Looks at a key that failed and are repeated.", ("name",))
WORK_SECONDS: Final = histogram(
    "workqueue_work_duration_seconds", "How long a controller's looks at a key took.", CALL_BUCKETS, ("name",)
)
DEPTH: Final = sampled("workqueue_depth", "Keys that wait to be looked at.", ("name",))
REVIEW_SECONDS: Final = histogram(
    "muster_quota_review_duration_seconds",
    "How long reviews of new pods took, by the HTTP status of the answer: 200 is a decision, for or against; 503 could "
    "not be decided.",
    CALL_BUCKETS,
    ("code",),
)


class Queue(Protocol):
    """A controller's work."""

    @property
    def name(self) -> str: ...
    @property
    def depth(self) -> int: ...


_queues: Final[WeakValueDictionary[str, Queue]] = WeakValueDictionary()


def watch(queue: Queue) -> None:
    """Tell of it for as long as it is there, and of none before it with the same name."""
    _queues[queue.name] = queue


def _depths() -> dict[tuple[str, ...], float]:
    return {(name,): queue.depth for name, queue in _queues.items()}


DEPTH.read_from(_depths)
