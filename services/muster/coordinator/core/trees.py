"""The topology trees that gangs may go by, and where in them nodes are."""

from collections.abc import Iterable, Sequence
from typing import Final

from muster.gangs.facts import NodeFacts, TopologyTree

FLAT: Final = TopologyTree("flat", default=True)
"""What there is when no tree is known: nodes, and no level above them."""
_MOST_NAMED = 10

Path = tuple[str, ...]
"""Names of the domains that a node is in, from the top to the node itself; so many as the tree has levels."""


class Trees:
    """Trees by name; one is the default."""

    def __init__(self) -> None:
        self._trees: dict[str, TopologyTree] = {}
        self._leaves: dict[str, dict[str, int]] = {}  # tree -> node -> index of its domain

    def put(self, trees: Iterable[TopologyTree]) -> bool:
        """Add trees, or change them. True: there is something that gangs may have waited for."""
        changed = False
        for tree in trees:
            changed |= not _same(self._trees.get(tree.name), tree)
            self._trees[tree.name] = tree
            self._leaves.pop(tree.name, None)
        return changed

    def drop(self, names: Iterable[str]) -> bool:
        """Forget trees; unknown ones are passed over. True: one of them was there."""
        dropped = False
        for name in names:
            dropped |= self._trees.pop(name, None) is not None
            self._leaves.pop(name, None)
        return dropped

    def all(self) -> Sequence[TopologyTree]:
        """All trees, by name."""
        return [self._trees[name] for name in sorted(self._trees)]

    def get(self, name: str) -> TopologyTree | None:
        """The tree of this name, "" for the default one; None if there is none."""
        if name:
            return self._trees.get(name) or (FLAT if name == FLAT.name else None)
        return next((tree for tree in self.all() if tree.default), FLAT)

    def named(self) -> str:
        """The names that there are, as users may choose among them."""
        names = sorted(self._trees) or [FLAT.name]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(f'"{name}"' for name in names[:_MOST_NAMED]) + more

    def path(self, tree: TopologyTree, node: NodeFacts) -> Path:
        """Where the node is. One that the tree does not know is a domain of its own at every level."""
        above = tree.levels[:-1]
        if above and above[0].label_key:
            names = [node.labels.get(level.label_key, "") for level in above]
        else:
            names = self._names_above(tree, node.name)
        if len(names) != len(above) or not all(names):
            return (f"(outside) {node.name}",) * len(tree.levels)
        return (*names, node.name)

    def _names_above(self, tree: TopologyTree, node: str) -> list[str]:
        leaves = self._leaves.get(tree.name)
        if leaves is None:
            leaves = self._leaves[tree.name] = dict(tree.leaves)
        names: list[str] = []
        domain = leaves.get(node, -1)
        while domain >= 0:
            names.append(tree.domains[domain].name)
            domain = tree.domains[domain].parent
        return names[::-1]


def _same(before: TopologyTree | None, after: TopologyTree) -> bool:
    """Nothing that matters to gangs differs; problems do not, since what is wrong is not in the tree."""
    return before is not None and (
        (before.levels, before.domains, before.leaves, before.default)
        == (after.levels, after.domains, after.leaves, after.default)
    )
