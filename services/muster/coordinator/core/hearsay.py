"""What placement said of one group goes for those that it spoke for too: they hear of it by and by.

Explaining hundreds of gangs takes longer than starting the one that fits; so that comes first. A long line is gone
through a little at a time, from beginning to end, whatever is said meanwhile: so everyone hears, and the newest.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from muster.coordinator.core.group import Group, Shape
from muster.gangs.solve import Explanation

AT_ONCE: Final = 20
LOOKED_AT: Final = 2000
"""Those who have heard just that are passed over, but not endlessly many at once."""
PAUSE_SECONDS: Final = 0.1


class Hearsay:
    """What is to be told to whom: by shape."""

    def __init__(self, behind: Callable[[Shape], Iterable[Group]]) -> None:
        """`behind` are those for whom another speaks."""
        self._behind = behind
        self._said: dict[Shape, tuple[Explanation, int]] = {}
        self._walks: dict[Shape, Iterator[Group]] = {}
        self._again: set[Shape] = set()
        self._next = 0.0

    def put(self, shape: Shape, said: Explanation, gang_index: int) -> None:
        """The explanation is about the gang with this index of those that a group has to seat."""
        self._said[shape] = said, gang_index
        if shape in self._walks:
            self._again.add(shape)
        else:
            self._walks[shape] = iter(list(self._behind(shape)))

    def next_time(self) -> float | None:
        """When the next ones are to hear."""
        return self._next if self._walks else None

    def due(self, now: float) -> list[tuple[Group, Explanation, int]]:
        """Those that hear now."""
        told: list[tuple[Group, Explanation, int]] = []
        if not self._walks or now < self._next:
            return told
        self._next = now + PAUSE_SECONDS
        looked = 0
        for shape, walk in list(self._walks.items()):
            said, gang_index = self._said[shape]
            for group in walk:
                looked += 1
                if (group.said is None or group.said.summary != said.summary) and group.infeasible == shape:
                    told.append((group, said, gang_index))
                if len(told) >= AT_ONCE or looked >= LOOKED_AT:
                    self._walks[shape] = self._walks.pop(shape)  # after those of the others
                    return told
            self._ended(shape)
        return told

    def _ended(self, shape: Shape) -> None:
        del self._walks[shape]
        if shape in self._again:
            self._again.discard(shape)
            self._walks[shape] = iter(list(self._behind(shape)))
        else:
            del self._said[shape]
