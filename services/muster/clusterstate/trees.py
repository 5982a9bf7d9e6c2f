"""Topology trees from ConfigMaps, from node labels, or flat, and which of them is the default.

    trees                                                         the default is the first of these that exists
    of each ConfigMap, by its name                                1. the tree named in the settings
    "labels", if settings give levels                             2. the tree "default-tree"
    "labels" with the level rack, if there is no ConfigMap        3. the tree of the oldest ConfigMap
      and a node has the label sakkara.topology.rack              4. "labels"
    "flat", if there is no other                                  5. "flat"
    "label <key>", for each node label that gangs pack by         (never)
  "hypernodes", "hypernodes by tier name", of HyperNodes        (1. only)

Of ConfigMaps whose trees have the same name, the oldest valid one applies. A ConfigMap that becomes invalid keeps its
last tree; one that was never valid has no domains, so that gangs with hard constraints wait instead of starting
anywhere.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from muster.clusterstate.hyper_nodes import HyperNodes
from muster.gangs.facts import GangFacts, NodeFacts, Problem, Severity, TopologyTree
from muster.gangs.quoting import quoted
from muster.kube.hyper_nodes import HyperNodeObject
from muster.kube.topology_config_maps import ConfigMap, created_seconds, topology_tree
from muster.topology.hyper_nodes import BY_TIER, BY_TIER_NAME
from muster.topology.sakkara import DEFAULT_NAME
from muster.topology.trees import (
    FLAT,
    LABELS,
    MAX_LABEL_KEY_TREES,
    SAKKARA_RACK,
    flat_tree,
    label_key_of_tree,
    label_key_tree,
    label_tree,
    mismatches,
    never_parsed,
)

_HYPER_NODE_TREES: Final = (BY_TIER, BY_TIER_NAME)

_log = structlog.get_logger(__name__)


class _Definition(Struct, frozen=True):
    """A ConfigMap. `valid`: the last valid tree."""

    never_valid: bool
    created_seconds: int
    where: str
    tree: TopologyTree
    valid: TopologyTree | None


class Trees:
    """Facts by name."""

    def __init__(self, levels: Mapping[str, str] | None = None, default: str = "") -> None:
        """`levels`: label keys by level, from the top; empty: no tree by labels. `default`: name of a tree or empty."""
        self.facts: dict[str, TopologyTree] = {}
        self.stale = True
        """Something changed on which trees may depend."""
        self._levels = dict(levels or {})
        self._default = default
        self._definitions: dict[str, _Definition] = {}
        self._keys: tuple[str, ...] = ()
        self._hyper_nodes = HyperNodes()
        self._names_hyper_nodes = False

    def put_hyper_node(self, given: HyperNodeObject) -> None:
        """Add or update a HyperNode."""
        self.stale |= self._hyper_nodes.put(given)

    def remove_hyper_node(self, uid: str) -> None:
        """Remove a HyperNode."""
        self.stale |= self._hyper_nodes.remove(uid)

    def offer(self, label_keys: Iterable[str], *, hyper_nodes: bool = False) -> None:
        """Set the node labels that gangs pack by, each of which gets a tree of its own, and whether any name those of
        HyperNodes.
        """
        keys = tuple(label_keys)
        self.stale |= keys != self._keys or hyper_nodes != self._names_hyper_nodes
        self._keys, self._names_hyper_nodes = keys, hyper_nodes

    def put(self, config_map: ConfigMap) -> bool:
        """Add or update a ConfigMap; returns whether its tree changed."""
        metadata = config_map.metadata
        before = self._definitions.get(metadata.uid)
        tree = topology_tree(config_map)
        valid = before.valid if before is not None else None
        if not tree.problems:
            valid = tree
        elif valid is not None:
            tree = replace(valid, problems=tree.problems)
        where = f"{metadata.namespace}/{metadata.name}"
        after = _Definition(valid is None, created_seconds(config_map), where, tree, valid)
        self._definitions[metadata.uid] = after
        self.stale |= after != before
        return after != before

    def remove(self, uid: str) -> bool:
        """Remove a ConfigMap; returns False if it was not known."""
        removed = self._definitions.pop(uid, None) is not None
        self.stale |= removed
        return removed

    def node_changed(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """A node was added (before: None), changed, or removed (after: None)."""
        self.stale |= before is None or after is None or before.labels != after.labels

    def settle(self, nodes: Mapping[str, NodeFacts]) -> tuple[list[TopologyTree], list[str]]:
        """Changed trees, and names of removed ones."""
        self.stale = False
        before, self.facts = self.facts, self._present(nodes)
        changed = [tree for name, tree in self.facts.items() if tree != before.get(name)]
        for tree in changed:
            _report(tree, before.get(tree.name))
        return changed, sorted(before.keys() - self.facts.keys())

    def _present(self, nodes: Mapping[str, NodeFacts]) -> dict[str, TopologyTree]:
        trees = self._listed()
        if self._levels:
            trees.setdefault(LABELS, label_tree(self._levels))
        elif not trees and any(SAKKARA_RACK in node.labels for node in nodes.values()):
            trees[LABELS] = label_tree({"rack": SAKKARA_RACK})
        if not trees:
            trees[FLAT] = flat_tree()
        labels = {name: node.labels for name, node in nodes.items()}
        for tree in self._hyper_nodes.trees(labels, named=self._names_hyper_nodes):
            displaced = trees.get(tree.name)
            trees[tree.name] = replace(tree, problems=(*tree.problems, *_displaced(displaced)))
        default = next((name for name in (self._default, DEFAULT_NAME) if name in trees), next(iter(trees)))
        present = {
            name: replace(
                tree,
                default=name == default,
                problems=(*tree.problems, *self._no_default(name == default, trees), *_mismatches(tree, labels)),
            )
            for name, tree in trees.items()
        }
        for key in self._keys:
            tree = label_key_tree(key)
            displaced = present.get(tree.name)
            problems = _label_key_tree_problems(key, labels, displaced)
            present[tree.name] = replace(tree, default=displaced is not None and displaced.default, problems=problems)
        return present

    def _listed(self) -> dict[str, TopologyTree]:
        """Trees of ConfigMaps, with a warning on those whose name others have, too."""
        trees: dict[str, TopologyTree] = {}
        for definition in sorted(self._definitions.values(), key=_precedence):
            name = definition.tree.name
            if name not in trees:
                trees[name] = definition.tree
                continue
            other = f"ConfigMap {quoted(definition.where)} defines a tree with the name {quoted(name)} too"
            warning = Problem(Severity.WARNING, f"{other}: this one applies; give the other one another name")
            trees[name] = replace(trees[name], problems=(*trees[name].problems, warning))
        return trees

    def _no_default(self, is_default: bool, trees: Mapping[str, TopologyTree]) -> tuple[Problem, ...]:
        if not is_default or not self._default or self._default in trees:
            return ()
        missing = f"the settings make {quoted(self._default)} the default tree, which does not exist"
        return (Problem(Severity.WARNING, f"{missing}: this one is the default until then"),)


def _precedence(definition: _Definition) -> tuple[bool, int, str]:
    return definition.never_valid, definition.created_seconds, definition.where


def _mismatches(tree: TopologyTree, nodes: Mapping[str, Mapping[str, str]]) -> tuple[Problem, ...]:
    """Mismatches with the nodes; none for a tree that was never valid, whose problem says enough."""
    return () if never_parsed(tree) else mismatches(tree, nodes)


def _label_key_tree_problems(
    key: str, nodes: Mapping[str, Mapping[str, str]], displaced: TopologyTree | None
) -> tuple[Problem, ...]:
    """Nodes without the label are normal; a label that no node has is a problem."""
    problems = []
    if not any(key in labels for labels in nodes.values()):
        problems.append(f"no node has the label {quoted(key)}: gangs that pack by it wait until some node has")
    return (*(Problem(Severity.WARNING, problem) for problem in problems), *_displaced(displaced))


def _displaced(tree: TopologyTree | None) -> tuple[Problem, ...]:
    if tree is None:
        return ()
    message = f"a ConfigMap defines a tree with the name {quoted(tree.name)} too: give it another name"
    return (Problem(Severity.WARNING, message),)


def _report(tree: TopologyTree, before: TopologyTree | None) -> None:
    problems = [problem.message for problem in tree.problems]
    if problems and (before is None or before.problems != tree.problems):
        _log.warning("topology_tree_invalid", tree=tree.name, problems=problems)


# -- trees by node labels that gangs name


class LabelKeyTrees:
    """Node labels that gangs pack by, and which of them get a tree: users may name more than the limit.

    Every replica must offer the same trees, whatever it saw first, so the labels of the oldest gangs are chosen.
    """

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, str, str]] = {}  # gang id -> its creation, its id, the label
        self._gangs: Counter[str] = Counter()  # by label
        self._of_hyper_nodes: set[str] = set()  # gangs, while they name a tree of HyperNodes

    def take(self, changed: Iterable[GangFacts], removed: Iterable[str]) -> bool:
        """Apply changed and removed gangs; returns whether labels, the ages of their gangs or `hyper_nodes` changed."""
        before, named = set(self._gangs), self.hyper_nodes
        aged = False
        self._of_hyper_nodes.difference_update(removed := list(removed))
        for facts in changed:
            (self._of_hyper_nodes.add if facts.tree in _HYPER_NODE_TREES else self._of_hyper_nodes.discard)(facts.id)
            key = label_key_of_tree(facts.tree)
            asks = (facts.created_seconds, facts.id, key) if key else None
            aged |= asks != self._asked.get(facts.id)
            self._drop(facts.id)
            if asks is not None:
                self._asked[facts.id] = asks
                self._gangs[key] += 1
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
        for _, _, key in sorted(self._asked.values()):
            oldest[key] = None
            if len(oldest) == MAX_LABEL_KEY_TREES:
                break
        return sorted(oldest)

    def _drop(self, gang_id: str) -> None:
        request = self._asked.pop(gang_id, None)
        if request is not None:
            self._gangs[request[2]] -= 1
            if not self._gangs[request[2]]:
                del self._gangs[request[2]]
