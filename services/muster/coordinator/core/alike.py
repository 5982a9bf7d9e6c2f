"""Groups that want just the same and had no place stand in a line: the first of them speaks for the others.

As long as it has no place they have none. When it has one, twice as many are asked for at once, and so on, so that a
long line of equal gangs costs as much as one while nothing fits, and few rounds when much room comes.

Room that is kept for somebody is open to the first of a line if it is open to any of them: what it is open to goes by
the place in the queue and by how long a gang runs, and all of one shape run equally long.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

from muster.coordinator.core.group import Group, QueueKey, Shape

MOST_AT_ONCE: Final = 1024
"""More are never let out of a line; a solve takes fewer."""
_BEHIND_REPAIRS: Final = (1,)


class Alike:
    """Lines by shape, each in queue order."""

    def __init__(self) -> None:
        self._lines: dict[Shape, list[tuple[QueueKey, str]]] = {}
        self._groups: dict[str, tuple[Group, Shape, QueueKey]] = {}
        self._at_once: dict[Shape, int] = {}

    def at_once(self, shape: Shape) -> int:
        """How many of a shape are asked for at once."""
        return self._at_once.get(shape, 1)

    def put(self, group: Group, shape: Shape) -> None:
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

    def first(self, shape: Shape) -> Group | None:
        """Who stands first in the line; None: there is none."""
        line = self._lines.get(shape)
        return self._groups[line[0][1]][0] if line else None

    def first_ones(self, shape: Shape, count: int) -> list[Group]:
        """So many, from the first on, or as many as there are."""
        return [self._groups[id_][0] for _, id_ in self._lines.get(shape, ())[: max(0, count)]]

    def shapes(self) -> Iterable[Shape]:
        """Of all lines."""
        return self._lines.keys()

    def behind(self, shape: Shape) -> Iterator[Group]:
        """All that stand in the line."""
        return (self._groups[id_][0] for _, id_ in self._lines.get(shape, ()))

    def heads(self) -> Iterator[Group]:
        """Of each line the first, and who has the highest priority: another, if what is half started goes first."""
        for line in self._lines.values():
            first = bisect_left(line, (_BEHIND_REPAIRS, ""))
            yield from (self._groups[line[index][1]][0] for index in {0, first} if index < len(line))

    def came_out(self, shape: Shape, *, fits: bool) -> None:
        """One that spoke has a place and there are others, or it is time to begin anew with one."""
        if fits:
            self._at_once[shape] = min(MOST_AT_ONCE, 2 * self.at_once(shape))
        else:
            self._at_once.pop(shape, None)
