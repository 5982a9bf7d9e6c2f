"""Figures from times: how long things took, and the longest time in which nothing happened."""

import statistics
from collections.abc import Sequence


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and the longest."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "p50": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "longest": round(ordered[-1], 3),
    }
