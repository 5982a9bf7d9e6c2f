"""Equivalence classes: groups with equal solve requests that had no place, of which a few representatives are tried.

As long as a representative has no place, its class has none. When one has a place, twice as many representatives are
tried at once, and so on. So a long line of equal gangs costs as much as one while nothing fits, and few rounds when
much capacity becomes free.

Nominated capacity is open to the first of a class if it is open to any of the class: openness depends on the queue
position and on how long a gang runs, and all groups of a class run equally long.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from muster.coordinator.core.gang.gang import EquivalenceKey, Group, QueueKey
from muster.gangs.solve import Explanation

MAX_REPRESENTATIVES: Final = 1024
"""Representatives of a class that are tried at once; a solve takes fewer."""
_BEHIND_REPAIRS: Final = (1,)

COPIES_AT_ONCE: Final = 20
COMPARED_AT_ONCE: Final = 2000
"""Groups that have the explanation already are skipped, but at most this many at once."""
COPY_PAUSE_SECONDS: Final = 0.1


class EquivalenceClasses:
    """Classes by key; their members in queue order. A class ends with its last member, and the number of its
    representatives when none of them is active either (`Queue.flush`).
    """

    def __init__(self) -> None:
        self._members: dict[EquivalenceKey, list[tuple[QueueKey, str]]] = {}
        self._groups: dict[str, tuple[Group, EquivalenceKey, QueueKey]] = {}
        self._representatives: dict[EquivalenceKey, int] = {}

    def __bool__(self) -> bool:
        return bool(self._members)

    def representatives(self, key: EquivalenceKey) -> int:
        """How many members are tried at once."""
        return self._representatives.get(key, 1)

    def add(self, group: Group, key: EquivalenceKey) -> None:
        position = group.key
        self._groups[group.id] = group, key, position
        insort(self._members.setdefault(key, []), (position, group.id))

    def discard(self, group_id: str) -> EquivalenceKey | None:
        """Returns the key of the class if it has no members any more."""
        if (found := self._groups.pop(group_id, None)) is None:
            return None
        _, key, position = found
        members = self._members[key]
        del members[bisect_left(members, (position, group_id))]
        if members:
            return None
        del self._members[key]
        return key

    def first(self, key: EquivalenceKey) -> Group | None:
        members = self._members.get(key)
        return self._groups[members[0][1]][0] if members else None

    def first_position(self, key: EquivalenceKey) -> QueueKey | None:
        """Queue position of the first member; None: there is none."""
        members = self._members.get(key)
        return members[0][0] if members else None

    def first_members(self, key: EquivalenceKey, count: int) -> list[Group]:
        """The first `count` members, or as many as there are."""
        return [self._groups[id_][0] for _, id_ in self._members.get(key, ())[: max(0, count)]]

    def members(self, key: EquivalenceKey) -> Iterator[Group]:
        return (self._groups[id_][0] for _, id_ in self._members.get(key, ()))

    def heads(self) -> Iterator[Group]:
        """Of each class the first member, and the one with the highest priority: another, if groups under repair are
        first.
        """
        for members in self._members.values():
            first = bisect_left(members, (_BEHIND_REPAIRS, ""))
            yield from (self._groups[members[index][1]][0] for index in {0, first} if index < len(members))

    def settle(self, key: EquivalenceKey, *, fits: bool) -> None:
        """A representative has a place and the class has more members; or the class starts with one again."""
        if fits:
            self._representatives[key] = min(MAX_REPRESENTATIVES, 2 * self.representatives(key))
        else:
            self._representatives.pop(key, None)


class ExplanationCopies:
    """Copies the infeasibility explanation of a representative to its class, at most 20 groups per 0.1 s. It also
    replaces the failure of a group's own last attempt.

    Explaining hundreds of gangs takes longer than starting the one that fits, so starting comes first. A class is
    walked from beginning to end even if there are newer explanations meanwhile, so that every member gets one, and the
    newest. At most one walk per class, which ends at the end of the class as it was when the walk began.
    """

    def __init__(self, members: Callable[[EquivalenceKey], Iterable[Group]]) -> None:
        self._members = members
        self._explanations: dict[EquivalenceKey, tuple[Explanation, int]] = {}
        self._walks: dict[EquivalenceKey, Iterator[Group]] = {}
        self._walk_again: set[EquivalenceKey] = set()
        self._next = 0.0

    def put(self, key: EquivalenceKey, explanation: Explanation, gang_index: int) -> None:
        """Copy the explanation, which is about the gang with this index of the group's gangs to place."""
        self._explanations[key] = explanation, gang_index
        if key in self._walks:
            self._walk_again.add(key)
        else:
            self._walks[key] = iter(list(self._members(key)))

    def put_joined(self, key: EquivalenceKey, member: Group) -> None:
        """Groups joined the class untried: copy the explanation of the member that is ahead of them."""
        explanation = member.solve.solver_explanation
        if key in self._walks:
            self._walk_again.add(key)
        elif explanation is not None:
            self.put(key, explanation, index_of(explanation, member))

    def next_time(self) -> float | None:
        return self._next if self._walks else None

    def due(self, now: float) -> list[tuple[Group, Explanation, int]]:
        """Groups whose explanation is to be replaced now, with the new one and its gang index."""
        due: list[tuple[Group, Explanation, int]] = []
        if not self._walks or now < self._next:
            return due
        self._next = now + COPY_PAUSE_SECONDS
        compared = 0
        for key, walk in list(self._walks.items()):
            explanation, gang_index = self._explanations[key]
            for group in walk:
                compared += 1
                has = group.solve.solver_explanation
                differs = has is None or has.summary != explanation.summary or bool(group.queueing.failure)
                if differs and group.queueing.equivalence_key == key:
                    due.append((group, explanation, gang_index))
                if len(due) >= COPIES_AT_ONCE or compared >= COMPARED_AT_ONCE:
                    self._walks[key] = self._walks.pop(key)  # the other classes first
                    return due
            self._end_walk(key)
        return due

    def _end_walk(self, key: EquivalenceKey) -> None:
        del self._walks[key]
        if key in self._walk_again:
            self._walk_again.discard(key)
            self._walks[key] = iter(list(self._members(key)))
        else:
            del self._explanations[key]


def index_of(explanation: Explanation, group: Group) -> int:
    """Index of the gang that the explanation is about in the group's gangs to place."""
    about = explanation.gang
    return next((index for index, gang in enumerate(group.gangs_to_place) if gang.id == about), 0)
