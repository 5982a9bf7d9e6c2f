"""Usage of nodes while a request is answered: pods are added and removed one by one."""

from collections import Counter
from typing import Final

from msgspec.structs import replace

from muster.firstfit.cluster import Cluster
from muster.gangs import counted_resources
from muster.gangs.facts import Amounts, HostPort, NodeFacts, PodClass, PodTerm, split_kind
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
        self._selects = cluster.selection.selects
        self._pods: Counter[tuple[str, str, str]] = Counter()
        """Pods per (class, label set, node)."""
        self._terms: dict[str, tuple[PodTerm, ...]] = {}
        """Required anti-affinity terms by class."""
        self._selected: dict[PodTerm, Counter[str]] = {}
        """Pods that a term selects, by the label value of their node; of terms that were compared."""
        self._repelled: dict[str, Counter[tuple[str, str]]] = {}
        """Pods with a term that selects a label set, by topology key and value; of label sets that were compared."""
        for pod in cluster.pods.values():
            self.put(replace(cluster.classes[pod.class_id], label_set=pod.label_set), pod.node)

    def put(self, pod_class: PodClass, node: str, count: int = 1) -> None:
        """Add pods to the node, or remove them if `count` is negative. Unknown nodes are ignored."""
        if node not in self.nodes:
            return
        class_id = split_kind(pod_class.id)[0]
        self.use(node, pod_class.requests, count)
        for port in pod_class.host_ports:
            self._ports[node][port] += count
        self._terms[class_id] = pod_class.required_pod_anti_affinity
        self._pods[class_id, pod_class.label_set, node] += count
        for term, by_value in self._selected.items():
            self._count_selected(by_value, term, pod_class.label_set, node, count)
        for label_set, by_domain in self._repelled.items():
            self._count_repelled(by_domain, label_set, class_id, node, count)

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
                return counted_resources.filter_reason(name) or f"Insufficient {name}"
        return None

    def _violates_anti_affinity(self, pod_class: PodClass, node: NodeFacts) -> bool:
        """By the terms of the class, or by those of pods in the node's domains."""
        repelled = self._repelled.get(pod_class.label_set)
        if repelled is None:
            repelled = self._repelled[pod_class.label_set] = Counter()
            for (class_id, _, on), count in self._pods.items():
                self._count_repelled(repelled, pod_class.label_set, class_id, on, count)
        if any(count > 0 and node.labels.get(key) == value for (key, value), count in repelled.items()):
            return True
        return any(
            self._selected_by(term)[node.labels[term.topology_key]] > 0
            for term in pod_class.required_pod_anti_affinity
            if term.topology_key in node.labels
        )

    def _selected_by(self, term: PodTerm) -> Counter[str]:
        selected = self._selected.get(term)
        if selected is None:
            selected = self._selected[term] = Counter()
            for (_, label_set, on), count in self._pods.items():
                self._count_selected(selected, term, label_set, on, count)
        return selected

    def _count_selected(self, by_value: Counter[str], term: PodTerm, label_set: str, node: str, count: int) -> None:
        value = self.nodes[node].labels.get(term.topology_key)
        if value is not None and self._selects(term.selector, label_set):
            by_value[value] += count

    def _count_repelled(
        self, by_domain: Counter[tuple[str, str]], label_set: str, class_id: str, node: str, count: int
    ) -> None:
        labels = self.nodes[node].labels
        for term in self._terms[class_id]:
            if term.topology_key in labels and self._selects(term.selector, label_set):
                by_domain[term.topology_key, labels[term.topology_key]] += count


def _conflict(port: HostPort, other: HostPort) -> bool:
    same = (port.protocol, port.port) == (other.protocol, other.port)
    return same and (port.ip == other.ip or _ANY_IP in (port.ip, other.ip))
