"""Groups that want just the same and had no place: the first of them speaks for the others.

As long as it has no place they have none. When it has one, twice as many are asked for at once, and so on, so that a
long queue of equal gangs costs as much as one while nothing fits, and few rounds when much room comes.
"""

from collections.abc import Iterable

from muster.coordinator.core.model import Group, Shape


class Alike:
    """Groups that others speak for, by shape."""

    def __init__(self) -> None:
        self._behind: dict[Shape, dict[str, Group]] = {}
        self._shape_of: dict[str, Shape] = {}
        self._at_once: dict[Shape, int] = {}

    def at_once(self, shape: Shape) -> int:
        """How many of a shape are asked for at once."""
        return self._at_once.get(shape, 1)

    def put(self, group: Group, shape: Shape) -> None:
        """Another speaks for the group."""
        self._behind.setdefault(shape, {})[group.id] = group
        self._shape_of[group.id] = shape

    def drop(self, group_id: str) -> None:
        """The group stands for itself, or went."""
        shape = self._shape_of.pop(group_id, None)
        if shape is not None:
            self._behind[shape].pop(group_id)
            if not self._behind[shape]:
                del self._behind[shape]

    def behind(self, shape: Shape) -> Iterable[Group]:
        """Those for which another speaks."""
        return self._behind.get(shape, {}).values()

    def settle(self, shape: Shape, *, fits: bool | None) -> list[Group]:
        """What became of those that spoke is known, or never will be (None): returns the others."""
        if fits:
            self._at_once[shape] = 2 * self.at_once(shape)
        else:
            self._at_once.pop(shape, None)
        return list(self.behind(shape))
