"""Metrics of what is written to the API server."""

from collections.abc import Mapping
from typing import Final

from muster.telemetry.metrics import counter, sampled

PODS_BOUND: Final = counter("muster_pods_bound_total", "Pods that are bound to the node that was decided.")
BIND_ERRORS: Final = counter(
    "muster_bind_errors_total",
    "Pods that could not be bound: conflict (it is on another node), gone (deleted, ended or replaced) or failed "
    "(refused, or there was no answer in time).",
    ("reason",),
    known=[("conflict",), ("gone",), ("failed",)],
)
EVICTIONS: Final = counter(
    "muster_evictions_total",
    "Pods that were to be evicted, by what came of it.",
    ("outcome",),
    known=[("evicted",), ("gone",), ("failed",)],
)
REPEATED: Final = counter(
    "muster_writes_repeated_total",
    "Tries of a write that have to be repeated: again (it alone had trouble) or strained (the API server asks for "
    "less, or does not answer, and all writes pause).",
    ("why",),
    known=[("again",), ("strained",)],
)
WAITING: Final = sampled("muster_writes_waiting", "Writes that wait for their turn, by what goes first.", ("urgency",))
IN_FLIGHT: Final = sampled("muster_writes_in_flight", "Writes that the API server has not answered yet.")


def binds_ended(outcomes: Mapping[str, int]) -> None:
    """All pods of a Bind call are settled."""
    for outcome, pods in outcomes.items():
        if outcome == "bound":
            PODS_BOUND.add(pods)
        else:
            BIND_ERRORS.labels(outcome).add(pods)


def evictions_ended(outcomes: Mapping[str, int]) -> None:
    """All pods of an Evict call are settled."""
    for outcome, pods in outcomes.items():
        EVICTIONS.labels(outcome).add(pods)
