"""Metrics of what subscribers are told."""

from typing import Final

from muster.telemetry.metrics import counter, sampled

SNAPSHOTS: Final = counter(
    "muster_snapshots_sent_total",
    "Snapshots that subscribers were sent: subscribed (they came) or behind (they did not keep up with the changes).",
    ("why",),
    known=[("subscribed",), ("behind",)],
)
CHANGES: Final = counter("muster_changes_published_total", "Facts that changed, and were told to all subscribers.")
FACTS: Final = sampled("muster_facts", "What the state of the cluster consists of, by kind of fact.", ("kind",))
