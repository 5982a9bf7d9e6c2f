"""Pods on nodes while an answer is checked, and whether a node is oversubscribed."""

from collections import Counter

from muster.conformance.cluster import Cluster
from muster.gangs.facts import NodeFacts, PodClass
from muster.placement.v1 import placement_pb2 as pb

Members = Counter[tuple[str, str]]
"""Pods by class id and node."""


class NodeUsage:
    """Bound pods, reservations and nominated capacity; answers add members and remove victims."""

    def __init__(self, cluster: Cluster, request: pb.SolveRequest) -> None:
        self.cluster = cluster
        self.pods: Members = Counter((pod.class_id, pod.node) for pod in cluster.seated())
        seated = {pod.uid for pod in cluster.seated()}
        for held in request.reservations:
            unseen = sum(uid not in seated for uid in held.pod_uids)
            self.pods[held.class_id, held.node] += unseen
        self._nominated: dict[str, Counter[str]] = {}
        for nominated in request.nominated:
            amounts = self._nominated.setdefault(nominated.node, Counter())
            for each in nominated.amounts:
                amounts[each.name] += each.amount

    def of_class(self, class_id: str) -> PodClass:
        return self.cluster.classes[class_id]

    def node(self, name: str) -> NodeFacts:
        return self.cluster.nodes[name]

    def oversubscribed(self, added: Members) -> list[str]:
        """Nodes that received pods and are oversubscribed in a resource that these pods request.

        `added` must already be part of `pods`.
        """
        requested: dict[str, set[str]] = {}
        for class_id, node in added:
            requested.setdefault(node, set()).update(
                name for name, amount in self.of_class(class_id).requests if amount
            )
        used = {node: Counter(self._nominated.get(node, {})) for node in requested}
        for (class_id, node), count in self.pods.items():
            for name, amount in self.of_class(class_id).requests if node in used else ():
                used[node][name] += amount * count
        problems = []
        for node, names in sorted(requested.items()):
            there = dict(self.node(node).allocatable)
            problems += [
                f"node {node!r} has {there.get(name, 0)} of {name!r} allocatable, but {used[node][name]} in use"
                for name in sorted(names)
                if used[node][name] > there.get(name, 0)
            ]
        return problems
