"""Objects of scenarios of the coordinator's core: classes, nodes, plain pods, and a cluster."""

from collections import Counter
from dataclasses import dataclass, field

from builders.gangs.labels import with_labels
from muster.gangs.facts import (
    Batch,
    DisruptionBudget,
    GangFacts,
    NodeFacts,
    PodClass,
    PodFacts,
    StaticClaim,
    StaticVolume,
    TopologyTree,
    TreeDomain,
    TreeLevel,
    split_kind,
)


def pod_class(cpu: int = 1) -> PodClass:
    """A class that requests whole cpus."""
    return PodClass(id=f"cpu{cpu}", requests=(("cpu", cpu * 1000), ("pods", 1)))


def class_with_volume(cpu: int = 1) -> PodClass:
    """The class of the same pods after a claim of theirs was bound to a volume."""
    return PodClass(id=f"cpu{cpu}-volume", requests=pod_class(cpu).requests)


def racks(**nodes: str) -> TopologyTree:
    """The default tree, of racks: racks(r0="a b", r1="c")."""
    domains = tuple(TreeDomain(rack, 0) for rack in sorted(nodes))
    leaves = tuple((node, index) for index, rack in enumerate(sorted(nodes)) for node in nodes[rack].split() if node)
    return TopologyTree("racks", (TreeLevel("rack"), TreeLevel("node")), domains, leaves, default=True)


def node(name: str, cpu: int, **facts: object) -> NodeFacts:
    """A node with so many cpus."""
    return NodeFacts(name, uid=name, allocatable=(("cpu", cpu * 1000), ("pods", 110)), **facts)  # type: ignore[arg-type]


def plain_pod(name: str, cpu: int = 1, priority: int = 0, age: int = 0, uid: str = "") -> PodFacts:
    """A pod without marks."""
    return PodFacts(
        uid=uid or f"default/{name}",
        namespace="default",
        name=name,
        class_id=pod_class(cpu).id,
        priority=priority,
        created_seconds=age,
    )


def _classes() -> list[PodClass]:
    return [*map(pod_class, range(17)), *map(class_with_volume, range(1, 17))]


@dataclass
class Cluster:
    """The API server's objects."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    gangs: dict[str, GangFacts] = field(default_factory=dict)
    budgets: dict[str, DisruptionBudget] = field(default_factory=dict)
    trees: dict[str, TopologyTree] = field(default_factory=dict)
    classes: dict[str, PodClass] = field(default_factory=lambda: {c.id: c for c in _classes()})

    static_volumes: dict[str, StaticVolume] = field(default_factory=dict)
    static_claims: dict[str, StaticClaim] = field(default_factory=dict)
    revision: int = 0
    """Number of changes so far; lower after a restore of the API server."""
    used: Counter[str] = field(default_factory=Counter)
    """Millicores of bound pods by node."""

    def put_pod(self, pod: PodFacts) -> None:
        self.drop_pod(pod.uid)
        self.pods[pod.uid] = pod
        if pod.seated:
            self.used[pod.node] += self.cpu(pod)

    def drop_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None and pod.seated:
            self.used[pod.node] -= self.cpu(pod)

    def free(self) -> dict[str, int]:
        """Free millicores by node, given the bound pods."""
        return {name: dict(facts.allocatable)["cpu"] - self.used[name] for name, facts in self.nodes.items()}

    def cpu(self, pod: PodFacts) -> int:
        return self.class_cpu(pod.class_id)

    def class_cpu(self, kind: str) -> int:
        return dict(self.classes[split_kind(kind)[0]].requests)["cpu"]

    def whole(self) -> Batch:
        whole = Batch(
            pod_classes=tuple(self.classes.values()),
            nodes=tuple(self.nodes.values()),
            pods=tuple(self.pods.values()),
            gangs=tuple(self.gangs.values()),
            budgets=tuple(self.budgets.values()),
            trees=tuple(self.trees.values()),
            static_volumes=tuple(self.static_volumes.values()),
            static_claims=tuple(self.static_claims.values()),
            changed={"pods": self.revision},
        )
        return with_labels(whole, {})

    def rack_of(self, node_name: str) -> str:
        """The domain of the node in the default tree; an unknown node is a rack of its own."""
        for tree in self.trees.values():
            if tree.default:
                return next((tree.domains[at].name for name, at in tree.leaves if name == node_name), node_name)
        return node_name
