"""Volcano's HyperNodes, and the trees that they and the present nodes make."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from muster.gangs.facts import Problem, Severity, TopologyTree, TreeLevel
from muster.kube.hyper_nodes import HyperNodeObject, read_hyper_node
from muster.topology.hyper_nodes import (
    BY_TIER,
    BY_TIER_NAME,
    MAX_TIER,
    BadHyperNodes,
    HyperNode,
    MemberSelector,
    absent_members,
    compile_pattern,
    hyper_node_trees,
    tier_level,
    unused_tier_names,
)
from muster.topology.labelled_nodes import LabelledNodes
from muster.topology.trees import NODE_LEVEL

_NEVER_VALID: Final = tuple(
    TopologyTree(name, tuple(map(TreeLevel, (*map(tier_level, range(MAX_TIER, -1, -1)), NODE_LEVEL))))
    for name in (BY_TIER, BY_TIER_NAME)
)
"""Trees with every level and no domain, so that gangs with hard constraints wait."""
_ABSENT: Final = Problem(Severity.BLOCKING, "there is no HyperNode (topology.volcano.sh): create HyperNodes")


class HyperNodes:
    """All HyperNodes by uid. While they are no tree, the last valid trees stay, with the problem. Entries end with
    their HyperNode, and the last valid trees with the last HyperNode (I11).
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, HyperNode] = {}
        self._valid: list[TopologyTree] = []
        self._nodes = _Patterns()
        self._members = _Patterns()

    def put(self, given: HyperNodeObject) -> bool:
        """Add or update a HyperNode; returns whether it changed."""
        uid, after = given.metadata.uid, read_hyper_node(given)
        before = self._by_uid.get(uid)
        self._by_uid[uid] = after
        return before != after

    def new_patterns(self) -> list[str]:
        """Patterns of nodes that are not evaluated yet."""
        selectors = (selector for each in self._by_uid.values() for selector in each.members)
        return [each for each in {one.pattern: None for one in selectors if one.of_nodes} if each not in self._nodes]

    def evaluate(self, pattern: str, nodes: Iterable[str]) -> None:
        """Evaluate a pattern of nodes ahead of `trees`, which evaluates all new ones at once."""
        self._nodes.add(pattern, nodes)

    def remove(self, uid: str) -> bool:
        """Remove a HyperNode; returns False if it was not known."""
        return self._by_uid.pop(uid, None) is not None

    def trees(self, nodes: Mapping[str, Mapping[str, str]], *, named: bool) -> list[TopologyTree]:
        """The present trees; without HyperNodes none, or if gangs name them, trees with a problem.

        `nodes`: labels by node name.
        """
        if not self._by_uid:
            self._valid = []
            self._nodes, self._members = _Patterns(), _Patterns()
            return [replace(tree, problems=(_ABSENT,)) for tree in _NEVER_VALID] if named else []
        selectors = [selector for each in self._by_uid.values() for selector in each.members if selector.pattern]
        self._nodes.update({each.pattern for each in selectors if each.of_nodes}, nodes)
        self._members.update(
            {each.pattern for each in selectors if not each.of_nodes}, {each.name for each in self._by_uid.values()}
        )

        labels = [each.labels for of in self._by_uid.values() for each in of.members if each.labels is not None]
        by_label = LabelledNodes(nodes, {each.key for selector in labels for each in selector.requirements or ()})

        def nodes_of(selector: MemberSelector) -> Iterable[str]:
            if selector.labels is not None:
                return sorted(by_label.selected(selector.labels))
            return self._nodes.selected(selector)

        try:
            trees = hyper_node_trees(self._by_uid.values(), nodes_of, self._members.selected)
            if trees != self._valid:
                self._valid = trees
            found = (absent_members(self._by_uid.values(), nodes), unused_tier_names(self._by_uid.values()))
            return [replace(tree, problems=tuple(of_tree)) for tree, of_tree in zip(self._valid, found, strict=False)]
        except BadHyperNodes as error:
            problem = Problem(Severity.BLOCKING, str(error))
            return [replace(tree, definition=error.about, problems=(problem,)) for tree in self._valid or _NEVER_VALID]


class _Patterns:
    """Names that patterns match; a pattern is evaluated once for each. Entries end with the pattern, or the node or
    HyperNode of the name (I11).
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._matched: dict[str, set[str]] = {}

    def __contains__(self, pattern: str) -> bool:
        """The pattern was evaluated, or there is none."""
        return not pattern or pattern in self._matched

    def add(self, pattern: str, names: Iterable[str]) -> None:
        """Evaluate a pattern for the names that are known, or if no pattern is, for the existing names."""
        if not self._matched:
            self._names = set(names)
        if pattern not in self._matched:
            self._matched[pattern] = set(filter(compile_pattern(pattern), self._names))

    def update(self, patterns: set[str], names: Iterable[str]) -> None:
        """Set the patterns in use and the existing names."""
        present = set(names)
        added, removed = present - self._names, self._names - present
        self._names = present
        self._matched = {pattern: each for pattern, each in self._matched.items() if pattern in patterns}
        for pattern in patterns:
            known = self._matched.get(pattern)
            if known is None:
                self._matched[pattern] = set(filter(compile_pattern(pattern), present))
            elif added:
                known |= set(filter(compile_pattern(pattern), added))
            if known is not None:
                known -= removed

    def selected(self, selector: MemberSelector) -> Iterable[str]:
        """Names that a selector by name or pattern selects, in order."""
        return (selector.name,) if selector.name else sorted(self._matched[selector.pattern])
