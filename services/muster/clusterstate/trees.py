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

A change of an object computes only its own tree again. Changes of nodes concern all trees, which are then computed one
after another, in slices (I12).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog
from msgspec import Struct
from msgspec.structs import replace

from muster.clusterstate.hyper_nodes import HyperNodes
from muster.clusterstate.tree_revisions import TreeRevisions
from muster.gangs.facts import NodeFacts, Problem, Severity, TopologyTree
from muster.gangs.quoting import quoted
from muster.kube.hyper_nodes import HyperNodeObject
from muster.kube.topology_config_maps import ConfigMap, created_seconds, topology_tree
from muster.topology.hyper_nodes import BY_TIER, BY_TIER_NAME
from muster.topology.sakkara import DEFAULT_NAME
from muster.topology.trees import (
    FLAT,
    LABELS,
    SAKKARA_RACK,
    flat_tree,
    label_key_tree,
    label_tree,
    mismatches,
    never_parsed,
    same_for_gangs,
)

_log = structlog.get_logger(__name__)


class _Definition(Struct, frozen=True):
    """A ConfigMap. `valid`: the last valid tree."""

    never_valid: bool
    created_seconds: int
    where: str
    tree: TopologyTree
    valid: TopologyTree | None


class Settled(NamedTuple):
    """Trees that changed, names of removed ones, and whether this may concern gangs: changed problems do not. `nodes`:
    the newest change of nodes that trees contain now and did not before, 0 if none.
    """

    changed: Sequence[TopologyTree]
    removed: Sequence[str]
    concerns_gangs: bool
    nodes: int


class _Checked(Struct, frozen=True):
    """A tree, and the problems that it has with the nodes."""

    tree: TopologyTree
    problems: tuple[Problem, ...]


class Trees:
    """Facts by name. Entries end with the ConfigMap, HyperNodes or gangs that the tree is made for (I11)."""

    def __init__(self, levels: Mapping[str, str] | None = None, default: str = "") -> None:
        """`levels`: label keys by level, from the top; empty: no tree by labels. `default`: name of a tree or empty."""
        self.facts: dict[str, TopologyTree] = {}
        self.stale = True
        """Nodes changed on which trees may depend."""
        self.revisions = TreeRevisions()
        self._levels = dict(levels or {})
        self._default = default
        self._definitions: dict[str, _Definition] = {}
        self._keys: tuple[str, ...] = ()
        self._hyper_nodes = HyperNodes()
        self._names_hyper_nodes = False
        self._of_hyper_nodes: list[TopologyTree] = []
        self._checked: dict[str, _Checked] = {}  # by name
        self.hyper_nodes_stale = False
        """Trees of HyperNodes must be computed when trees are settled."""

    def put_hyper_node(self, given: HyperNodeObject) -> bool:
        """Add or update a HyperNode; returns whether it changed."""
        return self._hyper_nodes.put(given)

    def remove_hyper_node(self, uid: str) -> bool:
        """Remove a HyperNode; returns False if it was not known."""
        return self._hyper_nodes.remove(uid)

    def new_patterns(self) -> list[str]:
        """Patterns of HyperNodes to evaluate before their trees are computed."""
        return self._hyper_nodes.new_patterns()

    def evaluate(self, pattern: str, nodes: Iterable[str]) -> None:
        """Evaluate a pattern of HyperNodes."""
        self._hyper_nodes.evaluate(pattern, nodes)

    def offer(self, label_keys: Iterable[str], *, hyper_nodes: bool = False) -> None:
        """Set the node labels that gangs pack by, each of which gets a tree of its own, and whether any name those of
        HyperNodes.
        """
        keys = tuple(label_keys)
        self.hyper_nodes_stale |= hyper_nodes != self._names_hyper_nodes
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
        return after != before

    def remove(self, uid: str) -> bool:
        """Remove a ConfigMap; returns False if it was not known."""
        return self._definitions.pop(uid, None) is not None

    def node_changed(self, before: NodeFacts | None, after: NodeFacts | None, revision: int) -> None:
        """A node was added (before: None), changed, or removed (after: None), with this revision."""
        if before is None or after is None or before.labels != after.labels:
            self.stale = True
            self.revisions.node_changed(revision)

    def recheck(self, name: str) -> None:
        """Compare a tree with the nodes again when trees are settled."""
        self._checked.pop(name, None)

    def settle(self, nodes: Mapping[str, NodeFacts]) -> Settled:
        """Compute trees that were changed, offered or rechecked."""
        contains_nodes = self.hyper_nodes_stale or not self._of_hyper_nodes
        before, self.facts = self.facts, self._present(nodes)
        revision = self.revisions.take_nodes() if contains_nodes else 0
        for name in self._checked.keys() - self.facts.keys():
            del self._checked[name]
        changed = [tree for name, tree in self.facts.items() if tree != before.get(name)]
        for tree in changed:
            _report(tree, before.get(tree.name))
        removed = sorted(before.keys() - self.facts.keys())
        concerns_gangs = any(not same_for_gangs(before.get(tree.name), tree) for tree in changed)
        return Settled(changed, removed, bool(removed) or concerns_gangs, revision)

    def _present(self, nodes: Mapping[str, NodeFacts]) -> dict[str, TopologyTree]:
        trees = self._listed()
        if self._levels:
            trees.setdefault(LABELS, label_tree(self._levels))
        elif not trees and any(SAKKARA_RACK in node.labels for node in nodes.values()):
            trees[LABELS] = label_tree({"rack": SAKKARA_RACK})
        if not trees:
            trees[FLAT] = flat_tree()
        if self.hyper_nodes_stale:
            self.hyper_nodes_stale = False
            self._of_hyper_nodes = self._hyper_nodes.trees(_labels(nodes), named=self._names_hyper_nodes)
        for tree in self._of_hyper_nodes:
            displaced = trees.get(tree.name)
            trees[tree.name] = replace(tree, problems=(*tree.problems, *_displaced(displaced)))
        default = next((name for name in (self._default, DEFAULT_NAME) if name in trees), next(iter(trees)))
        present = {
            name: replace(
                tree,
                default=name == default,
                problems=(*tree.problems, *self._no_default(name == default, trees), *self._mismatches(tree, nodes)),
            )
            for name, tree in trees.items()
        }
        for key in self._keys:
            tree = label_key_tree(key)
            displaced = present.get(tree.name)
            problems = (*self._mismatches(tree, nodes, key), *_displaced(displaced))
            present[tree.name] = replace(tree, default=displaced is not None and displaced.default, problems=problems)
        return present

    def _mismatches(self, tree: TopologyTree, nodes: Mapping[str, NodeFacts], key: str = "") -> tuple[Problem, ...]:
        """Problems of a tree, or a tree of a label key, with the nodes: as found before, unless the tree changed."""
        known = self._checked.get(tree.name)
        if known is None or not _same_domains(known.tree, tree):
            found = _label_key_problems(key, nodes) if key else _mismatches(tree, nodes)
            known = self._checked[tree.name] = _Checked(tree, found)
        return known.problems

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


def _labels(nodes: Mapping[str, NodeFacts]) -> dict[str, Mapping[str, str]]:
    return {name: node.labels for name, node in nodes.items()}


def _same_domains(one: TopologyTree, other: TopologyTree) -> bool:
    """The trees have the very same levels, domains and leaves; equal ones may have been read anew."""
    same = one.domains is other.domains and one.leaves is other.leaves and one.levels == other.levels
    return same and never_parsed(one) == never_parsed(other)


def _mismatches(tree: TopologyTree, nodes: Mapping[str, NodeFacts]) -> tuple[Problem, ...]:
    """Mismatches with the nodes; none for a tree that was never valid, whose problem says enough."""
    if never_parsed(tree):
        return ()
    return mismatches(tree, _labels(nodes), absent_ones=tree.name not in (BY_TIER, BY_TIER_NAME))


def _label_key_problems(key: str, nodes: Mapping[str, NodeFacts]) -> tuple[Problem, ...]:
    """Nodes without the label are normal; a label that no node has is a problem."""
    if any(key in node.labels for node in nodes.values()):
        return ()
    problem = f"no node has the label {quoted(key)}: gangs that pack by it wait until some node has"
    return (Problem(Severity.WARNING, problem),)


def _displaced(tree: TopologyTree | None) -> tuple[Problem, ...]:
    if tree is None:
        return ()
    message = f"a ConfigMap defines a tree with the name {quoted(tree.name)} too: give it another name"
    return (Problem(Severity.WARNING, message),)


def _report(tree: TopologyTree, before: TopologyTree | None) -> None:
    problems = [problem.message for problem in tree.problems]
    if problems and (before is None or before.problems != tree.problems):
        _log.warning("topology_tree_invalid", tree=tree.name, problems=problems)
