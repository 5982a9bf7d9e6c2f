"""Groups that want just the same and had no place stand in a line: the first of them speaks for the others.

As long as it has no place they have none. When it has one, twice as many are asked for at once, and so on, so that a
long line of equal gangs costs as much as one while nothing fits, and few rounds when much room comes.

Room that is kept for somebody is open to the first of a line if it is open to any of them: what it is open to goes by
the place in the queue and by how long a gang runs, and all of one shape run equally long.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from muster.coordinator.core.gang.group import Group, QueueKey
from muster.coordinator.core.gang.state import EquivalenceKey
from muster.gangs.solve import Explanation

MAX_AT_ONCE: Final = 1024
"""More are never let out of a line; a solve takes fewer."""
_BEHIND_REPAIRS: Final = (1,)


class EquivalenceClasses:
    """Lines by shape, each in queue order."""

    def __init__(self) -> None:
        self._lines: dict[EquivalenceKey, list[tuple[QueueKey, str]]] = {}
        self._groups: dict[str, tuple[Group, EquivalenceKey, QueueKey]] = {}
        self._at_once: dict[EquivalenceKey, int] = {}

    def at_once(self, shape: EquivalenceKey) -> int:
        """How many of a shape are asked for at once."""
        return self._at_once.get(shape, 1)

    def put(self, group: Group, shape: EquivalenceKey) -> None:
        """It stands in line, in its turn."""
        key = group.key
        self._groups[group.id] = group, shape, key
        insort(self._lines.setdefault(shape, []), (key, group.id))

    def drop(self, group_id: str) -> None:
        """The group stands for itself, or went."""
        if (found := self._groups.pop(group_id, None)) is None:
            return
        _, shape, key = found
        line = self._lines[shape]
        del line[bisect_left(line, (key, group_id))]
        if not line:
            del self._lines[shape]

    def first(self, shape: EquivalenceKey) -> Group | None:
        """Who stands first in the line; None: there is none."""
        line = self._lines.get(shape)
        return self._groups[line[0][1]][0] if line else None

    def first_ones(self, shape: EquivalenceKey, count: int) -> list[Group]:
        """So many, from the first on, or as many as there are."""
        return [self._groups[id_][0] for _, id_ in self._lines.get(shape, ())[: max(0, count)]]

    def shapes(self) -> Iterable[EquivalenceKey]:
        """Of all lines."""
        return self._lines.keys()

    def behind(self, shape: EquivalenceKey) -> Iterator[Group]:
        """All that stand in the line."""
        return (self._groups[id_][0] for _, id_ in self._lines.get(shape, ()))

    def heads(self) -> Iterator[Group]:
        """Of each line the first, and who has the highest priority: another, if what is half started goes first."""
        for line in self._lines.values():
            first = bisect_left(line, (_BEHIND_REPAIRS, ""))
            yield from (self._groups[line[index][1]][0] for index in {0, first} if index < len(line))

    def came_out(self, shape: EquivalenceKey, *, fits: bool) -> None:
        """One that spoke has a place and there are others, or it is time to begin anew with one."""
        if fits:
            self._at_once[shape] = min(MAX_AT_ONCE, 2 * self.at_once(shape))
        else:
            self._at_once.pop(shape, None)


AT_ONCE: Final = 20
LOOKED_AT: Final = 2000
"""Those who have heard just that are passed over, but not endlessly many at once."""
PAUSE_SECONDS: Final = 0.1


class Hearsay:
    """What is to be told to whom: by shape."""

    def __init__(self, behind: Callable[[EquivalenceKey], Iterable[Group]]) -> None:
        """`behind` are those for whom another speaks."""
        self._behind = behind
        self._said: dict[EquivalenceKey, tuple[Explanation, int]] = {}
        self._walks: dict[EquivalenceKey, Iterator[Group]] = {}
        self._again: set[EquivalenceKey] = set()
        self._next = 0.0

    def put(self, shape: EquivalenceKey, said: Explanation, gang_index: int) -> None:
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
                if (
                    group.solve.solver_explanation is None or group.solve.solver_explanation.summary != said.summary
                ) and group.queueing.equivalence_key == shape:
                    told.append((group, said, gang_index))
                if len(told) >= AT_ONCE or looked >= LOOKED_AT:
                    self._walks[shape] = self._walks.pop(shape)  # after those of the others
                    return told
            self._ended(shape)
        return told

    def _ended(self, shape: EquivalenceKey) -> None:
        del self._walks[shape]
        if shape in self._again:
            self._again.discard(shape)
            self._walks[shape] = iter(list(self._behind(shape)))
        else:
            del self._said[shape]
