"""Node labels that gangs pack by: each gets a topology tree of its own."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Final

from muster.gangs.facts import GangFacts
from muster.topology.hyper_nodes import BY_TIER, BY_TIER_NAME
from muster.topology.trees import MAX_LABEL_KEY_TREES, label_key_of_tree

_HYPER_NODE_TREES: Final = (BY_TIER, BY_TIER_NAME)

_Age = tuple[int, str]
"""Creation time and id of a gang."""


class LabelKeyTrees:
    """Node labels that gangs pack by, and those that get a tree: users may name more than the limit. Entries end with
    the gang (I11).

    Namespaces take turns, so that gangs of one cannot take all trees (I13): first the label that the oldest gang of
    each namespace names, then the second label of each, and so on; in a turn, labels of older gangs come first. So
    every replica offers the same trees, whatever it saw first.
    """

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, _Age, tuple[str, ...]]] = {}  # gang id -> its namespace, age and labels
        self._gangs: Counter[str] = Counter()  # by label
        self._namespaces: dict[str, _Labels] = {}
        self._labels: list[str] = []
        self._of_hyper_nodes: set[str] = set()  # gangs, while they name a tree of HyperNodes

    def take(self, changed: Iterable[GangFacts], removed: Iterable[str]) -> bool:
        """Apply changed and removed gangs; returns whether the labels with a tree, or `hyper_nodes`, changed."""
        named, differs = self.hyper_nodes, False
        self._of_hyper_nodes.difference_update(removed := list(removed))
        for facts in changed:
            trees = facts.named_trees
            by_tier = any(tree in _HYPER_NODE_TREES for tree in trees)
            (self._of_hyper_nodes.add if by_tier else self._of_hyper_nodes.discard)(facts.id)
            keys = tuple(dict.fromkeys(key for tree in trees if (key := label_key_of_tree(tree))))
            differs |= self._put(facts.id, (facts.namespace, (facts.created_seconds, facts.id), keys))
        for gang_id in removed:
            differs |= self._put(gang_id, ("", (0, gang_id), ()))
        if not differs:
            return named != self.hyper_nodes
        before, self._labels = self._labels, self._chosen()
        return named != self.hyper_nodes or before != self._labels

    @property
    def hyper_nodes(self) -> bool:
        """Whether a gang names a tree of HyperNodes."""
        return bool(self._of_hyper_nodes)

    def labels(self) -> list[str]:
        """Labels that get a tree, sorted."""
        return self._labels

    def _put(self, gang_id: str, asks: tuple[str, _Age, tuple[str, ...]]) -> bool:
        """Note what a gang names, which may be nothing; returns whether that differs."""
        before = self._asked.get(gang_id, ("", asks[1], ()))
        if before == asks or not (before[2] or asks[2]):
            return False
        for sign, (namespace, age, keys) in ((-1, before), (1, asks)):
            for key in keys:
                self._count(namespace, key, age, sign)
        if asks[2]:
            self._asked[gang_id] = asks
        else:
            del self._asked[gang_id]
        return True

    def _count(self, namespace: str, key: str, age: _Age, sign: int) -> None:
        self._gangs[key] += sign
        if not self._gangs[key]:
            del self._gangs[key]
        labels = self._namespaces.setdefault(namespace, _Labels())
        if sign > 0:
            labels.add(key, age)
        else:
            labels.discard(key, age)
            if not labels.by_age:
                del self._namespaces[namespace]

    def _chosen(self) -> list[str]:
        if len(self._gangs) <= MAX_LABEL_KEY_TREES:
            return sorted(self._gangs)
        chosen: dict[str, None] = {}
        for turn in count():
            of_turn = sorted(each.by_age[turn] for each in self._namespaces.values() if turn < len(each.by_age))
            chosen.update((key, None) for _, key in of_turn)
            if len(chosen) >= MAX_LABEL_KEY_TREES:
                break
        return sorted(list(chosen)[:MAX_LABEL_KEY_TREES])


class _Labels:
    """Labels that gangs of one namespace name; `by_age` has each with the age of the oldest gang that names it."""

    __slots__ = ("_ages", "by_age")

    def __init__(self) -> None:
        self.by_age: list[tuple[_Age, str]] = []
        self._ages: dict[str, list[_Age]] = {}

    def add(self, key: str, age: _Age) -> None:
        ages = self._ages.setdefault(key, [])
        if ages and age < ages[0]:
            self._leave(ages[0], key)
        if not ages or age < ages[0]:
            insort(self.by_age, (age, key))
        insort(ages, age)

    def discard(self, key: str, age: _Age) -> None:
        ages = self._ages[key]
        at = bisect_left(ages, age)
        del ages[at]
        if at:
            return
        self._leave(age, key)
        if ages:
            insort(self.by_age, (ages[0], key))
        else:
            del self._ages[key]

    def _leave(self, age: _Age, key: str) -> None:
        del self.by_age[bisect_left(self.by_age, (age, key))]
