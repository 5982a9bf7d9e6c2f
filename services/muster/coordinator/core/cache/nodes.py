"""Nodes that pods may use: which nodes would take a pod of a class if they were empty, as arrays over all nodes, and
where each node is in the topology trees.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.gangs.capacity import Capacity, Int64
from muster.gangs.facts import GangFacts, LevelConstraint, NodeFacts, PodClass, TopologyTree
from muster.gangs.node_columns import Bool, Rows
from muster.gangs.node_masks import NodeMasks
from muster.topology.constraints import on_levels
from muster.topology.ranks import Path
from muster.topology.trees import TreePaths, flat_tree, same_for_gangs

MAX_CELLS: Final = 32_000_000
"""Rows times classes that are remembered, at one byte each."""
MIN_CLASSES: Final = 64
_FLAT: Final = flat_tree()
"""The only tree while none is declared."""
_MOST_NAMED = 10


@dataclass(slots=True, eq=False)
class _Known:
    eligible: Bool
    seen: int
    """Version of the nodes up to which it is right."""


class EligibleNodes:
    """Eligible nodes of classes that were asked about, bool[rows] by class: computed at the first question, then again
    for changed nodes only. The classes asked about longest ago are forgotten beyond MAX_CELLS.
    """

    def __init__(self, capacity: Capacity, classes: Mapping[str, PodClass]) -> None:
        self._capacity, self._classes = capacity, classes
        self._masks = NodeMasks()
        self._known: dict[str, _Known] = {}
        self.evaluations = 0
        """How often a class was compared with many nodes, at 20 to 100 µs for 5,000 nodes: what bounds the work of a
        step is counted in these.
        """

    def __len__(self) -> int:
        """Number of classes that are remembered."""
        return len(self._known)

    @property
    def rows(self) -> int:
        """Length of the arrays."""
        return self._masks.rows

    def put_node(self, row: int, node: NodeFacts) -> None:
        """Add or change a node, after its row in the capacity."""
        self._masks.put(row, node)

    def drop_node(self, name: str) -> None:
        self._masks.drop(name)

    def forget_class(self, class_id: str) -> None:
        self._known.pop(class_id, None)

    def knows(self, class_id: str) -> bool:
        """The row of the class is up to date: there is nothing to compute."""
        known = self._known.get(class_id)
        return known is not None and known.seen == self._masks.version

    def of(self, class_id: str) -> Bool:
        """The eligible nodes of a known class, bool[rows]; not to be changed."""
        known = self._known.get(class_id)
        if known is None or len(known.eligible) != self._masks.rows:
            known = _Known(self._evaluate(class_id, slice(None)), self._masks.version)
        elif known.seen != self._masks.version:
            rows = np.flatnonzero(self._masks.changed > known.seen)
            known.eligible[rows] = self._evaluate(class_id, rows)
            known.seen = self._masks.version
        else:
            return known.eligible
        self._known.pop(class_id, None)
        self._known[class_id] = known  # the last to be forgotten
        for _ in range(len(self._known) - max(MIN_CLASSES, MAX_CELLS // max(1, self._masks.rows))):
            del self._known[next(iter(self._known))]
        return known.eligible

    def takes(self, row: int, class_id: str) -> bool:
        """The node in this row is eligible."""
        known = self._known.get(class_id)
        if known is not None and row < len(known.eligible) and self._masks.changed[row] <= known.seen:
            return bool(known.eligible[row])
        return row < self._masks.rows and bool(self.of(class_id)[row])

    def _evaluate(self, class_id: str, rows: Rows) -> Bool:
        self.evaluations += 1
        pod_class, capacity = self._classes[class_id], self._capacity
        eligible = self._masks.passes(pod_class, rows)
        requested = capacity.vectors[capacity.classes[class_id]]
        allocatable = capacity.allocatable[: self._masks.rows]
        for column in np.flatnonzero(requested).tolist():
            eligible &= _padded(allocatable[:, column], self._masks.rows)[rows] >= requested[column]
        return eligible


def _padded(amounts: Int64, rows: int) -> Int64:
    """The masks may have grown further than the capacity."""
    return amounts if len(amounts) == rows else np.concatenate((amounts, np.zeros(rows - len(amounts), np.int64)))


class TopologyTrees:
    """Topology trees by name, as long as they are declared, and the positions of nodes in them; one is the default."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with every change, of problems too."""
        self._trees: dict[str, TopologyTree] = {}
        self._default = _FLAT
        self._whereabouts: dict[str, TreePaths] = {}

    def put(self, trees: Iterable[TopologyTree]) -> bool:
        """Add trees, or change them. True: the change may let pending gangs start."""
        changed = False
        for tree in trees:
            self.version += 1
            if not same_for_gangs(self._trees.get(tree.name), tree):
                changed = True
                self._whereabouts.pop(tree.name, None)
            self._trees[tree.name] = tree
        self._find_default()
        return changed

    def drop(self, names: Iterable[str]) -> bool:
        """Forget trees. True: one of them was known."""
        dropped = False
        for name in names:
            self.version += 1
            dropped |= self._trees.pop(name, None) is not None
            self._whereabouts.pop(name, None)
        self._find_default()
        return dropped

    def _find_default(self) -> None:
        self._default = next((tree for tree in self.all() if tree.default), _FLAT)

    def all(self) -> Sequence[TopologyTree]:
        """All trees, by name."""
        return [self._trees[name] for name in sorted(self._trees)]

    def get(self, name: str) -> TopologyTree | None:
        """The tree of this name, "" for the default one; None if there is none."""
        if name:
            return self._trees.get(name) or (_FLAT if name == _FLAT.name else None)
        return self._default

    def named(self) -> str:
        """The names of all trees, for messages."""
        names = sorted(self._trees) or [_FLAT.name]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(f'"{name}"' for name in names[:_MOST_NAMED]) + more

    def constraints_of(self, facts: GangFacts) -> tuple[LevelConstraint, ...]:
        """The declared constraints of a gang, on the levels of its tree as it is now."""
        tree = self.get(facts.tree) if facts.constraints else None
        return on_levels(facts.constraints, tree.level_names) if tree else facts.constraints

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
