"""Rules between pods: host ports, affinity, anti-affinity, spread. Is there an order in which the members of an answer
could have come, each to its node, with every rule kept whenever one came? kube-scheduler sees pods one by one.
"""

from collections import Counter
from collections.abc import Iterable

from muster.conformance.checker.filters import matches_affinity, tolerates_all
from muster.conformance.checker.loads import Loads, Members
from muster.gangs.facts import HostPort, NodeFacts, PodClass, PodTerm, SpreadConstraint


def why_no_order(loads: Loads, added: Members) -> str:
    """What keeps the rest off when no member more can come; "" if all can. `added` are not on their nodes yet."""
    there, waiting = _There(loads), +added
    if not there.has_rules(waiting):
        return ""
    while waiting:
        told = ""
        for class_id, node in sorted(waiting):
            told = there.in_the_way(loads.of_class(class_id), loads.node(node))
            if not told:
                there.pods[class_id, node] += 1
                waiting = waiting - Counter({(class_id, node): 1})
                break
        else:
            return told
    return ""


class _There:
    """The pods that are there so far."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self.pods: Members = +loads.pods

    def has_rules(self, added: Members) -> bool:
        """Any of those concerned has a rule about others."""
        classes = {class_id for class_id, _ in (*self.pods, *added)}
        return any(
            one.host_ports
            or one.required_pod_affinity
            or one.required_pod_anti_affinity
            or any(spread.hard for spread in one.spread)
            for one in map(self._loads.of_class, classes)
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
        known = self._loads.world.nodes
        for (class_id, node), count in self.pods.items():
            if count > 0 and node in known:
                yield self._loads.of_class(class_id), known[node], count

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
            for at in self._loads.world.nodes.values()
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
