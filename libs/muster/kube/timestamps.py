"""Kubernetes timestamps (RFC 3339) as seconds since 1970 UTC."""

from datetime import UTC, datetime
from typing import Final

from muster.gangs.byte_cache import cached_by_number
from muster.gangs.quoting import quoted

_LONGEST: Final = 64
"""Characters of a time, so that the cache is bounded."""


class BadTimestamp(ValueError):
    """Not an RFC 3339 time with a zone."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{quoted(text)} is not a time such as 2026-01-31T12:00:00Z")


def parse_timestamp(text: str) -> int:
    """Whole seconds since 1970 UTC, rounded down. Raises BadTimestamp."""
    if len(text) > _LONGEST:
        raise BadTimestamp(text)
    return _parsed(text)


@cached_by_number(4096)
def _parsed(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadTimestamp(text) from None
    if moment.tzinfo is None:
        raise BadTimestamp(text)
    return int(moment.timestamp() // 1)


def timestamp(unix_seconds: float) -> str:
    """Format a metav1.Time: whole seconds."""
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(unix_seconds: float) -> str:
    """Format a metav1.MicroTime: exactly six digits after the point."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
