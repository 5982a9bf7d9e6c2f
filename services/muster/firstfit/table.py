"""What is free while a request is answered: pods are put on nodes and taken off again, one by one."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from muster.firstfit.picture import Picture
from muster.gangs.facts import Amounts, HostPort, NodeFacts, PodClass
from muster.gangs.node_filters import VOLUMES, volumes_reachable, why_not

PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
COMPANY: Final = "node(s) didn't match pod anti-affinity rules"
_ANY_IP: Final = "0.0.0.0"  # noqa: S104 (what Kubernetes means by no address)


class Table:
    """Nodes in order of their names, with what is used on each."""

    def __init__(self, picture: Picture) -> None:
        self.nodes = {name: picture.nodes[name] for name in sorted(picture.nodes)}
        self._allocatable = {name: dict(node.allocatable) for name, node in self.nodes.items()}
        self._used: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        self._ports: dict[str, Counter[HostPort]] = {name: Counter() for name in self.nodes}
        self._keys = {term.topology_key for one in picture.classes.values() for term in one.required_pod_anti_affinity}
        self._present: Counter[tuple[str, str, str]] = Counter()
        """Pods by selector that selects them, label key and its value: so many are in that domain."""
        self._shunned: Counter[tuple[str, str, str]] = Counter()
        """Likewise: so many pods in that domain do not want any that the selector selects."""
        for pod in picture.pods.values():
            self.put(picture.classes[pod.class_id], pod.node)

    def put(self, pod_class: PodClass, node: str, times: int = 1) -> None:
        """So many pods come to the node; go, if it is negative. Unknown nodes are passed over."""
        if node not in self.nodes:
            return
        labels = self.nodes[node].labels
        self.use(node, pod_class.requests, times)
        for port in pod_class.host_ports:
            self._ports[node][port] += times
        for selector, key, value in _domains(pod_class.selected_by, self._keys, labels):
            self._present[selector, key, value] += times
        for term in pod_class.required_pod_anti_affinity:
            if (value_there := labels.get(term.topology_key)) is not None:
                self._shunned[term.selector, term.topology_key, value_there] += times

    def use(self, node: str, amounts: Amounts, times: int = 1) -> None:
        """So much of the node is used, whoever it is for."""
        for name, amount in amounts if node in self.nodes else ():
            self._used[node][name] += amount * times

    def takes(self, pod_class: PodClass, node: str) -> bool:
        """One more pod of the class can go there."""
        return self.in_the_way(pod_class, node) is None

    def in_the_way(self, pod_class: PodClass, node: str) -> str | None:
        """Why one more pod of the class cannot go there, in kube-scheduler's words; None: it can."""
        facts = self.nodes[node]
        if (reason := why_not(pod_class, facts)) is not None:
            return reason
        if not volumes_reachable(pod_class, facts):
            return VOLUMES
        if any(_conflict(port, other) for port in pod_class.host_ports for other in +self._ports[node]):
            return PORTS
        if self._unwelcome(pod_class, facts):
            return COMPANY
        used, there = self._used[node], self._allocatable[node]
        for name, amount in pod_class.requests:
            if amount > 0 and used[name] + amount > there.get(name, 0):
                return f"Insufficient {name}"
        return None

    def _unwelcome(self, pod_class: PodClass, node: NodeFacts) -> bool:
        """Anti-affinity, of the pod and of those that are there."""
        if any(self._shunned[domain] for domain in _domains(pod_class.selected_by, self._keys, node.labels)):
            return True
        return any(
            self._present[term.selector, term.topology_key, node.labels.get(term.topology_key, "")]
            for term in pod_class.required_pod_anti_affinity
            if term.topology_key in node.labels
        )


def _domains(selectors: Iterable[str], keys: Iterable[str], labels: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    return ((selector, key, labels[key]) for selector in selectors for key in keys if key in labels)


def _conflict(port: HostPort, other: HostPort) -> bool:
    same = (port.protocol, port.port) == (other.protocol, other.port)
    return same and (port.ip == other.ip or _ANY_IP in (port.ip, other.ip))
