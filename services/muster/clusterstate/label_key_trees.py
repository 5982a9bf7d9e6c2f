"""Node labels that gangs pack by: each gets a topology tree of its own."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from muster.gangs.facts import GangFacts
from muster.topology.hyper_nodes import BY_TIER, BY_TIER_NAME
from muster.topology.trees import MAX_LABEL_KEY_TREES, label_key_of_tree

_HYPER_NODE_TREES: Final = (BY_TIER, BY_TIER_NAME)


class LabelKeyTrees:
    """Node labels that gangs pack by, and those that get a tree: users may name more than the limit. Entries end with
    the gang (I11).

    Every replica must offer the same trees, whatever it saw first, so the labels of the oldest gangs are chosen.
    """

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, str, tuple[str, ...]]] = {}  # gang id -> its creation, its id, its labels
        self._gangs: Counter[str] = Counter()  # by label
        self._of_hyper_nodes: set[str] = set()  # gangs, while they name a tree of HyperNodes

    def take(self, changed: Iterable[GangFacts], removed: Iterable[str]) -> bool:
        """Apply changed and removed gangs; returns whether labels, the ages of their gangs or `hyper_nodes` changed."""
        before, named = set(self._gangs), self.hyper_nodes
        aged = False
        self._of_hyper_nodes.difference_update(removed := list(removed))
        for facts in changed:
            trees = facts.named_trees
            by_tier = any(tree in _HYPER_NODE_TREES for tree in trees)
            (self._of_hyper_nodes.add if by_tier else self._of_hyper_nodes.discard)(facts.id)
            keys = tuple(dict.fromkeys(key for tree in trees if (key := label_key_of_tree(tree))))
            asks = (facts.created_seconds, facts.id, keys) if keys else None
            aged |= asks != self._asked.get(facts.id)
            self._drop(facts.id)
            if asks is not None:
                self._asked[facts.id] = asks
                self._gangs.update(keys)
        for gang_id in removed:
            aged |= gang_id in self._asked
            self._drop(gang_id)
        return (
            named != self.hyper_nodes or before != set(self._gangs) or (aged and len(self._gangs) > MAX_LABEL_KEY_TREES)
        )

    @property
    def hyper_nodes(self) -> bool:
        """Whether a gang names a tree of HyperNodes."""
        return bool(self._of_hyper_nodes)

    def labels(self) -> list[str]:
        """Labels that get a tree, sorted."""
        if len(self._gangs) <= MAX_LABEL_KEY_TREES:
            return sorted(self._gangs)
        oldest: dict[str, None] = {}
        for _, _, keys in sorted(self._asked.values()):
            oldest.update(dict.fromkeys(keys))
            if len(oldest) >= MAX_LABEL_KEY_TREES:
                break
        return sorted(list(oldest)[:MAX_LABEL_KEY_TREES])

    def _drop(self, gang_id: str) -> None:
        _, _, keys = self._asked.pop(gang_id, (0, "", ()))
        for key in keys:
            self._gangs[key] -= 1
            if not self._gangs[key]:
                del self._gangs[key]
