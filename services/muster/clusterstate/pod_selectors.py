"""Pod selectors in use, and the pods that they select, so that subscribers can count pods by class.

A selector is in use as long as a pod that has not ended names it. The pods that it selects, and so their classes,
depend on the present state only: replicas that know the same pods have the same classes, and an id from one replica is
valid for another.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from muster.clusterstate.label_sets import EVERYWHERE, LabelSet, LabelSets
from muster.kube.selectors import Operator, PodSelector

_ANY: Final = ("", ())
"""In place of a label key and values: any labels."""
_NO_LABELS: Final[Mapping[str, str]] = {}

_Where = tuple[str, str, str]
"""A namespace or EVERYWHERE, a label key and a value; the latter are empty if the selector requires none."""


class _Named:
    """A selector, its index keys, and the number of pods that name it."""

    def __init__(self, selector: PodSelector, key: str, values: tuple[str, ...]) -> None:
        self.selector = selector
        self.key = key
        self.values = values
        self.users = 0

    @property
    def namespaces(self) -> Iterable[str]:
        return (EVERYWHERE,) if self.selector.reaches_all_namespaces else self.selector.namespaces

    @property
    def places(self) -> Iterator[_Where]:
        for namespace in self.namespaces:
            for value in self.values or ("",):
                yield namespace, self.key, value


class Selectors:
    """Selectors and the label sets that they select. Methods return the label sets that are now selected by others."""

    def __init__(self) -> None:
        self._label_sets = LabelSets()
        self._named: dict[str, _Named] = {}
        self._of_pod: dict[str, tuple[PodSelector, ...]] = {}  # of pods that name any
        self._index: dict[_Where, dict[str, PodSelector]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._namespace_names: dict[str, str] = {}  # uid -> name

    def __len__(self) -> int:
        return len(self._named)

    @property
    def label_sets(self) -> int:
        """Number of different label sets."""
        return len(self._label_sets)

    def put_pod(self, uid: str, namespace: str, labels: Mapping[str, str] | None) -> LabelSet:
        """Add or update a pod; returns its label set."""
        label_set, is_new = self._label_sets.put(uid, namespace, labels)
        if is_new and self._index:
            label_set.selected_by = self._selecting(label_set)
        return label_set

    def drop_pod(self, uid: str) -> list[LabelSet]:
        """Remove a pod."""
        self._label_sets.drop(uid)
        return self.name(uid, ())

    def in_namespace(self, namespace: str) -> Collection[LabelSet]:
        """Label sets of the pods of a namespace."""
        return self._label_sets.in_namespace(namespace)

    def label_set(self, uid: str) -> LabelSet:
        """The label set of a known pod."""
        return self._label_sets.of(uid)

    def name(self, uid: str, selectors: tuple[PodSelector, ...]) -> list[LabelSet]:
        """Set the selectors that a pod names."""
        before = self._of_pod.get(uid, ())
        if selectors == before:
            return []
        changed: list[LabelSet] = []
        for selector in selectors:
            changed += self._add(selector)
        for selector in before:
            changed += self._drop(selector)
        if selectors:
            self._of_pod[uid] = selectors
        else:
            del self._of_pod[uid]
        return changed

    def reads_namespaces(self, uid: str) -> bool:
        """The pod names a selector with a namespaceSelector."""
        return any(each.reads_namespaces for each in self._of_pod.get(uid, ()))

    def put_namespace(self, uid: str, name: str, labels: Mapping[str, str] | None) -> list[LabelSet]:
        """Add or update a namespace."""
        self._namespace_names[uid] = name
        before = self._namespaces.get(name, _NO_LABELS)
        self._namespaces[name] = labels or _NO_LABELS
        return self._reconsider(name) if before != self._namespaces[name] else []

    def drop_namespace(self, uid: str) -> list[LabelSet]:
        """Remove a namespace; another one may have its name by now."""
        name = self._namespace_names.pop(uid, None)
        if name is None or name in self._namespace_names.values():
            return []
        return self._reconsider(name) if self._namespaces.pop(name) else []

    def sweep(self) -> None:
        """Drop indexes that only selectors which are not in use any more needed."""
        self._label_sets.keep_indexes(
            {
                (namespace, key)
                for named in self._named.values()
                for key, _ in _handles(named.selector)
                for namespace in named.namespaces
            }
        )

    def _add(self, selector: PodSelector) -> list[LabelSet]:
        named = self._named.get(selector.id)
        if named is None:
            named = self._named[selector.id] = _Named(selector, *self._handle(selector))
        named.users += 1
        if named.users > 1 or selector.labels.requirements is None:
            return []
        for place in named.places:
            self._index.setdefault(place, {})[selector.id] = selector
        selected = [each for each in self._candidates(named) if self._selects(selector, each)]
        for each in selected:
            each.selected_by = tuple(sorted({*each.selected_by, selector.id}))
        return selected

    def _drop(self, selector: PodSelector) -> list[LabelSet]:
        named = self._named[selector.id]
        named.users -= 1
        if named.users:
            return []
        del self._named[selector.id]
        if selector.labels.requirements is None:
            return []
        for place in named.places:
            del self._index[place][selector.id]
            if not self._index[place]:
                del self._index[place]
        selected = [each for each in self._candidates(named) if selector.id in each.selected_by]
        for each in selected:
            each.selected_by = tuple(id_ for id_ in each.selected_by if id_ != selector.id)
        return selected

    def _handle(self, selector: PodSelector) -> tuple[str, tuple[str, ...]]:
        """The label key with the fewest label sets to look through for the selector's pods, and its values."""
        namespaces = (EVERYWHERE,) if selector.reaches_all_namespaces else selector.namespaces
        handles = _handles(selector)

        def crowd(handle: tuple[str, tuple[str, ...]]) -> int:
            key, values = handle
            selectors = sum(len(self._index.get((each, key, value), ())) for each in namespaces for value in values)
            return selectors + sum(self._label_sets.count(each, key, values) for each in namespaces)

        return min(handles, key=crowd) if len(handles) > 1 else handles[0] if handles else _ANY

    def _candidates(self, named: _Named) -> Iterator[LabelSet]:
        for namespace in named.namespaces:
            if named.key:
                yield from self._label_sets.having(namespace, named.key, named.values)
            else:
                yield from self._label_sets.in_namespace(namespace)

    def _reconsider(self, namespace: str) -> list[LabelSet]:
        """Select again in a namespace whose labels changed."""
        changed = []
        if any(named.selector.reads_namespaces for named in self._named.values()):
            for each in self._label_sets.in_namespace(namespace):
                selecting = self._selecting(each)
                if selecting != each.selected_by:
                    each.selected_by = selecting
                    changed.append(each)
        return changed

    def _selecting(self, label_set: LabelSet) -> tuple[str, ...]:
        own, labels = label_set.namespace, label_set.labels
        own_labels = self._namespaces.get(own, _NO_LABELS)
        found = []
        for namespace in (own, EVERYWHERE):
            for key, value in (("", ""), *labels.items()):
                there = self._index.get((namespace, key, value))
                if there is not None:
                    found += [each.id for each in there.values() if each.selects(own, own_labels, labels)]
        return tuple(sorted(found))

    def _selects(self, selector: PodSelector, label_set: LabelSet) -> bool:
        namespace = label_set.namespace
        return selector.selects(namespace, self._namespaces.get(namespace, _NO_LABELS), label_set.labels)


def _handles(selector: PodSelector) -> list[tuple[str, tuple[str, ...]]]:
    """Label keys that selected pods must have, and the values allowed."""
    return [(each.key, each.values) for each in selector.labels.requirements or () if each.operator is Operator.IN]
