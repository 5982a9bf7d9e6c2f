"""Metrics of the placement service."""

from typing import Final

from muster.telemetry.metrics import SOLVE_BUCKETS, counter, histogram, sampled

OUTCOMES: Final = {1: "placed", 2: "infeasible", 3: "not_found", 4: "partial"}
"""Label values of the contract's outcomes, by enum number."""

SOLVE_SECONDS: Final = histogram(
    "muster_solve_duration_seconds",
    "Time to solve a batch, without waiting for a revision or for other batches.",
    SOLVE_BUCKETS,
)
GROUPS: Final = counter(
    "muster_solve_groups_total",
    "Gang groups in solve requests, by outcome: placed, infeasible (proved), not_found (in time) or partial.",
    ("outcome",),
    known=[(word,) for word in OUTCOMES.values()],
)
OUT_OF_TIME: Final = counter(
    "muster_solve_groups_out_of_time_total",
    "Gang groups that were not found because they take too much time or memory; the coordinator sends each alone then.",
)
MIRRORED: Final = sampled("muster_mirror_objects", "Objects in the mirror of the cluster.", ("kind",))
