"""Metrics of requests to etcd, measured by their callers."""

from typing import Final

from muster.telemetry.metrics import CALL_BUCKETS, counter, histogram

OPERATIONS: Final = ("range", "commit", "election", "health")

DURATION: Final = histogram(
    "muster_etcd_request_duration_seconds",
    "Duration of requests to etcd, queueing included: range reads records, commit writes them, election handles leases "
    "and the leader key, health is the probe of every second.",
    CALL_BUCKETS,
    ("operation",),
)
ERRORS: Final = counter(
    "muster_etcd_request_errors_total",
    "Requests that no etcd member answered in time, or that etcd rejected.",
    ("operation",),
    known=[(operation,) for operation in OPERATIONS],
)
