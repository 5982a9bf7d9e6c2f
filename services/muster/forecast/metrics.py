"""Metrics of forecast."""

from typing import Final

from muster.telemetry.metrics import counter, histogram, sampled

ANSWER_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
REASONS: Final = ("too_many_waiting", "too_many_pods", "invalid", "unavailable")

REQUESTS: Final = counter(
    "muster_forecast_requests_total",
    "Questions, by method and outcome: complete, partial (not all was found in time), cached, refused or failed.",
    ("method", "outcome"),
)
ANSWER_SECONDS: Final = histogram(
    "muster_forecast_answer_seconds",
    "Time to answer a question, without the time in which it waited for its turn, by method.",
    ANSWER_BUCKETS,
    ("method",),
)
REFUSALS: Final = counter(
    "muster_forecast_refusals_total",
    "Questions refused, by reason: too_many_waiting, too_many_pods, invalid, or unavailable (the cluster or the "
    "coordinator cannot be read).",
    ("reason",),
    [(reason,) for reason in REASONS],
)
WAITING: Final = sampled("muster_forecast_waiting_requests", "Questions that wait for their turn.")
STREAM_AGE: Final = sampled(
    "muster_forecast_stream_age_seconds", "Time since the last message of cluster-state, while the cluster is followed."
)
STARTS_AGE: Final = sampled(
    "muster_forecast_starts_age_seconds", "Age of the revision that the last expected starts are from."
)
