"""How often a PodGroup may be restarted: one that breaks again and again must not keep the cluster busy. Pure.

The first restart is at once. The next waits 10 seconds since the last one, the one after that 20, up to five minutes; a
group that was quiet for ten minutes begins anew. A new leader knows of no restarts, and begins anew too.
"""

from typing import Final

from msgspec import Struct

_FIRST_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 300.0
_QUIET_SECONDS: Final = 600.0


class _Restarts(Struct, frozen=True):
    count: int
    last: float


class RestartPace:
    """Of all groups, by key. `now` is a clock that goes on evenly."""

    def __init__(self) -> None:
        self._restarts: dict[str, _Restarts] = {}

    def seconds_left(self, key: str, now: float) -> float:
        """Until it may be restarted; 0: now."""
        before = self._recent(key, now)
        if before is None:
            return 0.0
        pause = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(before.count - 1, 16))
        return max(0.0, before.last + pause - now)

    def note(self, key: str, now: float) -> None:
        """It is restarted now."""
        before = self._recent(key, now)
        self._restarts[key] = _Restarts(1 if before is None else before.count + 1, now)

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._restarts.pop(key, None)

    def _recent(self, key: str, now: float) -> _Restarts | None:
        before = self._restarts.get(key)
        return before if before is not None and now - before.last < _QUIET_SECONDS else None
