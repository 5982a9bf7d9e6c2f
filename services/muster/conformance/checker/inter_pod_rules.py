"""Checks inter-pod rules: host ports, affinity, anti-affinity and topology spread.

kube-scheduler sees pods one by one, so an answer is correct if some order of its members satisfies every rule at each
step.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from muster.conformance.checker.filters import matches_affinity, tolerates_all
from muster.conformance.checker.node_usage import Members, NodeUsage
from muster.conformance.labels import selects
from muster.gangs.facts import HostPort, NodeFacts, PodClass, PodTerm, SpreadConstraint

_MAX_TRIED: Final = 5_000
"""Sets of remaining members that are tried; beyond that, the answer is accepted."""


def inter_pod_violation(usage: NodeUsage, added: Members) -> str:
    """Why the members cannot be placed in any order; "" if they can. `added` must not be part of `usage.pods` yet."""
    placed = _Placed(usage)
    if not placed.has_rules(added):
        return ""
    stuck: dict[frozenset[tuple[tuple[str, str], int]], str] = {}
    return _why_stuck(placed, +added, stuck)


def _why_stuck(placed: "_Placed", waiting: Members, stuck: dict[frozenset[tuple[tuple[str, str], int]], str]) -> str:
    """Try all orders of the waiting members; `stuck` caches sets of waiting members for which none exists."""
    key = frozenset(waiting.items())
    if not waiting or len(stuck) > _MAX_TRIED:
        return ""
    if key in stuck:
        return stuck[key]
    first_reason = ""
    for class_id, node in sorted(waiting):
        reason = placed.violated_rule(placed.of_class(class_id), placed.node(node))
        if not reason:
            one = Counter({(class_id, node): 1})
            placed.pods += one
            reason = _why_stuck(placed, waiting - one, stuck)
            placed.pods -= one
            if not reason:
                return ""
        first_reason = first_reason or reason
    stuck[key] = first_reason
    return first_reason


class _Placed:
    """Pods placed so far."""

    def __init__(self, usage: NodeUsage) -> None:
        self.of_class, self.node = usage.of_class, usage.node
        self._known = usage.cluster.nodes
        self.pods: Members = +usage.pods

    def has_rules(self, added: Members) -> bool:
        """Any class concerned has a required inter-pod rule."""
        classes = {class_id for class_id, _ in (*self.pods, *added)}
        return any(
            one.host_ports
            or one.required_pod_affinity
            or one.required_pod_anti_affinity
            or any(spread.hard for spread in one.spread)
            for one in map(self.of_class, classes)
        )

    def violated_rule(self, pod_class: PodClass, node: NodeFacts) -> str:
        """Which rule rejects one more pod of the class on the node; "" if none does."""
        for other, at, _ in self._all():
            if at.name == node.name and _share_ports(pod_class, other):
                return f"a host port of its members is taken on node {node.name!r}"
            for term in pod_class.required_pod_anti_affinity:
                if selects(term.selector, other.label_set) and _same(term.topology_key, at, node):
                    return f"anti-affinity of its members rejects node {node.name!r} ({term.topology_key})"
            for term in other.required_pod_anti_affinity:
                if selects(term.selector, pod_class.label_set) and _same(term.topology_key, at, node):
                    return (
                        f"anti-affinity of other pods rejects its members on node {node.name!r} ({term.topology_key})"
                    )
        if not self._affinity_satisfied(pod_class, node):
            return f"required affinity of its members is not met on node {node.name!r}"
        for spread in pod_class.spread:
            if spread.hard and not self._skew_allows(pod_class, spread, node):
                return f"one more member on node {node.name!r} exceeds max skew {spread.max_skew} ({spread})"
        return ""

    def _all(self) -> Iterable[tuple[PodClass, NodeFacts, int]]:
        for (class_id, node), count in self.pods.items():
            if count > 0 and node in self._known:
                yield self.of_class(class_id), self._known[node], count

    def _affinity_satisfied(self, pod_class: PodClass, node: NodeFacts) -> bool:
        terms = pod_class.required_pod_affinity
        if not all(term.topology_key in node.labels for term in terms):
            return False
        suitable = [at for other, at, _ in self._all() if _selected(other, terms)]
        if all(any(_same(term.topology_key, at, node) for at in suitable) for term in terms):
            return True
        anywhere = any(term.topology_key in at.labels for at in suitable for term in terms)
        return not anywhere and _selected(pod_class, terms)  # the first pod of a self-affine class

    def _skew_allows(self, pod_class: PodClass, spread: SpreadConstraint, node: NodeFacts) -> bool:
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
            if at.name in eligible and selects(spread.selector, other.label_set):
                counts[eligible[at.name]] += count
        least = 0 if len(counts) < spread.min_domains else min(counts.values(), default=0)
        itself = int(selects(spread.selector, pod_class.label_set))
        return counts[node.labels[spread.topology_key]] + itself - least <= spread.max_skew


def _selected(pod_class: PodClass, terms: Iterable[PodTerm]) -> bool:
    """All terms select the class."""
    return all(selects(term.selector, pod_class.label_set) for term in terms)


def _same(key: str, one: NodeFacts, other: NodeFacts) -> bool:
    """Both nodes are in the same domain."""
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _share_ports(one: PodClass, other: PodClass) -> bool:
    return any(_conflict(mine, theirs) for mine in one.host_ports for theirs in other.host_ports)


def _conflict(mine: HostPort, theirs: HostPort) -> bool:
    everywhere = "0.0.0.0"  # noqa: S104 (Kubernetes' value for all addresses)
    return (mine.protocol, mine.port) == (theirs.protocol, theirs.port) and (
        mine.ip == theirs.ip or everywhere in (mine.ip, theirs.ip)
    )
