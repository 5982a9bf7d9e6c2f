"""Metrics of the Watch stream and of the state."""

from typing import Final

from muster.telemetry.metrics import counter, sampled

SNAPSHOTS: Final = counter(
    "muster_snapshots_sent_total",
    "Snapshots sent to subscribers, by reason: subscribed, or behind (the subscriber did not keep up with changes).",
    ("reason",),
    known=[("subscribed",), ("behind",)],
)
CHANGES: Final = counter("muster_changes_published_total", "Changed facts that were sent to all subscribers.")
FACTS: Final = sampled("muster_facts", "Facts in the state of the cluster, by kind.", ("kind",))
