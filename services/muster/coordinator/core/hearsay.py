"""What placement said of one group goes for those that it spoke for too: they hear of it by and by.

Explaining hundreds of gangs takes longer than starting the one that fits; so that comes first.
"""

from collections.abc import Iterator

from muster.coordinator.core.model import Group
from muster.gangs.placing import Explanation

AT_ONCE = 20
PAUSE_SECONDS = 0.1


class Hearsay:
    """Groups and what is to be told of them, the longest untold first; of each the newest."""

    def __init__(self) -> None:
        self._said: dict[Group, tuple[Explanation, int]] = {}
        self._next = 0.0

    def put(self, group: Group, said: Explanation, gang_index: int) -> None:
        """The explanation is about the gang with this index of those that the group has to seat."""
        if group.said is None or said.summary != group.said.summary or group in self._said:
            self._said[group] = (said, gang_index)

    def next_time(self) -> float | None:
        """When the next ones are to hear."""
        return self._next if self._said else None

    def due(self, now: float) -> Iterator[tuple[Group, Explanation, int]]:
        """Those that hear now."""
        if not self._said or now < self._next:
            return
        self._next = now + PAUSE_SECONDS
        for group in list(self._said)[:AT_ONCE]:
            said, gang_index = self._said.pop(group)
            yield group, said, gang_index
