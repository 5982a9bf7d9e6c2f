"""Metrics of solving."""

from typing import Final

from muster.telemetry.metrics import SOLVE_BUCKETS, counter, histogram, sampled

OUTCOMES: Final = {1: "placed", 2: "infeasible", 3: "not_found", 4: "partly"}
"""Words for the outcomes of the contract; values as in the proto."""

SOLVE_SECONDS: Final = histogram(
    "muster_solve_duration_seconds",
    "How long batches took to solve, without the wait for a revision or for other batches.",
    SOLVE_BUCKETS,
)
GROUPS: Final = counter(
    "muster_solve_groups_total",
    "Gang groups that were asked for, by the answer: placed, infeasible (proved), not_found (in time) or partly.",
    ("outcome",),
    known=[(word,) for word in OUTCOMES.values()],
)
MIRRORED: Final = sampled("muster_mirror_objects", "What is known of the cluster.", ("kind",))
