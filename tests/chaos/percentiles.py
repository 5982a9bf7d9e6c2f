"""Percentiles of durations."""

import statistics
from collections.abc import Sequence


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Returns the median, the 99th percentile and the maximum."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "p50": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "max": round(ordered[-1], 3),
    }
