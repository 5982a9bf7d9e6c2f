"""Metrics of the console."""

from typing import Final

from muster.telemetry.metrics import counter, sampled

STREAMS: Final = sampled("muster_console_streams", "Open event streams, one for each page that is open in a browser.")
REJECTED_STREAMS: Final = counter(
    "muster_console_rejected_streams_total", "Event streams rejected because there were too many."
)
REVIEWS: Final = counter(
    "muster_console_reviews_total",
    "Reviews by the API server, by kind (token or access) and outcome (allowed, denied or failed). Answers are cached.",
    ("kind", "outcome"),
)
EVENT_BYTES: Final = counter("muster_console_event_bytes_total", "Bytes of events sent to browsers.")
