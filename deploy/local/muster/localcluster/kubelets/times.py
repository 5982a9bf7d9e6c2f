"""Times as kubelets write them."""

import time
from datetime import UTC, datetime


def now_text() -> str:
    """Now, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def micro_text() -> str:
    """Now, to the microsecond, as leases have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_since(text: str | None) -> float:
    """Seconds since a time in RFC 3339; 0 if it is none."""
    if not text:
        return 0.0
    try:
        return max(0.0, time.time() - datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0.0
