"""A queue whose namespaces are served in turn, so that thousands of entries of one do not delay those of others."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Entry(NamedTuple, Generic[Key, Value]):
    """An entry that waits."""

    namespace: str
    key: Key
    value: Value


class FairQueue(Generic[Key, Value]):
    """Values by namespace and key, of which only the newest is kept. An entry ends when it is taken, discarded or
    dropped; a namespace without entries has none here. So there are no more than pairs of namespace and key wait.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[str, OrderedDict[Key, Value]] = OrderedDict()
        """By namespace, the one that was served the longest ago first."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, namespace: str, key: Key, value: Value) -> None:
        """Add a value, or replace the one of this key in its place."""
        entries = self._entries.setdefault(namespace, OrderedDict())
        self._length += key not in entries
        entries[key] = value

    def put_back(self, taken: Iterable[Entry[Key, Value]]) -> None:
        """Return entries that could not be served to the front, unless there are newer ones."""
        for namespace, key, value in reversed(list(taken)):
            entries = self._entries.setdefault(namespace, OrderedDict())
            if key not in entries:
                entries[key] = value
                self._length += 1
            entries.move_to_end(key, last=False)

    def take(self, most: int) -> list[Entry[Key, Value]]:
        """Remove so many entries, one of each namespace in turn."""
        taken: list[Entry[Key, Value]] = []
        while self._entries and len(taken) < most:
            namespace, entries = self._entries.popitem(last=False)
            taken.append(Entry(namespace, *entries.popitem(last=False)))
            if entries:
                self._entries[namespace] = entries
        self._length -= len(taken)
        return taken

    def discard(self, namespace: str, key: Key) -> None:
        """Remove an entry if it is there."""
        entries = self._entries.get(namespace)
        if entries is None or key not in entries:
            return
        del entries[key]
        self._length -= 1
        if not entries:
            del self._entries[namespace]

    def keep(self, accepted: Callable[[Key], bool]) -> None:
        """Remove all entries whose key is not accepted."""
        for namespace, entries in list(self._entries.items()):
            for key in [key for key in entries if not accepted(key)]:
                self.discard(namespace, key)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._length = 0

    def __iter__(self) -> Iterator[Key]:
        """All keys, by namespace."""
        return (key for entries in self._entries.values() for key in entries)

    def has(self, namespace: str, key: Key) -> bool:
        """Whether an entry of this key waits."""
        return key in self._entries.get(namespace, ())

    def take_first(self, accepted: Callable[[Key], bool]) -> Key | None:
        """Remove the first entry whose key is accepted, and return the key; None: there is none."""
        for namespace, entries in self._entries.items():
            key = next(filter(accepted, entries), None)
            if key is not None:
                del entries[key]
                self._length -= 1
                self._entries.move_to_end(namespace)
                if not entries:
                    del self._entries[namespace]
                return key
        return None

    def drop_down_to(self, most: int) -> int:
        """Drop the oldest entries of the namespace that has the most, until there are no more than `most` in all.
        Returns how many.
        """
        dropped = 0
        while self._length > most:
            entries = max(self._entries.values(), key=len)
            for _ in range(self._length - most):
                entries.popitem(last=False)
                self._length -= 1
                dropped += 1
                if len(entries) * len(self._entries) <= most:
                    break
        return dropped
