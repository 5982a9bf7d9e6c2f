"""Slow groups: placement ran out of time for them. They are tried alone, for a bounded share of time, and namespaces
take turns.
"""

import heapq
from collections.abc import Callable
from typing import Final

from muster.coordinator.core.gang.gang import Group
from muster.coordinator.core.queue.active import namespace_of

SHARE: Final = 0.2
"""Share of placement's time for slow groups, all of them together, however many there are and whoever created them."""
_LONGEST_TURN_SECONDS: Final = 30.0
"""After this time a group that got its turn and was not tried no longer keeps the next one from its turn."""


class SlowGroups:
    """Slow groups that wait for their turn. Namespaces take turns; of a namespace those whose backoff ends first are in
    front.

    There is at most one entry per group. It ends with the group's turn, or at the namespace's next turn if the group
    waits no more.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[float, str]]] = {}
        """By namespace, the one that had its turn the longest ago first."""
        self._ids: set[str] = set()
        self._turn: str | None = None
        self._not_before = 0.0

    def wait(self, group: Group, until: float) -> None:
        """The group may have its turn from this time on."""
        if group.id not in self._ids:
            self._ids.add(group.id)
            heapq.heappush(self._waiting.setdefault(namespace_of(group.key), []), (until, group.id))

    def next_turn(self, now: float, waits: Callable[[str], bool]) -> str | None:
        """Id of the group whose turn begins now, if any; `waits`: whether a group with this id still waits."""
        if now < self._not_before:
            return None
        for namespace, waiting in list(self._waiting.items()):
            group_id = self._first(waiting, now, waits)
            if group_id is not None or not waiting:
                del self._waiting[namespace]
            if group_id is None:
                continue
            if waiting:
                self._waiting[namespace] = waiting
            self._turn = group_id
            self._not_before = now + _LONGEST_TURN_SECONDS
            return group_id
        return None

    def _first(self, waiting: list[tuple[float, str]], now: float, waits: Callable[[str], bool]) -> str | None:
        while waiting and waiting[0][0] <= now:
            _, group_id = heapq.heappop(waiting)
            self._ids.discard(group_id)
            if waits(group_id):
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
        first = min((waiting[0][0] for waiting in self._waiting.values()), default=None)
        return max(first, self._not_before) if first is not None else None
