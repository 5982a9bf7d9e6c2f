"""Regions: sets of nodes that are given by node selector terms, such as the nodes that can use a volume.

Which nodes are in which regions is kept up to date without comparing all nodes with all regions: a region whose terms
name values of a label is only compared with nodes that have one of them.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from muster.gangs.facts import NodeFacts, NodeOperator, NodeSelectorTerm
from muster.gangs.node_filters import term_matches

Region = tuple[tuple[NodeSelectorTerm, ...], ...]
"""A node is in the region if it matches one term of each entry."""

EVERYWHERE: Final[Region] = ()
NOWHERE: Final[Region] = ((NodeSelectorTerm(),),)

_Anchor = tuple[str, str]
"""A label and a value, or a field and a value, that every node of a region has one of."""
_FIELD: Final = "\0"  # prefix of fields, so that no label is meant


class NodeRegions:
    """Nodes and regions. Entries end when the node is dropped, or the region as often as it was added (I11)."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._uses: Counter[Region] = Counter()
        self._members: dict[Region, set[str]] = {}
        self._of_node: defaultdict[str, set[Region]] = defaultdict(set)
        self._anchored: defaultdict[_Anchor, set[Region]] = defaultdict(set)
        self._anywhere: set[Region] = set()  # regions without an anchor
        self._keys: Counter[str] = Counter()  # keys of anchors
        self._having: dict[str, defaultdict[str, set[str]]] = {}  # nodes by key and value, of these keys

    def nodes(self, region: Region) -> Collection[str]:
        """Names of the nodes in a region that was added."""
        return self._members.get(region, ())

    def regions(self, node: str) -> Collection[Region]:
        """Regions of a node."""
        return self._of_node.get(node, ())

    def add(self, region: Region) -> None:
        self._uses[region] += 1
        if self._uses[region] > 1:
            return
        anchors = _anchors(region)
        candidates: set[str] = set()
        if anchors is None:
            self._anywhere.add(region)
            candidates.update(self._nodes)
        for anchor in anchors or ():
            self._anchored[anchor].add(region)
            self._add_key(anchor[0])
            candidates |= self._having[anchor[0]].get(anchor[1], set())
        self._members[region] = {name for name in candidates if _is_in(region, self._nodes[name])}
        for name in self._members[region]:
            self._of_node[name].add(region)

    def discard(self, region: Region) -> None:
        self._uses[region] -= 1
        if self._uses[region]:
            return
        del self._uses[region]
        self._anywhere.discard(region)
        for anchor in _anchors(region) or ():
            self._anchored[anchor].discard(region)
            if not self._anchored[anchor]:
                del self._anchored[anchor]
            self._keys[anchor[0]] -= 1
            if not self._keys[anchor[0]]:
                del self._keys[anchor[0]], self._having[anchor[0]]
        for name in self._members.pop(region):
            self._leave(name, region)

    def put_node(self, node: NodeFacts) -> bool:
        """Add or change a node. Returns whether its regions changed."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is not None and before.labels == node.labels:
            return False
        for key, values in self._having.items():
            if before is not None and (old := _value(before, key)) is not None:
                _discard(values, old, node.name)
            if (new := _value(node, key)) is not None:
                values[new].add(node.name)
        return self._settle(node.name, {region for region in self._candidates(node) if _is_in(region, node)})

    def drop_node(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is None:
            return
        for key, values in self._having.items():
            if (value := _value(node, key)) is not None:
                _discard(values, value, name)
        self._settle(name, set())

    def _candidates(self, node: NodeFacts) -> Iterable[Region]:
        yield from self._anywhere
        for key in self._keys:
            if (value := _value(node, key)) is not None:
                yield from self._anchored.get((key, value), ())

    def _settle(self, name: str, after: set[Region]) -> bool:
        before = set(self._of_node.get(name, ()))
        for region in before - after:
            self._members[region].discard(name)
            self._leave(name, region)
        for region in after - before:
            self._members[region].add(name)
            self._of_node[name].add(region)
        return before != after

    def _leave(self, name: str, region: Region) -> None:
        self._of_node[name].discard(region)
        if not self._of_node[name]:
            del self._of_node[name]

    def _add_key(self, key: str) -> None:
        self._keys[key] += 1
        if key not in self._having:
            values = self._having[key] = defaultdict(set)
            for node in self._nodes.values():
                if (value := _value(node, key)) is not None:
                    values[value].add(node.name)


def _is_in(region: Region, node: NodeFacts) -> bool:
    return all(any(term_matches(term, node) for term in terms) for terms in region)


def _value(node: NodeFacts, key: str) -> str | None:
    return node.name if key.startswith(_FIELD) else node.labels.get(key)


def _discard(values: defaultdict[str, set[str]], value: str, name: str) -> None:
    values[value].discard(name)
    if not values[value]:
        del values[value]


def _anchors(region: Region) -> set[_Anchor] | None:
    """Labels and values of which a node in the region has at least one; None: a region may have nodes without any."""
    for terms in region:
        of_terms = [_anchors_of_term(term) for term in terms]
        if all(each is not None for each in of_terms):
            return {anchor for each in of_terms if each is not None for anchor in each}
    return None


def _anchors_of_term(term: NodeSelectorTerm) -> set[_Anchor] | None:
    if not term.labels and not term.fields:
        return set()  # matches no node
    for requirement in term.labels:
        if requirement.operator is NodeOperator.IN:
            return {(requirement.key, value) for value in requirement.values}
    for requirement in term.fields:
        if requirement.operator is NodeOperator.IN:
            return {(_FIELD + requirement.key, value) for value in requirement.values}
    return None
