"""Times at which something is due, by key: the next one is known without a scan."""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter
from typing import Final, Generic, TypeVar

_SPARE: Final = 64

_K = TypeVar("_K", bound=Hashable)


class Deadlines(Generic[_K]):
    """Keys, each with a time.

    An entry ends when it is taken or discarded. Void entries of the heap are fewer than the others and _SPARE.
    """

    def __init__(self) -> None:
        self._entries: dict[_K, tuple[float, int, _K]] = {}
        self._heap: list[tuple[float, int, _K]] = []
        """Entries that `_entries` does not have are void."""
        self._serial = count()
        """In the order of entries: keys have none."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def put(self, key: _K, at: float) -> None:
        """Set the time of a key."""
        before = self._entries.get(key)
        if before is None or before[0] != at:
            entry = self._entries[key] = (at, before[1] if before is not None else next(self._serial), key)
            heappush(self._heap, entry)
            self._drop_void()

    def discard(self, key: _K) -> None:
        if self._entries.pop(key, None) is not None:
            self._drop_void()

    def next_time(self) -> float | None:
        """The earliest time."""
        heap = self._heap
        while heap and self._entries.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def any_due(self, now: float) -> bool:
        """The time of a key may have come; False: it has not."""
        return bool(self._heap) and self._heap[0][0] <= now

    def take_due(self, now: float) -> Iterator[_K]:
        """Remove the keys whose time has come, in the order in which they were added: each when it is iterated over."""
        return self._take(now) if self.any_due(now) else iter(())

    def _take(self, now: float) -> Iterator[_K]:
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap))
        for entry in sorted(due, key=itemgetter(1)):
            key = entry[2]
            if self._entries.get(key) is entry:
                del self._entries[key]
                yield key

    def _drop_void(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            self._heap = list(self._entries.values())
            heapify(self._heap)
