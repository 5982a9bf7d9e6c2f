"""Metrics of the Watch stream and of the state."""

from typing import Final

from muster.telemetry.metrics import counter, sampled

SNAPSHOTS: Final = counter(
    "muster_snapshots_sent_total",
    "Snapshots sent to subscribers, by reason: subscribed, behind (the subscriber did not keep up with changes), or "
    "restored (the API server's revisions became lower).",
    ("reason",),
    known=[("subscribed",), ("behind",), ("restored",)],
)
CHANGES: Final = counter("muster_changes_published_total", "Changed facts that were sent to all subscribers.")
FACTS: Final = sampled("muster_facts", "Facts in the state of the cluster, by kind.", ("kind",))
