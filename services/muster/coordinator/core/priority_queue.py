"""A priority queue whose entries can be removed and moved: a heap in which outdated entries stay for a while."""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final, Generic, TypeVar

SPARE: Final = 64
"""Void entries for which the heap is not built anew."""

Key = TypeVar("Key", bound=Hashable)
Rank = TypeVar("Rank", bound=Any)
"""Ranks have an order; the lowest is first."""


class PriorityQueue(Generic[Key, Rank]):
    """Keys, each with a rank; of equal ranks the key that was added first is the first.

    An entry ends when it is discarded. Void entries of the heap are at most as many as the others and SPARE; none are
    left when the last entry is discarded.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, tuple[Rank, int, Key]] = {}
        self._heap: list[tuple[Rank, int, Key]] = []
        """Entries that `_entries` does not have are void."""
        self._serial = count()
        """In the order of entries: keys have none."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        """All keys, in the order in which they were added."""
        return iter(self._entries)

    def items(self) -> Iterator[tuple[Key, Rank]]:
        """All keys with their ranks, in the order in which they were added."""
        return ((key, entry[0]) for key, entry in self._entries.items())

    def put(self, key: Key, rank: Rank) -> None:
        """Set the rank of a key."""
        before = self._entries.get(key)
        if before is None or before[0] != rank:
            entry = self._entries[key] = (rank, before[1] if before is not None else next(self._serial), key)
            heappush(self._heap, entry)
            self._drop_void()

    def discard(self, key: Key) -> None:
        """Remove a key if it is there."""
        if self._entries.pop(key, None) is not None:
            self._drop_void()

    def first(self) -> tuple[Key, Rank] | None:
        """The key of the lowest rank, and the rank; None: there is no key."""
        heap = self._heap
        while heap and self._entries.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return (heap[0][2], heap[0][0]) if heap else None

    def _drop_void(self) -> None:
        if not self._entries or len(self._heap) > 2 * len(self._entries) + SPARE:
            self._heap = list(self._entries.values())
            heapify(self._heap)
