"""Label sets of pods, each stored once: most pods of one template have equal labels and share what follows from them.

Pods with a certain label are found by an index that is built on first use. So clusters without pod selectors pay for
none, and in others only the keys that selectors name are indexed.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

EVERYWHERE: Final = ""
"""In place of a namespace: all namespaces."""

_DELIMITER: Final = "\0"  # never part of a label or of the name of a namespace


class LabelSet(Struct, eq=False, gc=False):
    """Pods of a namespace with equal labels, and ids of the selectors that select them, sorted.

    Every pod may have a set of its own, so it is small: `name` encodes namespace and labels, and `pods` is a single uid
    if there is only one pod.
    """

    name: str
    pods: str | set[str]
    selected_by: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        return self.name.partition(_DELIMITER)[0]

    @property
    def labels(self) -> dict[str, str]:
        _, *parts = self.name.split(_DELIMITER)
        half = len(parts) // 2
        return dict(zip(parts[:half], parts[half:], strict=True))

    def value(self, key: str) -> str | None:
        """The value of one label; twice as fast as `labels`."""
        parts = self.name.split(_DELIMITER)
        half = len(parts) // 2
        keys = parts[1 : half + 1]
        return parts[1 + half + keys.index(key)] if key in keys else None

    @property
    def uids(self) -> Collection[str]:
        """Uids of its pods."""
        return (self.pods,) if isinstance(self.pods, str) else self.pods

    def add(self, uid: str) -> None:
        """Add a pod."""
        if isinstance(self.pods, str):
            self.pods = {self.pods}
        self.pods.add(uid)

    def drop(self, uid: str) -> bool:
        """Remove a pod; returns False if it was the last one."""
        if isinstance(self.pods, str):
            return False
        self.pods.discard(uid)
        return bool(self.pods)


def _name(namespace: str, labels: Mapping[str, str] | None) -> str:
    return _DELIMITER.join((namespace, *labels, *labels.values())) if labels else namespace


class LabelSets:
    """All label sets that pods have."""

    def __init__(self) -> None:
        self._sets: dict[str, LabelSet] = {}
        self._of_pod: dict[str, LabelSet] = {}
        self._of_namespace: dict[str, set[LabelSet]] = {}
        self._by_key: dict[tuple[str, str], dict[str, set[LabelSet]]] = {}  # (namespace, key) -> value -> sets

    def __len__(self) -> int:
        return len(self._sets)

    def of(self, uid: str) -> LabelSet:
        """The set of a known pod."""
        return self._of_pod[uid]

    def put(self, uid: str, namespace: str, labels: Mapping[str, str] | None) -> tuple[LabelSet, bool]:
        """Add or update a pod; returns its set, and whether the set is new."""
        name = _name(namespace, labels)
        known = self._of_pod.get(uid)
        if known is not None:
            if known.name == name:
                return known, False
            self._leave(known, uid)
        found = self._sets.get(name)
        is_new = found is None
        if found is None:
            found = self._sets[name] = LabelSet(name, uid)
            self._index(found)
        else:
            found.add(uid)
        self._of_pod[uid] = found
        return found, is_new

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        known = self._of_pod.pop(uid, None)
        if known is not None:
            self._leave(known, uid)

    def in_namespace(self, namespace: str) -> Collection[LabelSet]:
        """All sets of a namespace or EVERYWHERE."""
        return self._sets.values() if namespace == EVERYWHERE else self._of_namespace.get(namespace, ())

    def having(self, namespace: str, key: str, values: Iterable[str]) -> list[LabelSet]:
        """Sets of a namespace or EVERYWHERE that have one of these values for a label."""
        by_value = self._by_value(namespace, key)
        return [each for value in values for each in by_value.get(value, ())]

    def count(self, namespace: str, key: str, values: Iterable[str]) -> int:
        """Number of sets that `having` returns."""
        by_value = self._by_value(namespace, key)
        return sum(len(by_value.get(value, ())) for value in values)

    def keep_indexes(self, needed: Collection[tuple[str, str]]) -> None:
        """Keep only the indexes of these namespaces and keys; others are built again on use."""
        for name in self._by_key.keys() - set(needed):
            del self._by_key[name]

    def _by_value(self, namespace: str, key: str) -> dict[str, set[LabelSet]]:
        by_value = self._by_key.get((namespace, key))
        if by_value is None:
            by_value = self._by_key[namespace, key] = {}
            for each in self.in_namespace(namespace):
                if (value := each.value(key)) is not None:
                    by_value.setdefault(value, set()).add(each)
        return by_value

    def _index(self, new: LabelSet) -> None:
        self._of_namespace.setdefault(new.namespace, set()).add(new)
        for by_value, value in self._indexes_of(new):
            by_value.setdefault(value, set()).add(new)

    def _leave(self, known: LabelSet, uid: str) -> None:
        if known.drop(uid):
            return
        del self._sets[known.name]
        namespace = known.namespace
        there = self._of_namespace[namespace]
        there.discard(known)
        if not there:
            del self._of_namespace[namespace]
        for by_value, value in self._indexes_of(known):
            sets = by_value[value]
            sets.discard(known)
            if not sets:
                del by_value[value]

    def _indexes_of(self, each: LabelSet) -> Iterable[tuple[dict[str, set[LabelSet]], str]]:
        if not self._by_key:
            return
        places = (each.namespace, EVERYWHERE)
        for key, value in each.labels.items():
            for place in places:
                if (by_value := self._by_key.get((place, key))) is not None:
                    yield by_value, value
