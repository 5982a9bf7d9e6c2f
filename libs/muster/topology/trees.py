"""Topology trees apart from what defines them: those that need no object, where a node is in one, who is missing.

A tree whose domains are listed names its nodes. One that goes by labels has a label key for every level above the
nodes, and a node is in it if it has all of them. The flat tree has no level but that of the nodes, and all are in it.
"""

from collections.abc import Collection, Mapping
from heapq import nsmallest
from typing import Final

from muster.gangs.facts import Problem, Severity, TopologyTree, TreeLevel
from muster.gangs.quoting import quoted
from muster.topology.ranks import Path

FLAT: Final = "flat"
"""Name of the tree that is there when there is no other."""
LABELS: Final = "labels"
"""Name of the tree that goes by node labels."""
NODE_LEVEL: Final = "node"
"""What the level of the nodes is called, where nothing else says so."""
SAKKARA_RACK: Final = "sakkara.topology.rack"
"""Node label that makes a level "rack" where neither settings nor objects say anything of a tree."""

LABEL_KEY_PREFIX: Final = "label "
"""How the names of trees begin that have one level above the nodes: the values of the label that comes after it."""
MAX_LABEL_KEY_TREES: Final = 64
"""Trees of that kind. Each costs time and memory for every node, and users may name any number of labels."""

MAX_LEVELS: Final = 16
MAX_NAME_LENGTH: Final = 253

_NAMED: Final = 3
"""Nodes that a problem names; of the others it says how many there are."""


def flat_tree() -> TopologyTree:
    """Only the nodes."""
    return TopologyTree(FLAT, (TreeLevel(NODE_LEVEL),))


def label_tree(levels: Mapping[str, str]) -> TopologyTree:
    """Levels by label keys, from the top; that of the nodes comes below them."""
    upper = tuple(TreeLevel(name, key) for name, key in levels.items())
    return TopologyTree(LABELS, (*upper, TreeLevel(NODE_LEVEL)))


def label_key_tree_name(label_key: str) -> str:
    """Name of the tree whose domains are the values of one label."""
    return LABEL_KEY_PREFIX + label_key


def label_key_of_tree(name: str) -> str:
    """The label that a tree of this name goes by alone; empty for trees with other names."""
    return name[len(LABEL_KEY_PREFIX) :] if name.startswith(LABEL_KEY_PREFIX) else ""


def label_key_tree(label_key: str) -> TopologyTree:
    """The tree whose domains are the values of one label; its level is called as the label."""
    return TopologyTree(label_key_tree_name(label_key), (TreeLevel(label_key, label_key), TreeLevel(NODE_LEVEL)))


def missing_tree(name: str, there: str) -> str:
    """Why a gang cannot go by a tree that does not exist. `there` names those that do."""
    if key := label_key_of_tree(name):
        others = f"{MAX_LABEL_KEY_TREES} other labels, which older gangs name"
        return f"no topology tree is made for the label {quoted(key)}: there are trees for {others}"
    return f'topology tree "{name}" does not exist; there are {there}'


def is_listed(tree: TopologyTree) -> bool:
    """Domains and nodes are listed; otherwise labels say where a node is."""
    return bool(tree.leaves) or any(not level.label_key for level in tree.levels[:-1])


def never_parsed(tree: TopologyTree) -> bool:
    """Its definition never made sense, so that there is nothing of it but its levels."""
    return (
        not tree.domains and not tree.leaves and any(problem.severity is Severity.BLOCKING for problem in tree.problems)
    )


class TreePaths:
    """Where nodes are in a tree."""

    def __init__(self, tree: TopologyTree) -> None:
        self._keys = None if is_listed(tree) else tuple(level.label_key for level in tree.levels[:-1])
        above: list[Path] = []
        for domain in tree.domains:
            above.append((*(above[domain.parent] if domain.parent >= 0 else ()), domain.name))
        self._listed: dict[str, Path] = {node: above[at] if at >= 0 else () for node, at in tree.leaves}

    def path(self, node: str, labels: Mapping[str, str]) -> Path | None:
        """Names of the domains that the node is in, from the top; None if it is outside of the tree."""
        if self._keys is None:
            return self._listed.get(node)
        path = tuple(labels.get(key, "") for key in self._keys)
        return path if all(path) else None

    def absent(self, nodes: Collection[str]) -> list[str]:
        """Nodes of the tree that the cluster does not have."""
        return [node for node in self._listed if node not in nodes]


def mismatches(tree: TopologyTree, nodes: Mapping[str, Mapping[str, str]]) -> tuple[Problem, ...]:
    """Warnings about nodes that are in only one of the tree and the cluster. `nodes` are labels by node name."""
    if len(tree.levels) == 1 and not is_listed(tree):
        return ()  # flat
    where = TreePaths(tree)
    absent = where.absent(nodes)
    outside = [node for node, labels in nodes.items() if where.path(node, labels) is None]
    problems = []
    if absent:
        problems.append(f"{_named(absent, 'of the tree')} not in the cluster: ignored while that is so")
    if outside:
        keys = [level.label_key for level in tree.levels if level.label_key]
        why = f" for want of a label ({', '.join(keys)})" if keys else ""
        use = "used only where no constraint above the nodes is hard"
        problems.append(f"{_named(outside, 'of the cluster')} not in the tree{why}: {use}")
    return tuple(Problem(Severity.WARNING, problem) for problem in problems)


def _named(nodes: Collection[str], where: str) -> str:
    """A subject and its verb."""
    if len(nodes) == 1:
        return f"node {quoted(next(iter(nodes)))} {where} is"
    shown = ", ".join(quoted(node) for node in nsmallest(_NAMED, nodes))
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return f"{len(nodes)} nodes {where} ({shown}{more}) are"
