"""The topology trees that gangs may go by, and where in them nodes are."""

from collections.abc import Iterable, Sequence
from typing import Final

from muster.gangs.facts import GangFacts, LevelConstraint, NodeFacts, TopologyTree
from muster.topology.constraints import on_levels
from muster.topology.ranks import Path
from muster.topology.trees import TreePaths, flat_tree, never_parsed

_FLAT: Final = flat_tree()
"""What there is when no tree is known."""
_MOST_NAMED = 10


class TopologyTrees:
    """TopologyTrees by name; one is the default."""

    def __init__(self) -> None:
        self.version = 0
        """Rises with everything that changes, problems too."""
        self._trees: dict[str, TopologyTree] = {}
        self._whereabouts: dict[str, TreePaths] = {}

    def put(self, trees: Iterable[TopologyTree]) -> bool:
        """Add trees, or change them. True: there is something that gangs may have waited for."""
        changed = False
        for tree in trees:
            self.version += 1
            if not _same(self._trees.get(tree.name), tree):
                changed = True
                self._whereabouts.pop(tree.name, None)
            self._trees[tree.name] = tree
        return changed

    def drop(self, names: Iterable[str]) -> bool:
        """Forget trees; unknown ones are passed over. True: one of them was there."""
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
        """The names that there are, as users may choose among them."""
        names = sorted(self._trees) or [_FLAT.name]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(f'"{name}"' for name in names[:_MOST_NAMED]) + more

    def constraints_of(self, facts: GangFacts) -> tuple[LevelConstraint, ...]:
        """What a gang declares, on the levels of its tree as it is now."""
        tree = self.get(facts.tree) if facts.constraints else None
        return on_levels(facts.constraints, [level.name for level in tree.levels]) if tree else facts.constraints

    def above(self, tree: TopologyTree, node: NodeFacts) -> Path | None:
        """Names of the domains that the node is in, from the top; None if it is outside of the tree."""
        where = self._whereabouts.get(tree.name)
        if where is None:
            where = self._whereabouts[tree.name] = TreePaths(tree)
        path = where.path(node.name, node.labels)
        return path if path is not None and len(path) == len(tree.levels) - 1 else None

    def path(self, tree: TopologyTree, node: NodeFacts) -> Path:
        """The domain that the node is in at each level of the tree, the last its own. One outside of the tree is a
        domain of its own at every level.
        """
        above = self.above(tree, node)
        return (*above, node.name) if above is not None else (f"(outside)/{node.name}",) * len(tree.levels)


def _same(before: TopologyTree | None, after: TopologyTree) -> bool:
    """Nothing that matters to gangs differs. Problems do not matter, since what is wrong is not in the tree, unless
    there is nothing of it but them: gangs that wait for it are told what they are.
    """
    return before is not None and (
        (before.levels, before.domains, before.leaves, before.default)
        == (after.levels, after.domains, after.leaves, after.default)
        and not (never_parsed(after) and before.problems != after.problems)
    )
