"""Builders of clusters and solve requests: CPU in cores, everything else in units; class ids are content hashes."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.cluster import Cluster
from muster.conformance.labels import namespace_of
from muster.gangs.facts import (
    Amounts,
    Batch,
    LevelConstraint,
    LevelPolicy,
    NodeFacts,
    PodClass,
    PodFacts,
    PodPhase,
    TopologyTree,
    TreeDomain,
    TreeLevel,
)
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.topology_codec import encode_constraint

GPU: Final = "example.com/gpu"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


def amounts(cpu: float = 0, memory: int = 0, gpu: int = 0, pods: int = 0) -> Amounts:
    """Resource amounts, without zeros."""
    named = {"cpu": round(cpu * 1000), "memory": memory, GPU: gpu, "pods": pods}
    return tuple(sorted((name, amount) for name, amount in named.items() if amount))


def node(
    name: str,
    cpu: float = 8,
    *,
    memory: int = 1000,
    gpu: int = 0,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> NodeFacts:
    """A ready node; its label kubernetes.io/hostname is its name."""
    return NodeFacts(
        name, allocatable=amounts(cpu, memory, gpu, pods), labels={HOSTNAME: name, **(labels or {})}, **more
    )


def nodes(prefix: str, count: int, cpu: float = 8, **more: Any) -> list[NodeFacts]:
    """Equal nodes "prefix-0", "prefix-1", ..."""
    return [node(f"{prefix}-{index}", cpu, **more) for index in range(count)]


def pod_class(cpu: float = 1, *, memory: int = 0, gpu: int = 0, **rules: Any) -> PodClass:
    """A class; `rules` are further fields of PodClass."""
    return named(PodClass("", amounts(cpu, memory, gpu, pods=1), **rules))


def named(content: PodClass) -> PodClass:
    """The class with its id set to the hash of its content."""
    return replace(content, id=sha256(repr(content).encode()).hexdigest()[:16])


def bound(pod_class: PodClass, on: str, count: int = 1, phase: PodPhase = PodPhase.RUNNING) -> list[PodFacts]:
    """Pods of other gangs on a node."""
    uids = (f"{on}/{pod_class.id}/{phase.name}/{index}" for index in range(count))
    namespace = namespace_of(pod_class.label_set)
    return [
        PodFacts(
            uid, namespace, uid.replace("/", "-"), pod_class.id, node=on, phase=phase, label_set=pod_class.label_set
        )
        for uid in uids
    ]


def cluster(
    nodes: Iterable[NodeFacts],
    classes: Iterable[PodClass],
    pods: Iterable[Iterable[PodFacts]] = (),
    trees: Iterable[TopologyTree] = (),
) -> Cluster:
    cluster_ = Cluster()
    listed = tuple(pod for some in pods for pod in some)
    cluster_.apply(Batch(pod_classes=tuple(classes), nodes=tuple(nodes), pods=listed, trees=tuple(trees)))
    return cluster_


# -- trees

Domains = Mapping[str, Any]
"""Domains by name, down to nodes: {"r0": {"a": 4, "b": 4}}, where a number is the node's cpu."""


def tree(levels: str, domains: Domains, *, name: str = "cluster", default: bool = True) -> TopologyTree:
    """A tree; `levels` from the top, without the node level: "zone rack"."""
    names = levels.split()
    listed: list[TreeDomain] = []
    leaves: list[tuple[str, int]] = []

    def add(inside: Domains, level: int, parent: int) -> None:
        for key, value in inside.items():
            if isinstance(value, Mapping):
                listed.append(TreeDomain(key, level, parent))
                add(value, level + 1, len(listed) - 1)
            else:
                leaves.append((key, parent))

    add(domains, 0, -1)
    tree_levels = (*(TreeLevel(each) for each in names), TreeLevel("node"))
    return TopologyTree(name, tree_levels, tuple(listed), tuple(leaves), default)


def nodes_of(domains: Domains) -> list[NodeFacts]:
    """The nodes of domains, with the CPU given there."""
    found = []
    for key, value in domains.items():
        found.extend(nodes_of(value) if isinstance(value, Mapping) else [node(key, value)])
    return found


# -- requests


def pack(level: str, *, hard: bool = False) -> LevelConstraint:
    return LevelConstraint(level, LevelPolicy.PACK, hard)


def spread(level: str, *, hard: bool = False) -> LevelConstraint:
    return LevelConstraint(level, LevelPolicy.SPREAD, hard)


def partition(level: str, count: int, *, hard: bool = False) -> LevelConstraint:
    return LevelConstraint(level, LevelPolicy.PARTITION, hard, count=count)


def sizes(level: str, minimum: int, maximum: int, *, hard: bool = False) -> LevelConstraint:
    """A range constraint."""
    return LevelConstraint(level, LevelPolicy.RANGE, hard, minimum=minimum, maximum=maximum)


def factor(level: str, count: int, *, hard: bool = False) -> LevelConstraint:
    return LevelConstraint(level, LevelPolicy.FACTOR, hard, count=count)


def gang(
    *roles: tuple[PodClass, int],
    id: str = "gang",  # noqa: A002 (the contract's word)
    minimum: int | None = None,
    tree: str = "",
    constraints: Iterable[LevelConstraint] = (),
    placed: Iterable[tuple[str, PodClass, int]] = (),
) -> pb.Gang:
    """Roles as (class, wanted); without a minimum all are needed. `placed`: (node, class, count)."""
    return pb.Gang(
        id=id,
        minimum=sum(wanted for _, wanted in roles) if minimum is None else minimum,
        roles=[
            pb.Role(class_id=pod_class.id, wanted=wanted, label_set=pod_class.label_set) for pod_class, wanted in roles
        ],
        tree=tree,
        constraints=map(encode_constraint, constraints),
        placed=pods_on(placed),
    )


def gang_group(*gangs: pb.Gang, id: str = "", partial: bool = False) -> pb.GangGroup:  # noqa: A002
    """A group of gangs; without an id it is named after its first gang."""
    return pb.GangGroup(id=id or f"group of {gangs[0].id}", gangs=gangs, partial=partial)


def single_gang(*roles: tuple[PodClass, int], id: str = "gang", partial: bool = False, **more: Any) -> pb.GangGroup:  # noqa: A002
    """A group of one gang."""
    return gang_group(gang(*roles, id=id, **more), partial=partial)


def reservation(on: str, pod_class: PodClass, *uids: str) -> pb.Reservation:
    return pb.Reservation(node=on, class_id=pod_class.id, pod_uids=uids, label_set=pod_class.label_set)


def nominated(on: str, cpu: float) -> pb.NominatedCapacity:
    return pb.NominatedCapacity(node=on, amounts=[state_pb.ResourceAmount(name="cpu", amount=round(cpu * 1000))])


def potential_victim(
    id: str,  # noqa: A002
    *pods: tuple[str, PodClass, int],
    level: int = 0,
    spare: int = 0,
) -> pb.PotentialVictim:
    """Pods as (node, class, count)."""
    return pb.PotentialVictim(id=id, level=level, spare=spare, pods=pods_on(pods))


def pods_on(pods: Iterable[tuple[str, PodClass, int]]) -> list[pb.PodsOnNode]:
    return [
        pb.PodsOnNode(node=on, class_id=pod_class.id, count=count, label_set=pod_class.label_set)
        for on, pod_class, count in pods
    ]
