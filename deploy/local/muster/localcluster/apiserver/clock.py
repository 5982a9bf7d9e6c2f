"""Timestamps of the API, and durations in kubectl's format."""

import time
from datetime import UTC, datetime


def now_text() -> str:
    """Current time to the second: "2026-11-21T08:00:00Z"."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time()))  # gmtime() alone may be 10 ms behind


def later_text(seconds: float) -> str:
    """Time `seconds` from now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def parse_time(text: object) -> float | None:
    """Seconds since 1970 of an RFC 3339 time; None if it is invalid."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def age(text: object, now_seconds: float) -> str:
    """Age in kubectl's format: "5s", "3m2s", "4d"."""
    since = parse_time(text)
    return "<unknown>" if since is None else duration(now_seconds - since)


def duration(seconds: float) -> str:
    """Duration in at most two units, coarser for longer ones."""
    total = max(0, int(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
