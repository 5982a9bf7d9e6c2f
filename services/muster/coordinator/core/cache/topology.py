"""Topology trees, and the position of nodes in them."""

from collections.abc import Iterable, Sequence
from typing import Final

from muster.gangs.facts import GangFacts, LevelConstraint, NodeFacts, TopologyTree
from muster.topology.constraints import on_levels
from muster.topology.ranks import Path
from muster.topology.trees import TreePaths, flat_tree, never_parsed

_FLAT: Final = flat_tree()
"""The only tree while none is declared."""
_MOST_NAMED = 10


class TopologyTrees:
    """Topology trees by name; one is the default."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with every change, of problems too."""
        self._trees: dict[str, TopologyTree] = {}
        self._whereabouts: dict[str, TreePaths] = {}

    def put(self, trees: Iterable[TopologyTree]) -> bool:
        """Add trees, or change them. True: the change may let pending gangs start."""
        changed = False
        for tree in trees:
            self.version += 1
            if not _same(self._trees.get(tree.name), tree):
                changed = True
                self._whereabouts.pop(tree.name, None)
            self._trees[tree.name] = tree
        return changed

    def drop(self, names: Iterable[str]) -> bool:
        """Forget trees. True: one of them was known."""
        dropped = False
        for name in names:
            self.version += 1
            dropped |= self._trees.pop(name, None) is not None
            self._whereabouts.pop(name, None)
        return dropped

    def all(self) -> Sequence[TopologyTree]:
        """All trees, by name."""
        return [self._trees[name] for name in sorted(self._trees)]

    def get(self, name: str) -> TopologyTree | None:
        """The tree of this name, "" for the default one; None if there is none."""
        if name:
            return self._trees.get(name) or (_FLAT if name == _FLAT.name else None)
        return next((tree for tree in self.all() if tree.default), _FLAT)

    def named(self) -> str:
        """The names of all trees, for messages."""
        names = sorted(self._trees) or [_FLAT.name]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(f'"{name}"' for name in names[:_MOST_NAMED]) + more

    def constraints_of(self, facts: GangFacts) -> tuple[LevelConstraint, ...]:
        """The declared constraints of a gang, on the levels of its tree as it is now."""
        tree = self.get(facts.tree) if facts.constraints else None
        return on_levels(facts.constraints, [level.name for level in tree.levels]) if tree else facts.constraints

    def above(self, tree: TopologyTree, node: NodeFacts) -> Path | None:
        """Names of the domains that contain the node, from the top; None if it is outside of the tree."""
        where = self._whereabouts.get(tree.name)
        if where is None:
            where = self._whereabouts[tree.name] = TreePaths(tree)
        path = where.path(node.name, node.labels)
        return path if path is not None and len(path) == len(tree.levels) - 1 else None

    def path(self, tree: TopologyTree, node: NodeFacts) -> Path:
        """The domain of the node at each level of the tree, the last its own. A node outside of the tree is a domain of
        its own at every level.
        """
        above = self.above(tree, node)
        return (*above, node.name) if above is not None else (f"(outside)/{node.name}",) * len(tree.levels)


def _same(before: TopologyTree | None, after: TopologyTree) -> bool:
    """Nothing differs that matters to gangs. Problems do not matter, since invalid parts are not in the tree, unless
    the tree could not be read at all: pending gangs report its problems.
    """
    return before is not None and (
        (before.levels, before.domains, before.leaves, before.default)
        == (after.levels, after.domains, after.leaves, after.default)
        and not (never_parsed(after) and before.problems != after.problems)
    )
