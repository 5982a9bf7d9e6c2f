"""Label sets of pods, each stored once: most pods of one template have equal labels and share what follows from them.

A label set is kept while pods have it, and until the second sweep after the last one ended: coordinator and placement
may still name it then.

Pods with a certain label are found by an index that is built on first use. So clusters without disruption budgets pay
for none, and in others only the keys that budgets name are indexed, in their namespaces.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from muster.clusterstate.pod_classes import SWEPT_AT_ONCE
from muster.gangs.selectors import LabelSelector, LabelSet, Operator

_NO_LABELS: Final[Mapping[str, str]] = {}

_Content = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Namespace, keys and values."""


class LabelledPods(Struct, eq=False, gc=False):
    """Pods of one label set, and ids of the disruption budgets that cover it, sorted.

    Every pod may have a label set of its own, so this is small: `pods` is a single uid if there is only one pod.
    """

    label_set: LabelSet
    pods: str | set[str] | None
    budgets: tuple[str, ...] = ()

    def value(self, key: str) -> str | None:
        """The value of one label; faster than `label_set.labels`."""
        keys = self.label_set.keys
        at = bisect_left(keys, key)
        return self.label_set.values[at] if at < len(keys) and keys[at] == key else None

    @property
    def uids(self) -> Collection[str]:
        """Uids of its pods."""
        return () if self.pods is None else (self.pods,) if isinstance(self.pods, str) else self.pods

    def add(self, uid: str) -> None:
        """Add a pod."""
        if self.pods is None:
            self.pods = uid
        elif isinstance(self.pods, str):
            self.pods = {self.pods, uid}
        else:
            self.pods.add(uid)

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        if isinstance(self.pods, set):
            self.pods.discard(uid)
            if self.pods:
                return
        self.pods = None


def selected(candidates: Iterable[LabelledPods], selector: LabelSelector) -> list[LabelledPods]:
    """Returns the label sets that a selector selects."""
    if selector.requirements is None:
        return []
    found = list(candidates)
    for each in selector.requirements:
        key, values = each.key, frozenset(each.values)
        match each.operator:
            case Operator.IN:
                found = [labelled for labelled in found if labelled.value(key) in values]
            case Operator.NOT_IN:
                found = [labelled for labelled in found if labelled.value(key) not in values]
            case Operator.EXISTS:
                found = [labelled for labelled in found if labelled.value(key) is not None]
            case Operator.DOES_NOT_EXIST:
                found = [labelled for labelled in found if labelled.value(key) is None]
    return found


class LabelSets:
    """All label sets that pods have. `changed` collects those to send to subscribers, None for removed ones."""

    def __init__(self) -> None:
        self.changed: dict[str, LabelSet | None] = {}
        self._sets: dict[_Content, LabelledPods] = {}
        self._of_pod: dict[str, LabelledPods] = {}
        self._without_pods: dict[_Content, bool] = {}  # whether it had none at the last sweep either
        self._of_namespace: dict[str, set[LabelledPods]] = {}
        self._by_key: dict[tuple[str, str], dict[str, set[LabelledPods]]] = {}  # (namespace, key) -> value -> sets

    def __len__(self) -> int:
        return len(self._sets)

    def of(self, uid: str) -> LabelledPods:
        """The set of a known pod."""
        return self._of_pod[uid]

    def all(self) -> tuple[LabelSet, ...]:
        """All known label sets."""
        return tuple([each.label_set for each in self._sets.values()])

    def put(self, uid: str, namespace: str, labels: Mapping[str, str] | None) -> tuple[LabelledPods, bool]:
        """Add or update a pod; returns its set, and whether the set is new."""
        labels = labels or _NO_LABELS
        content = (namespace, tuple(labels), tuple(labels.values()))
        found, before = self._sets.get(content), self._of_pod.get(uid)
        if found is None:
            pairs = sorted(labels.items())
            content = (namespace, tuple([key for key, _ in pairs]), tuple([value for _, value in pairs]))
            found = self._sets.get(content)
        if before is not None:
            if before is found:
                return before, False
            self._leave(before, uid)
        is_new = found is None
        if found is None:
            found = self._sets[content] = LabelledPods(LabelSet(_id(content), *content), uid)
            self.changed[found.label_set.id] = found.label_set
            self._index(found)
        else:
            found.add(uid)
            if self._without_pods:
                self._without_pods.pop(content, None)
        self._of_pod[uid] = found
        return found, is_new

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        known = self._of_pod.pop(uid, None)
        if known is not None:
            self._leave(known, uid)

    def sweep(self, needed_indexes: Collection[tuple[str, str]]) -> Iterator[None]:
        """Drop sets that had no pod at the last sweep and have none now, and indexes of other namespaces and keys than
        the needed ones; these are built again on use. Yields after SWEPT_AT_ONCE sets; sets may be added and lose their
        pods meanwhile.
        """
        for number, content in enumerate(list(self._without_pods), start=1):
            if self._without_pods.get(content):
                self._forget(content)
            elif content in self._without_pods:
                self._without_pods[content] = True
            if number % SWEPT_AT_ONCE == 0:
                yield
        for name in self._by_key.keys() - set(needed_indexes):
            del self._by_key[name]

    def in_namespace(self, namespace: str) -> Collection[LabelledPods]:
        """All sets of a namespace."""
        return self._of_namespace.get(namespace, ())

    def having(self, namespace: str, key: str, values: Collection[str]) -> list[LabelledPods]:
        """Sets of a namespace that have one of these values for a label, or the label if there are no values."""
        by_value = self._by_value(namespace, key)
        return [each for value in values or by_value for each in by_value.get(value, ())]

    def count(self, namespace: str, key: str, values: Collection[str]) -> int:
        """Number of sets that `having` returns."""
        by_value = self._by_value(namespace, key)
        return sum(len(by_value.get(value, ())) for value in values or by_value)

    def _by_value(self, namespace: str, key: str) -> dict[str, set[LabelledPods]]:
        by_value = self._by_key.get((namespace, key))
        if by_value is None:
            by_value = self._by_key[namespace, key] = {}
            for each in self.in_namespace(namespace):
                if (value := each.value(key)) is not None:
                    by_value.setdefault(value, set()).add(each)
        return by_value

    def _index(self, new: LabelledPods) -> None:
        self._of_namespace.setdefault(new.label_set.namespace, set()).add(new)
        for by_value, value in self._indexes_of(new):
            by_value.setdefault(value, set()).add(new)

    def _leave(self, known: LabelledPods, uid: str) -> None:
        known.drop(uid)
        if known.pods is None:
            each = known.label_set
            self._without_pods[each.namespace, each.keys, each.values] = False

    def _forget(self, content: _Content) -> None:
        known = self._sets.pop(content)
        del self._without_pods[content]
        namespace = known.label_set.namespace
        self.changed[known.label_set.id] = None
        there = self._of_namespace[namespace]
        there.discard(known)
        if not there:
            del self._of_namespace[namespace]
        for by_value, value in self._indexes_of(known):
            sets = by_value[value]
            sets.discard(known)
            if not sets:
                del by_value[value]

    def _indexes_of(self, each: LabelledPods) -> Iterable[tuple[dict[str, set[LabelledPods]], str]]:
        if not self._by_key:
            return
        label_set = each.label_set
        for key, value in zip(label_set.keys, label_set.values, strict=True):
            if (by_value := self._by_key.get((label_set.namespace, key))) is not None:
                yield by_value, value


def _id(content: _Content) -> str:
    namespace, keys, values = content
    return blake2b("\0".join((namespace, *keys, *values)).encode(), digest_size=16).hexdigest()
