"""Usage of nodes while a request is answered: pods are added and removed one by one."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from muster.firstfit.cluster import Cluster
from muster.gangs.facts import Amounts, HostPort, NodeFacts, PodClass
from muster.gangs.node_filters import filter_reason

PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
_ANY_IP: Final = "0.0.0.0"  # noqa: S104 (Kubernetes' value for all addresses)


class NodeUsage:
    """Nodes in order of their names, with what is used on each."""

    def __init__(self, cluster: Cluster) -> None:
        self.nodes = {name: cluster.nodes[name] for name in sorted(cluster.nodes)}
        self._allocatable = {name: dict(node.allocatable) for name, node in self.nodes.items()}
        self._used: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self._ports: dict[str, Counter[HostPort]] = {name: Counter() for name in self.nodes}
        self._keys = {term.topology_key for one in cluster.classes.values() for term in one.required_pod_anti_affinity}
        self._selected: Counter[tuple[str, str, str]] = Counter()
        """Pods per (selector that matches them, topology key, label value)."""
        self._rejecting: Counter[tuple[str, str, str]] = Counter()
        """Pods per (selector of their anti-affinity, topology key, label value)."""
        for pod in cluster.pods.values():
            self.put(cluster.classes[pod.class_id], pod.node)

    def put(self, pod_class: PodClass, node: str, count: int = 1) -> None:
        """Add pods to the node, or remove them if `count` is negative. Unknown nodes are ignored."""
        if node not in self.nodes:
            return
        labels = self.nodes[node].labels
        self.use(node, pod_class.requests, count)
        for port in pod_class.host_ports:
            self._ports[node][port] += count
        for selector, key, value in _domains(pod_class.selected_by, self._keys, labels):
            self._selected[selector, key, value] += count
        for term in pod_class.required_pod_anti_affinity:
            if (label := labels.get(term.topology_key)) is not None:
                self._rejecting[term.selector, term.topology_key, label] += count

    def use(self, node: str, amounts: Amounts, count: int = 1) -> None:
        """Use amounts on the node. Unknown nodes are ignored."""
        for name, amount in amounts if node in self.nodes else ():
            self._used[node][name] += amount * count

    def fits(self, pod_class: PodClass, node: str) -> bool:
        """One more pod of the class fits on the node."""
        return self.filter_reason(pod_class, node) is None

    def filter_reason(self, pod_class: PodClass, node: str) -> str | None:
        """Why one more pod of the class does not fit on the node, in kube-scheduler's words; None if it fits."""
        facts = self.nodes[node]
        if (reason := filter_reason(pod_class, facts)) is not None:
            return reason
        if any(_conflict(port, other) for port in pod_class.host_ports for other in +self._ports[node]):
            return PORTS
        if self._violates_anti_affinity(pod_class, facts):
            return ANTI_AFFINITY
        used, allocatable = self._used[node], self._allocatable[node]
        for name, amount in pod_class.requests:
            if amount > 0 and used[name] + amount > allocatable.get(name, 0):
                return f"Insufficient {name}"
        return None

    def _violates_anti_affinity(self, pod_class: PodClass, node: NodeFacts) -> bool:
        """By the terms of the class, or by those of pods in the node's domains."""
        if any(self._rejecting[domain] for domain in _domains(pod_class.selected_by, self._keys, node.labels)):
            return True
        return any(
            self._selected[term.selector, term.topology_key, node.labels.get(term.topology_key, "")]
            for term in pod_class.required_pod_anti_affinity
            if term.topology_key in node.labels
        )


def _domains(selectors: Iterable[str], keys: Iterable[str], labels: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    return ((selector, key, labels[key]) for selector in selectors for key in keys if key in labels)


def _conflict(port: HostPort, other: HostPort) -> bool:
    same = (port.protocol, port.port) == (other.protocol, other.port)
    return same and (port.ip == other.ip or _ANY_IP in (port.ip, other.ip))
