"""Times at which something is due, by key: the next one is known without a scan."""

from collections.abc import Iterator
from heapq import heappop
from operator import itemgetter

from muster.coordinator.core.priority_queue import Key, PriorityQueue


class Deadlines(PriorityQueue[Key, float]):
    """Keys, each with a time. An entry ends when it is taken or discarded."""

    def next_time(self) -> float | None:
        """The earliest time."""
        earliest = self.first()
        return earliest[1] if earliest is not None else None

    def any_due(self, now: float) -> bool:
        """The time of a key may have come; False: it has not."""
        return bool(self._heap) and self._heap[0][0] <= now

    def take_due(self, now: float) -> Iterator[Key]:
        """Remove the keys whose time has come, in the order in which they were added: each when it is iterated over."""
        return self._take(now) if self.any_due(now) else iter(())

    def _take(self, now: float) -> Iterator[Key]:
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap))
        for entry in sorted(due, key=itemgetter(1)):
            key = entry[2]
            if self._entries.get(key) is entry:
                del self._entries[key]
                yield key
