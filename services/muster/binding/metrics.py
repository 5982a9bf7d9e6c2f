"""Metrics of writes to the API server."""

from collections.abc import Mapping
from typing import Final

from muster.telemetry.metrics import counter, sampled

PODS_BOUND: Final = counter("muster_pods_bound_total", "Pods bound to the node of their permit.")
BIND_ERRORS: Final = counter(
    "muster_bind_errors_total",
    "Pods that could not be bound: conflict (bound to another node), gone (deleted, ended or replaced) or failed "
    "(rejected, or no answer before the deadline).",
    ("reason",),
    known=[("conflict",), ("gone",), ("failed",)],
)
EVICTIONS: Final = counter(
    "muster_evictions_total",
    "Requested evictions of pods by outcome.",
    ("outcome",),
    known=[("evicted",), ("gone",), ("failed",)],
)
DEALLOCATIONS: Final = counter(
    "muster_deallocations_total",
    "Stale allocations of ResourceClaims by outcome: deallocated, kept (the claim has changed, or its pod is bound) or "
    "failed.",
    ("outcome",),
    known=[("deallocated",), ("kept",), ("failed",)],
)
RETRIES: Final = counter(
    "muster_write_retries_total",
    "Write attempts that are retried: write_failed (only this write failed) or server_unavailable (the API server "
    "throttles or does not answer, and all writes pause).",
    ("reason",),
    known=[("write_failed",), ("server_unavailable",)],
)
EPOCHS_REFUSED: Final = counter(
    "muster_leader_epochs_refused_total",
    "Calls that were refused for their leader epoch: superseded (etcd has a later leader), unconfirmed (above that of "
    "the leader key in etcd: not a call of a leader) or unknown (the leader key could not be read).",
    ("reason",),
    known=[("superseded",), ("unconfirmed",), ("unknown",)],
)
PENDING: Final = sampled("muster_writes_pending", "Writes in the queue by type, in order of priority.", ("type",))
IN_FLIGHT: Final = sampled("muster_writes_in_flight", "Writes that the API server has not answered yet.")


def count_binds(outcomes: Mapping[str, int]) -> None:
    """Count the pods of a finished Bind call by outcome."""
    for outcome, pods in outcomes.items():
        if outcome == "bound":
            PODS_BOUND.add(pods)
        else:
            BIND_ERRORS.labels(outcome).add(pods)


def count_evictions(outcomes: Mapping[str, int]) -> None:
    """Count the pods of a finished Evict call by outcome."""
    for outcome, pods in outcomes.items():
        EVICTIONS.labels(outcome).add(pods)


def count_deallocations(outcomes: Mapping[str, int]) -> None:
    """Count claims of a Deallocate call by outcome."""
    for outcome, claims in outcomes.items():
        DEALLOCATIONS.labels(outcome).add(claims)
