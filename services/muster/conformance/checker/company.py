"""Rules between pods: host ports, affinity, anti-affinity, spread. Is there an order in which the members of an answer
could have come, each to its node, with every rule kept whenever one came? kube-scheduler sees pods one by one.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from muster.conformance.checker.filters import matches_affinity, tolerates_all
from muster.conformance.checker.loads import Loads, Members
from muster.gangs.facts import HostPort, NodeFacts, PodClass, PodTerm, SpreadConstraint

_MOST_TRIED: Final = 5_000
"""Sets of members that may have come so far; with more than that to try, nothing is held against an answer."""


def why_no_order(loads: Loads, added: Members) -> str:
    """What keeps the rest off when no member more can come; "" if all can. `added` are not on their nodes yet."""
    there = _There(loads)
    if not there.has_rules(added):
        return ""
    stuck: dict[frozenset[tuple[tuple[str, str], int]], str] = {}
    return _why_stuck(there, +added, stuck)


def _why_stuck(there: "_There", waiting: Members, stuck: dict[frozenset[tuple[tuple[str, str], int]], str]) -> str:
    """Let members come in one order after the other; `stuck` are those who waited when no order was left."""
    key = frozenset(waiting.items())
    if not waiting or len(stuck) > _MOST_TRIED:
        return ""
    if key in stuck:
        return stuck[key]
    told = ""
    for class_id, node in sorted(waiting):
        reason = there.in_the_way(there.of_class(class_id), there.node(node))
        if not reason:
            one = Counter({(class_id, node): 1})
            there.pods += one
            reason = _why_stuck(there, waiting - one, stuck)
            there.pods -= one
            if not reason:
                return ""
        told = told or reason
    stuck[key] = told
    return told


class _There:
    """The pods that are there so far."""

    def __init__(self, loads: Loads) -> None:
        self.of_class, self.node = loads.of_class, loads.node
        self._known = loads.world.nodes
        self.pods: Members = +loads.pods

    def has_rules(self, added: Members) -> bool:
        """Any of those concerned has a rule about others."""
        classes = {class_id for class_id, _ in (*self.pods, *added)}
        return any(
            one.host_ports
            or one.required_pod_affinity
            or one.required_pod_anti_affinity
            or any(spread.hard for spread in one.spread)
            for one in map(self.of_class, classes)
        )

    def in_the_way(self, pod_class: PodClass, node: NodeFacts) -> str:
        """Why one more pod of the class cannot come to the node; "" if it can."""
        for other, at, _ in self._all():
            if at.name == node.name and _share_ports(pod_class, other):
                return f"a host port of its members is taken on node {node.name!r}"
            for term in pod_class.required_pod_anti_affinity:
                if term.selector in other.selected_by and _same(term.topology_key, at, node):
                    return f"anti-affinity of its members keeps them off node {node.name!r} ({term.topology_key})"
            for term in other.required_pod_anti_affinity:
                if term.selector in pod_class.selected_by and _same(term.topology_key, at, node):
                    return f"anti-affinity of other pods keeps its members off node {node.name!r} ({term.topology_key})"
        if not self._wanted_company(pod_class, node):
            return f"required affinity of its members is not met on node {node.name!r}"
        for spread in pod_class.spread:
            if spread.hard and not self._spreads(pod_class, spread, node):
                return f"with one more on node {node.name!r} they differ by more than {spread.max_skew} ({spread})"
        return ""

    def _all(self) -> Iterable[tuple[PodClass, NodeFacts, int]]:
        for (class_id, node), count in self.pods.items():
            if count > 0 and node in self._known:
                yield self.of_class(class_id), self._known[node], count

    def _wanted_company(self, pod_class: PodClass, node: NodeFacts) -> bool:
        terms = pod_class.required_pod_affinity
        if not all(term.topology_key in node.labels for term in terms):
            return False
        suitable = [at for other, at, _ in self._all() if _selected(other, terms)]
        if all(any(_same(term.topology_key, at, node) for at in suitable) for term in terms):
            return True
        anywhere = any(term.topology_key in at.labels for at in suitable for term in terms)
        return not anywhere and _selected(pod_class, terms)  # the first of those that want to be together

    def _spreads(self, pod_class: PodClass, spread: SpreadConstraint, node: NodeFacts) -> bool:
        if spread.topology_key not in node.labels:
            return False
        keys = [each.topology_key for each in pod_class.spread if each.hard]
        eligible = {
            at.name: at.labels[spread.topology_key]
            for at in self._known.values()
            if all(key in at.labels for key in keys)
            and (spread.ignores_node_affinity or matches_affinity(pod_class, at))
            and (not spread.honors_taints or tolerates_all(pod_class, at))
        }
        counts = Counter(dict.fromkeys(eligible.values(), 0))
        for other, at, count in self._all():
            if at.name in eligible and spread.selector in other.selected_by:
                counts[eligible[at.name]] += count
        least = 0 if len(counts) < spread.min_domains else min(counts.values(), default=0)
        itself = int(spread.selector in pod_class.selected_by)
        return counts[node.labels[spread.topology_key]] + itself - least <= spread.max_skew


def _selected(pod_class: PodClass, terms: Iterable[PodTerm]) -> bool:
    """By all of the terms."""
    return all(term.selector in pod_class.selected_by for term in terms)


def _same(key: str, one: NodeFacts, other: NodeFacts) -> bool:
    """Both are in the same domain."""
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _share_ports(one: PodClass, other: PodClass) -> bool:
    return any(_conflict(mine, theirs) for mine in one.host_ports for theirs in other.host_ports)


def _conflict(mine: HostPort, theirs: HostPort) -> bool:
    everywhere = "0.0.0.0"  # noqa: S104 (what Kubernetes means by no address)
    return (mine.protocol, mine.port) == (theirs.protocol, theirs.port) and (
        mine.ip == theirs.ip or everywhere in (mine.ip, theirs.ip)
    )
