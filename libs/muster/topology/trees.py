"""Topology trees: built-in trees, the path of a node in a tree, and nodes that a tree and the cluster do not share.

A tree with listed domains lists its nodes. A tree by labels has a label key for every level above the nodes and
contains the nodes that have all of these labels. The flat tree has only the level of the nodes and contains all nodes.
"""

from collections.abc import Collection, Mapping
from heapq import nsmallest
from typing import Final

from muster.gangs.facts import Problem, Severity, TopologyTree, TreeLevel
from muster.gangs.quoting import quoted
from muster.topology.ranks import Path

FLAT: Final = "flat"
"""Name of the tree that exists when there is no other."""
LABELS: Final = "labels"
"""Name of the tree by the node labels of the settings."""
NODE_LEVEL: Final = "node"
"""Default name of the level of the nodes."""
SAKKARA_RACK: Final = "sakkara.topology.rack"
"""Node label that makes a level "rack" if neither settings nor objects define a tree."""

LABEL_KEY_PREFIX: Final = "label "
"""Prefix of the names of trees with one level above the nodes; the rest of the name is the label key of that level."""
MAX_LABEL_KEY_TREES: Final = 64
"""Limit on such trees. Each costs time and memory for every node, and users may name any number of labels."""

MAX_LEVELS: Final = 16
MAX_NAME_LENGTH: Final = 253

_NAMED: Final = 3
"""Nodes that a message names; the others are counted."""


def flat_tree() -> TopologyTree:
    """The tree with no level above the nodes."""
    return TopologyTree(FLAT, (TreeLevel(NODE_LEVEL),))


def label_tree(levels: Mapping[str, str]) -> TopologyTree:
    """A tree by labels; `levels`: label keys by name of the level, from the top to above the nodes."""
    upper = tuple(TreeLevel(name, key) for name, key in levels.items())
    return TopologyTree(LABELS, (*upper, TreeLevel(NODE_LEVEL)))


def label_key_tree_name(label_key: str) -> str:
    """Name of the tree whose domains are the values of one label."""
    return LABEL_KEY_PREFIX + label_key


def label_key_of_tree(name: str) -> str:
    """The label key in the name of such a tree; empty for other names."""
    return name[len(LABEL_KEY_PREFIX) :] if name.startswith(LABEL_KEY_PREFIX) else ""


def label_key_tree(label_key: str) -> TopologyTree:
    """The tree whose domains are the values of one label; its level has the name of the label key."""
    return TopologyTree(label_key_tree_name(label_key), (TreeLevel(label_key, label_key), TreeLevel(NODE_LEVEL)))


def missing_tree(name: str, there: str) -> str:
    """The message for a gang whose tree does not exist. `there` lists the existing trees."""
    if key := label_key_of_tree(name):
        others = f"{MAX_LABEL_KEY_TREES} other labels, which older gangs of this namespace or other namespaces name"
        return f"no topology tree is made for the label {quoted(key)}: there are trees for {others}"
    return f'topology tree "{name}" does not exist; there are {there}'


def is_listed(tree: TopologyTree) -> bool:
    """Domains and nodes are listed, not read from labels."""
    return bool(tree.leaves) or any(not level.label_key for level in tree.levels[:-1])


def never_parsed(tree: TopologyTree) -> bool:
    """The definition was never valid, so that only its levels are known."""
    return (
        not tree.domains and not tree.leaves and any(problem.severity is Severity.BLOCKING for problem in tree.problems)
    )


def same_for_gangs(before: TopologyTree | None, after: TopologyTree) -> bool:
    """Whether nothing differs that matters to gangs. Problems do not matter, since invalid parts are not in the tree,
    unless the tree could not be read at all: pending gangs report its problems.
    """
    return before is not None and (
        (before.levels, before.domains, before.leaves, before.default)
        == (after.levels, after.domains, after.leaves, after.default)
        and not (never_parsed(after) and before.problems != after.problems)
    )


class TreePaths:
    """Paths of nodes in a tree."""

    def __init__(self, tree: TopologyTree) -> None:
        self._keys = None if is_listed(tree) else tuple(level.label_key for level in tree.levels[:-1])
        above: list[Path] = []
        for domain in tree.domains:
            above.append((*(above[domain.parent] if domain.parent >= 0 else ()), domain.name))
        self._listed: dict[str, Path] = {node: above[at] if at >= 0 else () for node, at in tree.leaves}

    def path(self, node: str, labels: Mapping[str, str]) -> Path | None:
        """Names of the node's domains, from the top; None if it is outside of the tree."""
        if self._keys is None:
            return self._listed.get(node)
        path = tuple(labels.get(key, "") for key in self._keys)
        return path if all(path) else None

    def absent(self, nodes: Collection[str]) -> list[str]:
        """Listed nodes that are not in the cluster."""
        return [node for node in self._listed if node not in nodes]

    def outside(self, nodes: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Nodes of the cluster that are outside of the tree. `nodes`: labels by node name."""
        if self._keys is None:
            return [node for node in nodes if node not in self._listed]
        return [node for node, labels in nodes.items() if self.path(node, labels) is None]


def mismatches(
    tree: TopologyTree, nodes: Mapping[str, Mapping[str, str]], *, absent_ones: bool = True
) -> tuple[Problem, ...]:
    """Warnings about nodes that only the tree or only the cluster has. `nodes`: labels by node name. `absent_ones`:
    the former, too.
    """
    if len(tree.levels) == 1 and not is_listed(tree):
        return ()  # flat
    where = TreePaths(tree)
    absent = where.absent(nodes) if absent_ones else ()
    outside = where.outside(nodes)
    problems = []
    if absent:
        problems.append(f"{_named(absent, 'of the tree')} not in the cluster and ignored until then")
    if outside:
        keys = [level.label_key for level in tree.levels if level.label_key]
        why = f" because a label is missing ({', '.join(keys)})" if keys else ""
        use = "used only for gangs without hard constraints above the nodes"
        problems.append(f"{_named(outside, 'of the cluster')} not in the tree{why}: {use}")
    return tuple(Problem(Severity.WARNING, problem) for problem in problems)


def _named(nodes: Collection[str], where: str) -> str:
    """The subject and verb of a message."""
    if len(nodes) == 1:
        return f"node {quoted(next(iter(nodes)))} {where} is"
    shown = ", ".join(quoted(node) for node in nsmallest(_NAMED, nodes))
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return f"{len(nodes)} nodes {where} ({shown}{more}) are"
