"""Topology trees as they are now: of ConfigMaps, by node labels, or flat, and which of them is the default.

    a tree is there                                               it is the default if it is
    of a ConfigMap, by its name                                   1. named in the settings
    "labels", if settings give levels                             2. called "default-tree"
    "labels" with the level rack, if there is no ConfigMap        3. of the oldest ConfigMap
      and a node has the label sakkara.topology.rack              4. "labels"
    "flat", if there is no other                                  5. "flat"
    "label <key>", for each label that gangs are packed by        never

Of ConfigMaps whose trees have the same name the oldest that can be read counts. One that cannot be read any more keeps
its last tree; one that never could has no domains, so that gangs with hard constraints wait rather than start anywhere.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import structlog
from msgspec import Struct
from msgspec.structs import replace

from muster.gangs.facts import GangFacts, NodeFacts, Problem, Severity, TopologyTree
from muster.gangs.quoting import quoted
from muster.kube.topology_config_maps import ConfigMap, created_seconds, topology_tree
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

_log = structlog.get_logger(__name__)


class _Definition(Struct, frozen=True):
    """A ConfigMap. `good` is the last tree that could be read of it."""

    unread: bool
    created_seconds: int
    where: str
    tree: TopologyTree
    good: TopologyTree | None


class Trees:
    """Facts by name."""

    def __init__(self, levels: Mapping[str, str] | None = None, default: str = "") -> None:
        """`levels`: label keys by level, from the top; none: not by labels. `default`: a tree's name; empty: none."""
        self.facts: dict[str, TopologyTree] = {}
        self.stale = True
        """Something came, changed or went that trees may follow from."""
        self._levels = dict(levels or {})
        self._default = default
        self._definitions: dict[str, _Definition] = {}
        self._keys: tuple[str, ...] = ()

    def offer(self, label_keys: Iterable[str]) -> None:
        """Gangs are packed by these labels of nodes: each has a tree of its own."""
        keys = tuple(label_keys)
        self.stale |= keys != self._keys
        self._keys = keys

    def put(self, config_map: ConfigMap) -> bool:
        """It came or changed. True: what it says of trees did."""
        metadata = config_map.metadata
        before = self._definitions.get(metadata.uid)
        tree = topology_tree(config_map)
        good = before.good if before is not None else None
        if not tree.problems:
            good = tree
        elif good is not None:
            tree = replace(good, problems=tree.problems)
        where = f"{metadata.namespace}/{metadata.name}"
        after = _Definition(good is None, created_seconds(config_map), where, tree, good)
        self._definitions[metadata.uid] = after
        self.stale |= after != before
        return after != before

    def remove(self, uid: str) -> bool:
        """It is gone. False: it was not there."""
        gone = self._definitions.pop(uid, None) is not None
        self.stale |= gone
        return gone

    def node_changed(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """A node came, changed or went."""
        self.stale |= before is None or after is None or before.labels != after.labels

    def settle(self, nodes: Mapping[str, NodeFacts]) -> tuple[list[TopologyTree], list[str]]:
        """Trees that changed, and names of those that are gone."""
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
        default = next((name for name in (self._default, DEFAULT_NAME) if name in trees), next(iter(trees)))
        labels = {name: node.labels for name, node in nodes.items()}
        present = {
            name: replace(
                tree,
                default=name == default,
                problems=(*tree.problems, *self._no_default(name == default, trees), *_misfits(tree, labels)),
            )
            for name, tree in trees.items()
        }
        for key in self._keys:
            tree = label_key_tree(key)
            displaced = present.get(tree.name)
            problems = _of_key_tree(key, labels, displaced)
            present[tree.name] = replace(tree, default=displaced is not None and displaced.default, problems=problems)
        return present

    def _listed(self) -> dict[str, TopologyTree]:
        """Of ConfigMaps, those that count, with a Warning about others of their names."""
        trees: dict[str, TopologyTree] = {}
        for definition in sorted(self._definitions.values(), key=_precedence):
            name = definition.tree.name
            if name not in trees:
                trees[name] = definition.tree
                continue
            other = f"ConfigMap {quoted(definition.where)} defines a tree with the name {quoted(name)} too"
            warning = Problem(Severity.WARNING, f"{other}: this one counts; give that one another name")
            trees[name] = replace(trees[name], problems=(*trees[name].problems, warning))
        return trees

    def _no_default(self, is_default: bool, trees: Mapping[str, TopologyTree]) -> tuple[Problem, ...]:
        if not is_default or not self._default or self._default in trees:
            return ()
        missing = f"the settings make {quoted(self._default)} the default tree, which does not exist"
        return (Problem(Severity.WARNING, f"{missing}: this one is it until then"),)


def _precedence(definition: _Definition) -> tuple[bool, int, str]:
    return definition.unread, definition.created_seconds, definition.where


def _misfits(tree: TopologyTree, nodes: Mapping[str, Mapping[str, str]]) -> tuple[Problem, ...]:
    """Of a tree that could never be read, they would say nothing that its problem does not."""
    return () if never_parsed(tree) else mismatches(tree, nodes)


def _of_key_tree(
    key: str, nodes: Mapping[str, Mapping[str, str]], displaced: TopologyTree | None
) -> tuple[Problem, ...]:
    """That some nodes do not have a label is as it should be; that none has it is not."""
    problems = []
    if not any(key in labels for labels in nodes.values()):
        problems.append(f"no node has the label {quoted(key)}: gangs that are packed by it wait until some have")
    if displaced is not None:
        problems.append(f"a ConfigMap defines a tree with the name {quoted(displaced.name)} too: give it another name")
    return tuple(Problem(Severity.WARNING, problem) for problem in problems)


def _report(tree: TopologyTree, before: TopologyTree | None) -> None:
    problems = [problem.message for problem in tree.problems]
    if problems and (before is None or before.problems != tree.problems):
        _log.warning("a topology tree has problems", tree=tree.name, problems=problems)


# -- trees by node labels that gangs name


class LabelKeyTrees:
    """The labels by gang."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, str, str]] = {}  # gang id -> its creation, its id, the label
        self._gangs: Counter[str] = Counter()  # by label

    def take(self, changed: Iterable[GangFacts], gone: Iterable[str]) -> bool:
        """Gangs changed, or are gone. True: other labels are asked for now, or the same by gangs of another age."""
        before = set(self._gangs)
        aged = False
        for facts in changed:
            key = label_key_of_tree(facts.tree)
            asks = (facts.created_seconds, facts.id, key) if key else None
            aged |= asks != self._asked.get(facts.id)
            self._drop(facts.id)
            if asks is not None:
                self._asked[facts.id] = asks
                self._gangs[key] += 1
        for gang_id in gone:
            aged |= gang_id in self._asked
            self._drop(gang_id)
        return before != set(self._gangs) or (aged and len(self._gangs) > MAX_LABEL_KEY_TREES)

    def labels(self) -> list[str]:
        """Those that get a tree, in the order of the alphabet."""
        if len(self._gangs) <= MAX_LABEL_KEY_TREES:
            return sorted(self._gangs)
        oldest: dict[str, None] = {}
        for _, _, key in sorted(self._asked.values()):
            oldest[key] = None
            if len(oldest) == MAX_LABEL_KEY_TREES:
                break
        return sorted(oldest)

    def _drop(self, gang_id: str) -> None:
        asked = self._asked.pop(gang_id, None)
        if asked is not None:
            self._gangs[asked[2]] -= 1
            if not self._gangs[asked[2]]:
                del self._gangs[asked[2]]
