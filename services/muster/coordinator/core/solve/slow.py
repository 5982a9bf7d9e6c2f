"""Slow groups: placement ran out of time for them. They are tried alone, in turn, for a bounded share of time."""

import heapq
from collections.abc import Callable
from typing import Final

from muster.coordinator.core.gang.gang import Group

SHARE: Final = 0.2
"""Share of placement's time for slow groups, all of them together, however many there are and whoever created them."""
_LONGEST_TURN_SECONDS: Final = 30.0
"""After this time a group that got its turn and was not tried no longer keeps the next one from its turn."""


class SlowGroups:
    """Slow groups that wait for their turn, those whose backoff ends first in front.

    There is at most one entry per group. It ends with the group's turn, or at the next turn if the group waits no more.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, str]] = []
        self._ids: set[str] = set()
        self._turn: str | None = None
        self._not_before = 0.0

    def wait(self, group: Group, until: float) -> None:
        """The group may have its turn from this time on."""
        if group.id not in self._ids:
            self._ids.add(group.id)
            heapq.heappush(self._waiting, (until, group.id))

    def next_turn(self, now: float, waits: Callable[[str], bool]) -> str | None:
        """Id of the group whose turn begins now, if any; `waits`: whether a group with this id still waits."""
        if now < self._not_before:
            return None
        while self._waiting and self._waiting[0][0] <= now:
            _, group_id = heapq.heappop(self._waiting)
            self._ids.discard(group_id)
            if waits(group_id):
                self._turn = group_id
                self._not_before = now + _LONGEST_TURN_SECONDS
                return group_id
        return None

    def has_turn(self, group: Group) -> bool:
        """The group may be tried now."""
        return group.id == self._turn

    def tried(self, group: Group, seconds: float, now: float) -> None:
        """The group's try ended after so many seconds."""
        if group.id == self._turn:
            self._turn = None
            self._not_before = now + seconds * (1 / SHARE - 1)

    def next_time(self) -> float | None:
        """When the next turn may begin; None: no group waits."""
        return max(self._waiting[0][0], self._not_before) if self._waiting else None
