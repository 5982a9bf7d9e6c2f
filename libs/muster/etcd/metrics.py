"""Metrics of requests to etcd, as their callers wait for them."""

from typing import Final

from muster.telemetry.metrics import CALL_BUCKETS, counter, histogram

OPERATIONS: Final = ("range", "commit", "election", "health")

DURATION: Final = histogram(
    "muster_etcd_request_duration_seconds",
    "How long requests to etcd took, with the wait for their turn: range reads records, commit writes them, election "
    "is about leases and the leader key, health is asked every second.",
    CALL_BUCKETS,
    ("operation",),
)
FAILURES: Final = counter(
    "muster_etcd_failures_total",
    "Requests that no etcd member answered in time, or refused.",
    ("operation",),
    known=[(operation,) for operation in OPERATIONS],
)
