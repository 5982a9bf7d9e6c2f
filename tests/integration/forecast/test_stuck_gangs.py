"""Doing what is said of a stuck gang lets it start: a table of gangs that are stuck in different ways.

Each gang "a" is read from manifests, tried by the coordinator's machine with a real placement, and explained. Then its
cluster is changed as the explanation says, and the gang has to start.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from builders.core.objects import racks
from builders.forecast.stuck_gangs import (
    Manifest,
    StuckGang,
    budget,
    copied_cluster,
    node,
    running,
    with_priority,
)
from builders.gangs.manifests import Workload, gang
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.placement_process import own_placement
from muster.forecast.player import Solver
from muster.gangs.facts import TopologyTree

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "kubernetes.io/hostname"


class Case(NamedTuple):
    """Manifests of a cluster with a stuck gang, what is said, and the manifests after that was done."""

    before: list[Manifest]
    said: str
    after: list[Manifest]
    trees: tuple[TopologyTree, ...] = ()
    trees_after: tuple[TopologyTree, ...] = ()
    """Empty: the same ones."""


def manifests(built: Workload) -> list[Manifest]:
    """The pods and the definition of a gang."""
    definition = built.definition()
    return [*([definition] if definition is not None else []), *built.pods()]


def spec(pods: list[Manifest], **fields: Any) -> list[Manifest]:
    """The pods with other fields in their spec."""
    return [{**pod, "spec": {**pod["spec"], **fields}} for pod in pods]


def metadata(pods: list[Manifest], **fields: Any) -> list[Manifest]:
    """The pods with other metadata."""
    return [{**pod, "metadata": {**pod["metadata"], **fields}} for pod in pods]


def anti_affinity(required: bool, **labels: str) -> Manifest:
    """Of pods that stay away from the nodes of pods with these labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOST}
    if required:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    weighted = {"weight": 1, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def affinity(**labels: str) -> Manifest:
    """Of pods that are placed on nodes with pods with these labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOST}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(when: str) -> list[Manifest]:
    selector = {"matchLabels": {"app": "a"}}
    return [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": when, "labelSelector": selector}]


def ports() -> list[Manifest]:
    return [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}]


def deleting(pods: list[Manifest]) -> list[Manifest]:
    return metadata(pods, deletionTimestamp="2023-11-14T22:13:20Z")


def created_again(pods: list[Manifest]) -> list[Manifest]:
    """Other pods with the same names."""
    return [pod for each in pods for pod in metadata([each], uid=f"again/{each['metadata']['name']}")]


def ended(pods: list[Manifest]) -> list[Manifest]:
    return [{**pod, "status": {"phase": "Failed"}} for pod in pods]


def claim(name: str, volume: str = "") -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume},
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, claimed_by: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": claimed_by},
        },
        "status": {"phase": "Bound"},
    }


A = gang("a").of(3).asking(cpu=1)
PODS = A.pods()
LABELLED = gang("a").of(3).asking(cpu=1).labelled(app="a").pods()
SPREAD = gang("a").of(5).asking(cpu=1).labelled(app="a").pods()
N8 = node("n1", 8)
N2 = node("n1", 2)
LOW = list(running(with_priority(gang("low").of(2).asking(cpu=1).labelled(app="low").pods(), 0), "n1"))
HIGH = with_priority(PODS, 10)
LONELY = list(running(spec(gang("l").of(1).asking(cpu=1).pods(), affinity=anti_affinity(True, app="a")), "n1"))
CLAIMED = spec(PODS, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
BOTH = "default/a", "default/b"
GROUP = '["default/a", "default/b"]'
TAINT = {"team": "x"}
CASES: dict[str, Case] = {
    # pods that do not count
    "gates": Case(
        [N8, *gang("a").of(3).asking(cpu=1).gated("wait").pods()], "remove the scheduling gates of 3 pods", [N8, *PODS]
    ),
    "one-gated": Case(
        [N8, *PODS[:2], *gang("a").of(3).asking(cpu=1).gated("wait").pods(2)],
        "remove the scheduling gates of 1 pod",
        [N8, *PODS],
    ),
    "pods-missing": Case([N8, *PODS[:1]], "2 more pods, or a minimum of at most 1", [N8, *PODS]),
    "minimum-too-large": Case([N8, *PODS[:2]], "or a minimum of at most 2", [N8, *A.needing(2).pods(0, 1)]),
    "gated-and-missing": Case([N8, *gang("a").of(3).asking(cpu=1).gated("wait").pods(1)], "2 more pods", [N8, *PODS]),
    "no-pod": Case(
        [N8, *manifests(A.declared_by("coscheduling"))[:1]],
        "3 more pods",
        [N8, *manifests(A.declared_by("coscheduling"))],
    ),
    "another-scheduler": Case(
        [N8, *PODS[:1], *spec(PODS[1:], schedulerName="other")],
        "2 more pods with a schedulerName of Muster",
        [N8, *PODS],
    ),
    "member-being-deleted": Case(
        [N8, *PODS[:2], *deleting(PODS[2:])], "1 pod created again when those being deleted are gone", [N8, *PODS]
    ),
    "member-ended": Case(
        [N8, *PODS[:2], *ended(PODS[2:])],
        "1 more pod",
        [N8, *PODS[:2], *ended(PODS[2:]), *metadata(PODS[2:], name="a-9")],
    ),
    "claim-missing": Case(
        [N8, *CLAIMED], "resolve the problem of pod a-0: ", [N8, *CLAIMED, claim("data", "v"), volume("v", "data")]
    ),
    "claim-unbound": Case(
        [N8, *CLAIMED, claim("data")],
        "resolve the problem of pod a-0: ",
        [N8, *CLAIMED, claim("data", "v"), volume("v", "data")],
    ),
    # declarations
    "no-definition": Case(
        [N8, *A.declared_by("coscheduling").pods()],
        "does not exist yet: create it",
        [N8, *manifests(A.declared_by("coscheduling"))],
    ),
    "minimum-no-number": Case([N8, *A.needing("five").pods()], "five", [N8, *PODS]),
    "partner-missing": Case(
        [N8, *A.with_group(*BOTH).pods()],
        f"gang default/b of its gang group does not exist; it must declare the group {GROUP}",
        [
            N8,
            *A.with_group(*BOTH).pods(),
            *gang("b").of(1).asking(cpu=1).with_group(*BOTH).pods(),
        ],
    ),
    "partner-declares-another-group": Case(
        [N8, *A.with_group(*BOTH).pods(), *gang("b").of(1).asking(cpu=1).pods()],
        f"it must declare {GROUP}",
        [
            N8,
            *A.with_group(*BOTH).pods(),
            *gang("b").of(1).asking(cpu=1).with_group(*BOTH).pods(),
        ],
    ),
    "unknown-level": Case(
        [N8, *A.with_topology("rak: hard pack").pods()],
        "does not have: its levels are rack, node",
        [N8, *A.with_topology("rack: hard pack").pods()],
        (racks(r0="n1"),),
    ),
    # capacity and filters
    "one-node-more": Case([N2, *PODS], 'it would fit with 1 more node like "n1"', [N2, node("n2", 2), *PODS]),
    "three-nodes-more": Case(
        [N2, *(eight := gang("a").of(8).asking(cpu=1).pods())],
        'it would fit with 3 more nodes like "n1"',
        [N2, *(node(f"m{number}", 2) for number in range(3)), *eight],
    ),
    "cpu-missing": Case([N2, *PODS], "at least 1 more cpu on nodes that it may use", [node("n1", 3), *PODS]),
    "pod-too-large": Case(
        [N8, *gang("a").of(2).asking(cpu=9).pods()],
        "no usable node is large enough",
        [node("n1", 18), *gang("a").of(2).asking(cpu=9).pods()],
    ),
    "no-gpus": Case(
        [N8, *(gpus := gang("a").of(2).asking_each({"cpu": "1", "nvidia.com/gpu": "1"}).pods())],
        "at least 2 more nvidia.com/gpu",
        [node("n1", 8, allocatable={"nvidia.com/gpu": "2"}), *gpus],
    ),
    "pod-slots": Case(
        [node("n1", 8, allocatable={"pods": "2"}), *PODS],
        "at least 1 more pods",
        [node("n1", 8, allocatable={"pods": "3"}), *PODS],
    ),
    "cordoned": Case(
        [N2, node("n2", 4, unschedulable=True), *PODS],
        'it would fit if its pods could use the node lost to "node(s) were unschedulable"',
        [N2, node("n2", 4), *PODS],
    ),
    "tainted": Case(
        [N2, node("n2", 4, taints=TAINT), *PODS],
        'it would fit if its pods could use the node lost to "node(s) had untolerated taint {team: x}"',
        [N2, node("n2", 4, taints=TAINT), *spec(PODS, tolerations=[{"key": "team", "operator": "Exists"}])],
    ),
    "cordoned-and-tainted": Case(
        [N2, node("n2", 4, taints=TAINT, unschedulable=True), *PODS],
        'the node lost to "node(s) were unschedulable" and "node(s) had untolerated taint {team: x}"',
        [N2, node("n2", 4), *PODS],
    ),
    "one-cordoned-one-tainted": Case(
        [
            node("n1", 3, unschedulable=True),
            node("n2", 2, taints=TAINT),
            *(five := gang("a").of(5).asking(cpu=1).pods()),
        ],
        'the node lost to "node(s) were unschedulable", and the node lost to "node(s) had untolerated taint',
        [node("n1", 3), node("n2", 2), *five],
    ),
    "not-ready": Case(
        [N2, node("n2", 4, ready=False), *PODS], 'the node lost to "node(s) were not ready"', [N2, node("n2", 4), *PODS]
    ),
    "node-selector": Case(
        [N8, *A.on_nodes(disk="ssd").pods()],
        "node(s) didn't match Pod's node affinity/selector",
        [node("n1", 8, labels={"disk": "ssd"}), *A.on_nodes(disk="ssd").pods()],
    ),
    "roles": Case(
        [node("n1", 4), *(roles := gang("a").of(6).asking_each({"cpu": "1"}, {"cpu": "3"}).pods())],
        "short of ",
        [node("n1", 4), *(node(f"m{number}", 4) for number in range(3)), *roles],
    ),
    # rules between pods
    "own-anti-affinity": Case(
        [N8, *spec(LABELLED, affinity=anti_affinity(True, app="a"))],
        'it would fit with 2 more nodes like "n1", empty',
        [N8, node("n2", 8), node("n3", 8), *spec(LABELLED, affinity=anti_affinity(True, app="a"))],
    ),
    "anti-affinity-of-others": Case(
        [N8, *LONELY, *LABELLED],
        f"it would fit if the required pod anti-affinity of other pods (by {HOST}, on n1) did not keep it away",
        [N8, *LABELLED],
    ),
    "affinity": Case(
        [N8, *spec(PODS, affinity=affinity(app="db"))],
        "it would fit if its pod affinity were preferred, not required",
        [N8, *PODS],
    ),
    "spread": Case(
        [N8, node("n2", 1), *spec(SPREAD, topologySpreadConstraints=spread("DoNotSchedule"))],
        "it would fit if its topology spread constraints were ScheduleAnyway",
        [N8, node("n2", 1), *spec(SPREAD, topologySpreadConstraints=spread("ScheduleAnyway"))],
    ),
    "host-ports": Case([N8, *spec(PODS, containers=ports())], "it would fit", [N8, *PODS]),
    # topology
    "hard-constraint": Case(
        [node("n1", 2), node("n2", 2), *A.with_topology("rack: hard pack").pods()],
        'it would fit if the constraint "rack: hard pack" were soft',
        [node("n1", 2), node("n2", 2), *A.with_topology("rack: pack").pods()],
        (racks(r0="n1", r1="n2"),),
    ),
    "hard-constraint-and-too-few-nodes": Case(
        [N2, *A.with_topology("rack: hard pack").pods()],
        'it would fit with 1 more node like "n1", empty, in r0',
        [N2, node("n2", 2), *A.with_topology("rack: hard pack").pods()],
        (racks(r0="n1"),),
        (racks(r0="n1 n2"),),
    ),
    "unknown-tree": Case(
        [N8, *A.with_topology("rack: hard pack", tree="no").pods()],
        '"no"',
        [N8, *A.with_topology("rack: hard pack", tree="racks").pods()],
        (racks(r0="n1"),),
    ),
    "minimum-resources": Case(
        [N8, *manifests(A.declared_by("coscheduling").declaring(minResources={"cpu": "12"}))],
        "cpu",
        [node("n1", 12), *manifests(A.declared_by("coscheduling").declaring(minResources={"cpu": "12"}))],
    ),
    "timed-out": Case(
        [N2, *A.non_strict(15).pods()],
        "at its last attempt 2 of 3 members fit",
        [node("n1", 3), *created_again(A.non_strict(15).pods())],
    ),
    "partner-is-incomplete": Case(
        [N8, *A.with_group(*BOTH).pods(), *gang("b").of(2).asking(cpu=1).with_group(*BOTH).pods(0)],
        "gang default/b: 1 of 2 members exist",
        [N8, *A.with_group(*BOTH).pods(), *gang("b").of(2).asking(cpu=1).with_group(*BOTH).pods()],
    ),
    # preemption
    "budget": Case(
        [node("n1", 4), *LOW, budget("low", 0, app="low"), *HIGH],
        "disruption budget default/low does not allow to evict gang default/low",
        [node("n1", 4), *LOW, budget("low", 2, app="low"), *HIGH],
    ),
    "policy-never": Case(
        [node("n1", 4), *LOW, *with_priority(PODS, 10, preemptionPolicy="Never")],
        "not even gang default/low of lower priority: its policy is Never",
        [node("n1", 4), *LOW, *created_again(HIGH)],
    ),
    "equal-priority": Case(
        [node("n1", 4), *with_priority(LOW, 10), *HIGH],
        "no gang of lower priority runs; gang default/low has 10, too",
        [node("n1", 4), *with_priority(LOW, 10), *with_priority(PODS, 11)],
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def placement() -> AsyncIterator[tuple[ClusterStream, Solver]]:
    """A placement, and the stream of the cluster that it follows."""
    stream = copied_cluster()
    async with own_placement(stream) as solver:
        yield stream, solver


@pytest.mark.parametrize("case", CASES)
async def test_a_stuck_gang_starts_when_what_is_said_was_done(
    case: str, placement: tuple[ClusterStream, Solver]
) -> None:
    before, said, after, trees, trees_after = CASES[case]
    stuck = StuckGang(*placement, before, *trees)
    why, helps, condition = await stuck.said()
    assert any(said in text for text in (why, *helps)), (why, helps)
    assert condition in ("", why) or condition in why, "conditions say the same"
    assert not any("minimum of at most 0" in text or "DEADLINE" in text for text in (why, *helps))
    assert await stuck.starts_with(after, *trees_after), (why, helps, (await stuck.said())[0])
