"""Metrics of controllers, named as controllers of Kubernetes name them, and of webhooks."""

from typing import Final, Protocol
from weakref import WeakValueDictionary

from muster.telemetry.metrics import CALL_BUCKETS, counter, histogram, sampled

ADDS: Final = counter("workqueue_adds_total", "Keys added to a controller's queue.", ("name",))
RETRIES: Final = counter("workqueue_retries_total", "Failed reconciliations of a key that are retried.", ("name",))
WORK_SECONDS: Final = histogram(
    "workqueue_work_duration_seconds", "Duration of a controller's reconciliations of a key.", CALL_BUCKETS, ("name",)
)
DEPTH: Final = sampled("workqueue_depth", "Keys waiting in a controller's queue.", ("name",))
QUOTA_REVIEW_SECONDS: Final = histogram(
    "muster_quota_review_duration_seconds",
    "Duration of admission reviews of new pods, by the HTTP status of the response: 200 is a decision to allow or "
    "reject; 503 means no decision was possible.",
    CALL_BUCKETS,
    ("code",),
)
DEVICE_REVIEW_SECONDS: Final = histogram(
    "muster_device_review_duration_seconds",
    "Duration of admission reviews of allocations of devices, by the HTTP status of the response: 200 is a decision to "
    "allow or reject; 503 means no decision was possible.",
    CALL_BUCKETS,
    ("code",),
)
DEVICE_CONFLICTS: Final = counter(
    "muster_device_conflicts_total", "Allocations of devices that were rejected, since another claim has them."
)


class Queue(Protocol):
    """A controller's work queue."""

    @property
    def name(self) -> str: ...
    @property
    def depth(self) -> int: ...


_queues: Final[WeakValueDictionary[str, Queue]] = WeakValueDictionary()


def watch(queue: Queue) -> None:
    """Exposes the depth of a queue while it exists, in place of an earlier one with the same name."""
    _queues[queue.name] = queue


def _depths() -> dict[tuple[str, ...], float]:
    return {(name,): queue.depth for name, queue in _queues.items()}


DEPTH.read_from(_depths)
