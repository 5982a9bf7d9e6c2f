"""Builders of inter-pod rules and racks, and readers of filtered nodes in answers."""

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
    """A class matched by the selectors in `labelled`."""
    return replace(pod_class(name, cpu), label_set="+".join(sorted(labelled)), **rules)


def anti_affinity(key: str, selector: str = "job") -> dict[str, Any]:
    return {"required_pod_anti_affinity": (PodTerm(selector, key),)}


def affinity(key: str, selector: str = "job") -> dict[str, Any]:
    return {"required_pod_affinity": (PodTerm(selector, key),)}


def spread(key: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    return {"spread": (SpreadConstraint(skew, key, "job", **more),)}


def preferred_affinity(weight: int, key: str, selector: str = "job") -> dict[str, Any]:
    return {"preferred_pod_affinity": (PreferredPodTerm(weight, PodTerm(selector, key)),)}


def host_port(number: int, protocol: str = "TCP", ip: str = EVERY_IP) -> dict[str, Any]:
    return {"host_ports": (HostPort(protocol, ip, number),)}


def rack(name: str, cpus: Mapping[str, float], **labels: str) -> list[NodeFacts]:
    return [node(each, cpu, labels={RACK: name, HOST: each, **labels}) for each, cpu in cpus.items()]


def packed(asked: SolveGroup, *constraints: LevelConstraint) -> SolveGroup:
    """The group with constraints on its first gang: a hard rack pack if none are given."""
    [first, *others] = asked.gangs
    return replace(asked, gangs=(replace(first, constraints=constraints or (HARD_PACK,)), *others))


def with_racks(built: Cluster) -> Cluster:
    built.apply(Batch(trees=(RACKS,)))
    return built


def filtered(answer: Answer) -> dict[str, int]:
    assert isinstance(answer, NotPlaced | PartiallyPlaced), answer
    return dict(answer.explanation.filtered_nodes)


def by_label(answer: Answer, nodes: Iterable[NodeFacts], key: str) -> dict[str, int]:
    label = {each.name: each.labels[key] for each in nodes}
    sums: dict[str, int] = {}
    for name, count in seats(answer).items():
        sums[label[name]] = sums.get(label[name], 0) + count
    return sums
