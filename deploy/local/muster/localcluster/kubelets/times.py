"""Timestamps in the formats of kubelets."""

import time
from datetime import UTC, datetime


def now_text() -> str:
    """Current time to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def micro_text() -> str:
    """Current time to the microsecond, for leases."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_since(text: str | None) -> float:
    """Seconds since an RFC 3339 time; 0 if it is invalid."""
    if not text:
        return 0.0
    try:
        return max(0.0, time.time() - datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0.0
