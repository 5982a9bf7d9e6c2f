"""Clusters and gangs for placement tests: cpu in cores, everything else in units."""

from collections.abc import Iterable, Mapping, Sequence

from builders.placement.labels import LabelledCluster
from muster.gangs.facts import (
    Amounts,
    Batch,
    NodeFacts,
    NodeSelectorTerm,
    PodClass,
    PodFacts,
    PreferredNodeTerm,
    Taint,
    Toleration,
)
from muster.gangs.solve import NominatedCapacity, PodsOnNode, PotentialVictim, Role, SolveGang, SolveGroup
from muster.placement.solve.instance import Answer, NotPlaced, PartiallyPlaced, Placed
from muster.placement.solve.solve import solve
from muster.placement.state.capacity import withhold
from muster.placement.state.cluster import Cluster

GPU = "nvidia.com/gpu"


def amounts(cpu: float = 0, memory: int = 0, gpu: int = 0, pods: int = 0) -> Amounts:
    named = {"cpu": round(cpu * 1000), "memory": memory, GPU: gpu, "pods": pods}
    return tuple(sorted((name, amount) for name, amount in named.items() if amount))


def node(
    name: str,
    cpu: float = 8,
    *,
    memory: int = 64,
    gpu: int = 0,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    ready: bool = True,
) -> NodeFacts:
    return NodeFacts(
        name,
        allocatable=amounts(cpu, memory, gpu, pods),
        labels=dict(labels or {}),
        taints=tuple(taints),
        unschedulable=unschedulable,
        ready=ready,
    )


def pod_class(
    name: str,
    cpu: float = 1,
    *,
    memory: int = 0,
    gpu: int = 0,
    selector: Mapping[str, str] | None = None,
    required: Iterable[NodeSelectorTerm] | None = None,
    preferred: Iterable[PreferredNodeTerm] = (),
    tolerations: Iterable[Toleration] = (),
    volumes: Iterable[Iterable[NodeSelectorTerm]] = (),
) -> PodClass:
    return PodClass(
        name,
        amounts(cpu, memory, gpu, pods=1),
        tuple(sorted((selector or {}).items())),
        None if required is None else tuple(required),
        tuple(preferred),
        tuple(tolerations),
        volumes=tuple(map(tuple, volumes)),
    )


def gang(name: str, *roles: tuple[str, int], minimum: int | None = None) -> SolveGang:
    """Roles as (class id, wanted); the minimum defaults to all members."""
    wanted = sum(count for _, count in roles)
    return SolveGang(name, wanted if minimum is None else minimum, tuple(Role(*role) for role in roles))


def group(*gangs: SolveGang, partial: bool = False) -> SolveGroup:
    return SolveGroup(gangs[0].id, gangs, partial)


def alone(name: str, *roles: tuple[str, int], minimum: int | None = None, partial: bool = False) -> SolveGroup:
    """A group of one gang."""
    return group(gang(name, *roles, minimum=minimum), partial=partial)


def cluster(
    nodes: Iterable[NodeFacts], classes: Iterable[PodClass], bound: Sequence[tuple[str, str, str]] = ()
) -> Cluster:
    """`bound`: (uid, class id, node) of bound pods."""
    built = LabelledCluster()
    pods = tuple(PodFacts(uid, "default", uid, class_id, node=on) for uid, class_id, on in bound)
    built.apply(Batch(pod_classes=tuple(classes), nodes=tuple(nodes), pods=pods))
    return built


def potential_victim(
    name: str, *pods: tuple[str, str, int], level: int = 0, spare: int = 0, spare_entries: int = 0
) -> PotentialVictim:
    """Pods as (node, class id, count)."""
    return PotentialVictim(name, level, spare, tuple(PodsOnNode(*each) for each in pods), spare_entries)


def answers(
    on: Cluster,
    *groups: SolveGroup,
    reserved: Iterable[tuple[str, str, tuple[str, ...]]] = (),
    nominated: Iterable[NominatedCapacity] = (),
    removing: Sequence[PotentialVictim] = (),
) -> list[Answer]:
    """`reserved`: (node, class id, uids)."""
    on.state.refresh()
    try:
        withheld = withhold(on.state, nominated)
        on.reserve(reserved)
        return list(solve(on.state, groups, withheld, removing))
    finally:
        on.state.rollback(0)


def seats(answer: Answer) -> dict[str, int]:
    """Members per node, over all roles."""
    assert isinstance(answer, Placed | PartiallyPlaced), answer
    by_node: dict[str, int] = {}
    for assignment in answer.assignments:
        by_node[assignment.node] = by_node.get(assignment.node, 0) + assignment.count
    return by_node


def seats_of(answer: Answer, role: int) -> dict[str, int]:
    assert isinstance(answer, Placed | PartiallyPlaced), answer
    return {assignment.node: assignment.count for assignment in answer.assignments if assignment.role == role}


def removals(answer: Answer) -> dict[str, tuple[bool, dict[str, int]]]:
    """Per victim gang, whether it is evicted whole, and how many of its pods per node."""
    assert isinstance(answer, Placed), answer
    gone: dict[str, tuple[bool, dict[str, int]]] = {}
    for gang_gone in answer.victims:
        by_node: dict[str, int] = {}
        for pods in gang_gone.pods:
            by_node[pods.node] = by_node.get(pods.node, 0) + pods.count
        gone[gang_gone.id] = gang_gone.whole, by_node
    return gone


def refusal(answer: Answer) -> NotPlaced:
    assert isinstance(answer, NotPlaced), answer
    return answer
