"""Pods that mind one another, nodes in racks, and what is told of nodes that are lost to that; in few words."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from builders.placement.clusters import node, pod_class, seats
from muster.gangs.facts import (
    Batch,
    HostPort,
    LevelConstraint,
    LevelPolicy,
    NodeFacts,
    PodClass,
    PodTerm,
    PreferredPodTerm,
    SpreadConstraint,
    TopologyTree,
    TreeLevel,
)
from muster.gangs.solve import SolveGroup
from muster.placement.solve.instance import Answer, NotPlaced, PartiallyPlaced
from muster.placement.state.cluster import Cluster

RACK, HOST, ZONE = "rack", "kubernetes.io/hostname", "zone"
EVERY_IP = "0.0.0.0"
RACKS = TopologyTree("racks", (TreeLevel("rack", RACK), TreeLevel("node")), default=True)
HARD_PACK = LevelConstraint("rack", LevelPolicy.PACK, hard=True)


def member(name: str = "x", cpu: float = 1, *, labelled: Iterable[str] = ("job",), **rules: Any) -> PodClass:
    """A class that the selectors in `labelled` select."""
    return replace(pod_class(name, cpu), selected_by=tuple(labelled), **rules)


def away(key: str, selector: str = "job") -> dict[str, Any]:
    return {"required_pod_anti_affinity": (PodTerm(selector, key),)}


def near(key: str, selector: str = "job") -> dict[str, Any]:
    return {"required_pod_affinity": (PodTerm(selector, key),)}


def spread(key: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    return {"spread": (SpreadConstraint(skew, key, "job", **more),)}


def wish(weight: int, key: str, selector: str = "job") -> dict[str, Any]:
    return {"preferred_pod_affinity": (PreferredPodTerm(weight, PodTerm(selector, key)),)}


def port(number: int, protocol: str = "TCP", ip: str = EVERY_IP) -> dict[str, Any]:
    return {"host_ports": (HostPort(protocol, ip, number),)}


def rack(name: str, cpus: Mapping[str, float], **labels: str) -> list[NodeFacts]:
    return [node(each, cpu, labels={RACK: name, HOST: each, **labels}) for each, cpu in cpus.items()]


def packed(asked: SolveGroup, *constraints: LevelConstraint) -> SolveGroup:
    """The first gang under constraints: a hard pack of racks if none are given."""
    [first, *others] = asked.gangs
    return replace(asked, gangs=(replace(first, constraints=constraints or (HARD_PACK,)), *others))


def with_racks(built: Cluster) -> Cluster:
    built.apply(Batch(trees=(RACKS,)))
    return built


def lost(answer: Answer) -> dict[str, int]:
    assert isinstance(answer, NotPlaced | PartiallyPlaced), answer
    return dict(answer.explanation.filtered_nodes)


def by_label(answer: Answer, nodes: Iterable[NodeFacts], key: str) -> dict[str, int]:
    label = {each.name: each.labels[key] for each in nodes}
    sums: dict[str, int] = {}
    for name, count in seats(answer).items():
        sums[label[name]] = sums.get(label[name], 0) + count
    return sums
