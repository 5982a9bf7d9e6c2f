"""Objects of scenarios of the coordinator's core: classes, nodes, plain pods, and a cluster."""

from collections import Counter
from copy import copy
from dataclasses import dataclass, field, fields

from builders.gangs.labels import selects, with_labels
from muster.gangs.counted_resources import devices
from muster.gangs.facts import (
    Batch,
    DeviceObject,
    DeviceObjectKind,
    DisruptionBudget,
    ExtendedRequest,
    GangFacts,
    NodeFacts,
    PodClass,
    PodFacts,
    PodTerm,
    StaticClaim,
    StaticVolume,
    TopologyTree,
    TreeDomain,
    TreeLevel,
    kind_id,
    split_kind,
)
from muster.gangs.node_filters import term_matches
from muster.gangs.selectors import LabelSet, PodSelector

HOST = "kubernetes.io/hostname"
GPUS = devices("gpu")
"""The resource that stands for devices of the class "gpu"."""
EXTENDED = "example.com/gpu"
"""The extended resource that the class "gpu" backs."""
ANY_DEVICE = ""
"""Stands for all devices of a node, which claims and extended resources share."""


def pod_class(cpu: int = 1) -> PodClass:
    """A class that requests whole cpus."""
    return PodClass(id=f"cpu{cpu}", requests=(("cpu", cpu * 1000), ("pods", 1)))


def class_with_volume(cpu: int = 1) -> PodClass:
    """The class of the same pods after a claim of theirs was bound to a volume."""
    return PodClass(id=f"cpu{cpu}-volume", requests=pod_class(cpu).requests)


def claiming_class(cpu: int = 1, devices_: int = 1) -> PodClass:
    """A class of pods that also claim so many devices of the class "gpu"."""
    plain = pod_class(cpu)
    return PodClass(id=f"{plain.id}-gpu{devices_}", requests=tuple(sorted((*plain.requests, (GPUS, devices_)))))


def extended_class(cpu: int = 1, devices_: int = 1) -> PodClass:
    """A class of pods that also request so many of the extended resource."""
    plain = pod_class(cpu)
    return PodClass(
        id=f"{plain.id}-extended{devices_}",
        requests=tuple(sorted((*plain.requests, (EXTENDED, devices_)))),
        extended=(ExtendedRequest("main", EXTENDED, "container-0-request-0", 0, devices_),),
    )


def ruled_class(cpu: int, *, apart_from: str = "", beside: str = "") -> PodClass:
    """A class of pods that tolerate no pod with this label on their node, or want one there."""
    rule = f"-apart-{apart_from}" if apart_from else f"-beside-{beside}"
    return PodClass(
        id=f"{pod_class(cpu).id}{rule}",
        requests=pod_class(cpu).requests,
        required_pod_anti_affinity=(PodTerm(apart_from, HOST),) if apart_from else (),
        required_pod_affinity=(PodTerm(beside, HOST),) if beside else (),
    )


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
    device_objects: dict[tuple[DeviceObjectKind, str], DeviceObject] = field(default_factory=dict)
    former_classes: dict[str, PodClass] = field(default_factory=dict)
    selectors: dict[str, PodSelector] = field(default_factory=dict)
    label_sets: dict[str, LabelSet] = field(default_factory=dict)
    revision: int = 0
    """Grows with every change; lower after a restore of the API server."""
    used: Counter[str] = field(default_factory=Counter)
    """Millicores of bound pods by node."""
    usable_devices: Counter[str] = field(default_factory=Counter)
    """Number of devices by node that no foreign claim has; empty: not limited by the objects."""

    def copy(self) -> "Cluster":
        """A backup: facts never change, so that the maps are copied."""
        return Cluster(**{each.name: copy(getattr(self, each.name)) for each in fields(self)})

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

    def free_devices(self) -> Counter[tuple[str, str]]:
        """Free devices by node and resource, given the bound pods; of all resources together no more than there are
        devices. Empty if there are none.
        """
        free = Counter[tuple[str, str]]()
        if not self.device_objects:
            return free
        for name, facts in self.nodes.items():
            offered = dict(facts.allocatable)
            free.update({(name, resource): offered.get(resource, 0) for resource in (GPUS, EXTENDED)})
        free.update({(node, ANY_DEVICE): number for node, number in self.usable_devices.items()})
        for pod in self.pods.values():
            if pod.seated and pod.node in self.nodes:
                take_devices(free, pod.node, self.requested_devices(pod.class_id))
        return free

    def requested_devices(self, kind: str) -> tuple[str, int]:
        """The resource that a pod of a kind requests for devices, and the number; 0: none."""
        requests = dict(self.class_of(split_kind(kind)[0]).requests)
        return next(((name, requests[name]) for name in (GPUS, EXTENDED) if name in requests), (GPUS, 0))

    def may_use(self, kind: str, node: str) -> bool:
        """The devices of a claim that a pod of a kind shares can be used on the node."""
        selectors = self.class_of(split_kind(kind)[0]).volumes
        facts = self.nodes.get(node)
        return facts is None or all(any(term_matches(term, facts) for term in selector) for selector in selectors)

    def cpu(self, pod: PodFacts) -> int:
        return self.class_cpu(pod.class_id)

    def class_cpu(self, kind: str) -> int:
        return dict(self.class_of(split_kind(kind)[0]).requests)["cpu"]

    def drop_class(self, class_id: str) -> None:
        """No pod has the class any more; requests under way may name it."""
        if (dropped := self.classes.pop(class_id, None)) is not None:
            self.former_classes[class_id] = dropped

    def class_of(self, class_id: str) -> PodClass:
        """A class, which may have been removed since a request was made."""
        return self.classes.get(class_id) or self.former_classes[class_id]

    @property
    def ruled(self) -> bool:
        """Some class has inter-pod rules."""
        return bool(self.selectors)

    def kinds_on_nodes(self) -> dict[str, Counter[str]]:
        """Pods by node and kind; empty if no class has inter-pod rules."""
        kinds: dict[str, Counter[str]] = {}
        if self.ruled:
            for pod in self.pods.values():
                if pod.seated:
                    kinds.setdefault(pod.node, Counter())[kind_id(pod.class_id, pod.label_set)] += 1
        return kinds

    def room_beside(self, kind: str, there: Counter[str], count: int, *, first: bool) -> int:
        """How many of `count` pods of a kind the rules between pods let onto a node with these pods; `first`: no pod of
        the cluster has labels that the kind's affinity selects.
        """
        class_id, labels = split_kind(kind)
        own = self.class_of(class_id)
        kinds = [split_kind(other) for other, number in there.items() if number > 0]
        apart = [term.selector for term in own.required_pod_anti_affinity]
        for other, others_labels in kinds:
            theirs = [term.selector for term in self.class_of(other).required_pod_anti_affinity]
            if any(selects(name, others_labels) for name in apart) or any(selects(name, labels) for name in theirs):
                return 0
        for term in (*own.required_pod_affinity, *own.shared_claims):
            if not any(selects(term.selector, labels_) for _, labels_ in kinds):
                return count if first and selects(term.selector, labels) else 0
        return min(count, 1) if any(selects(name, labels) for name in apart) else count

    def whole(self) -> Batch:
        whole = Batch(
            pod_classes=tuple(self.classes.values()),
            nodes=tuple(self.nodes.values()),
            pods=tuple(self.pods.values()),
            gangs=tuple(self.gangs.values()),
            budgets=tuple(self.budgets.values()),
            trees=tuple(self.trees.values()),
            selectors=tuple(self.selectors.values()),
            label_sets=tuple(self.label_sets.values()),
            static_volumes=tuple(self.static_volumes.values()),
            static_claims=tuple(self.static_claims.values()),
            device_objects=tuple(self.device_objects.values()),
            changed={"pods": self.revision},
            through={"pods": self.revision},
        )
        return with_labels(whole, {})

    def rack_of(self, node_name: str) -> str:
        """The domain of the node in the default tree; an unknown node is a rack of its own."""
        for tree in self.trees.values():
            if tree.default:
                return next((tree.domains[at].name for name, at in tree.leaves if name == node_name), node_name)
        return node_name


def take_devices(free: Counter[tuple[str, str]], node: str, requested: tuple[str, int], times: int = 1) -> None:
    """So many pods on the node request these devices now; fewer do, if `times` is negative."""
    resource, number = requested
    if number:
        free[node, resource] -= number * times
        if (node, ANY_DEVICE) in free:
            free[node, ANY_DEVICE] -= number * times
