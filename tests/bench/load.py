"""Nodes and gangs that the bench creates and deletes, under names of its own."""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.device_claims import EXTENDED_RESOURCE
from builders.gangs.manifests import Workload, gang, plain
from builders.kube.nodes import Machine, make_nodes
from builders.wait import eventually
from muster.kube.session import ApiStatusError, KubeSession, Response
from muster.localcluster.manifests import Manifest, apply_manifests

LABEL = "muster.dev/bench"
_JOB = "muster.dev/bench-job"
CROWD = "crowd-"
IN_ONE_NODE = 8
"""Pods per node, for pods that request an eighth of a node."""
CPUS = 64
ROOM = {"cpu": str(CPUS), "memory": "256Gi", "pods": "110"}
"""Allocatable of every node."""
_CALL_SECONDS = 120.0
_CLEAR_SECONDS = 600.0
_AT_ONCE = 32


async def add_nodes(session: KubeSession, count: int, *, gpus: int = 0) -> None:
    """Create nodes of 64 CPUs and 256 GiB, with so many GPUs, in racks of 20."""
    room = {**ROOM, EXTENDED_RESOURCE: str(gpus)} if gpus else ROOM
    machines = [
        Machine(f"bench-{number:04}", room, {LABEL: "true", "rack": f"rack-{number // 20:03}"})
        for number in range(count)
    ]
    for start in range(0, count, _AT_ONCE):
        await make_nodes(session, *machines[start : start + _AT_ONCE])


async def add_namespace(session: KubeSession) -> str:
    """Create a new namespace for all pods: deleting an old one may take long. Returns its name."""
    name = f"muster-bench-{secrets.token_hex(3)}"
    await apply_manifests(session, [Manifest({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})])
    return name


def gangs_of(size: int, pods: int, namespace: str, *, gpus: int = 0) -> list[Workload]:
    """Pods in gangs of one size, on the bench's nodes only."""
    more = {EXTENDED_RESOURCE: str(gpus)} if gpus else {}
    return [
        gang(f"g{size}-{number:04}")
        .of(size)
        .asking(cpu=1, memory="1Gi", **more)
        .in_namespace(namespace)
        .on_nodes(**{LABEL: "true"})
        for number in range(pods // size)
    ]


def plain_pods(count: int, namespace: str, scheduler: str, *, gpus: int = 0) -> list[Workload]:
    """Pods like those of `gangs_of` without a gang, for another scheduler."""
    more = {EXTENDED_RESOURCE: str(gpus)} if gpus else {}
    pods = plain("p").of(count).asking(cpu=1, memory="1Gi", **more).in_namespace(namespace).on_nodes(**{LABEL: "true"})
    return [pods.with_spec(schedulerName=scheduler)]


def wide_gangs(count: int, namespace: str) -> list[Workload]:
    """Gangs that need two whole nodes, at the head of the queue."""
    return [_of_eighths(f"wide-{number:04}", namespace).of(16) for number in range(count)]


def narrow_gang(name: str, namespace: str) -> Workload:
    """A gang that needs one whole node."""
    return _of_eighths(name, namespace).of(8)


def crowd(count: int, size: int, namespace: str) -> list[Workload]:
    """Gangs of which a node takes eight pods; those of equal size are queued in order of creation."""
    return [_of_eighths(f"{CROWD}{number:06}", namespace).of(size) for number in range(count)]


def too_large_gang(name: str, size: int, nodes: int, namespace: str) -> Workload:
    """A gang of which at least one pod does not fit into so many empty nodes."""
    in_one_node = (size - 1) // nodes
    cpu = CPUS // in_one_node if in_one_node else CPUS + 1
    return gang(name).of(size).asking(cpu=cpu).in_namespace(namespace).on_nodes(**{LABEL: "true"})


def _of_eighths(name: str, namespace: str) -> Workload:
    return gang(name).asking(cpu=CPUS // IN_ONE_NODE).in_namespace(namespace).on_nodes(**{LABEL: "true"})


def diverse_gangs(wave: int, pods: int, classes: int, namespace: str) -> list[Workload]:
    """Gangs of equal size, one per pod class: each selects pods of its own label and keeps them on different nodes."""
    return [
        gang(f"w{wave}-{number:05}")
        .of(pods // classes)
        .asking(cpu=1, memory="1Gi")
        .in_namespace(namespace)
        .on_nodes(**{LABEL: "true"})
        .with_spec(affinity=_apart(f"w{wave}-{number:05}"))
        .labelled(**{_JOB: f"w{wave}-{number:05}"})
        for number in range(classes)
    ]


def _apart(job: str) -> dict[str, Any]:
    """Required anti-affinity between the pods of a job."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {_JOB: job}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def delete_pods(session: KubeSession, namespace: str, selector: dict[str, str] | None = None) -> None:
    """Delete the pods of the namespace at once, all, or those that the query selects."""
    query = {"gracePeriodSeconds": "0", **(selector or {})}
    await _call(session, "DELETE", f"/api/v1/namespaces/{namespace}/pods", query)


async def fill(session: KubeSession, namespace: str, nodes: int) -> None:
    """One pod on every node, bound by another scheduler, that requests all its CPU."""
    await apply_manifests(session, [Manifest(_filler(namespace, number)) for number in range(nodes)])


async def remove_filler(session: KubeSession, namespace: str, number: int) -> None:
    """Free one node."""
    path = f"/api/v1/namespaces/{namespace}/pods/filler-{number:04}"
    await _call(session, "DELETE", path, {"gracePeriodSeconds": "0"})


async def touch_filler(session: KubeSession, namespace: str, number: int, message: str) -> None:
    """Change one of them in a way that is irrelevant to scheduling."""
    path = f"/api/v1/namespaces/{namespace}/pods/filler-{number:04}/status"
    patch = msgspec.json.encode({"status": {"phase": "Running", "message": message}})
    kind = "application/merge-patch+json"
    response = await session.request("PATCH", path, body=patch, content_type=kind, timeout_seconds=_CALL_SECONDS)
    if response.status >= 300:
        raise ApiStatusError.from_response(response)


def _filler(namespace: str, number: int) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": str(CPUS)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"filler-{number:04}", "namespace": namespace},
        "spec": {"nodeName": f"bench-{number:04}", "containers": [container]},
    }


def pod_names(gangs: Sequence[Workload]) -> set[str]:
    """Names of all their pods."""
    return {gang.pod_name(number) for gang in gangs for number in range(gang.size)}


async def create(session: KubeSession, *gangs: Workload) -> None:
    """Create their pods concurrently."""
    await apply_manifests(session, [Manifest(pod) for gang in gangs for pod in gang.pods()])


async def clear(session: KubeSession, namespace: str) -> None:
    """Delete the bench's pods, namespace and nodes."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await _call(session, "DELETE", pods, {"gracePeriodSeconds": "0"})

    async def deleted() -> bool:
        return not await _count(session, pods)

    await eventually(deleted, f"all pods of {namespace} are deleted", seconds=_CLEAR_SECONDS, every_seconds=0.2)
    await _call(session, "DELETE", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", {})
    await _call(session, "DELETE", "/api/v1/nodes", {"labelSelector": LABEL})
    await _call(session, "DELETE", f"/api/v1/namespaces/{namespace}", {})


async def _count(session: KubeSession, path: str) -> int:
    response = await _call(session, "GET", path, {"limit": "1"})
    return len(msgspec.json.decode(response.body)["items"])


async def _call(session: KubeSession, method: Any, path: str, query: dict[str, str]) -> Response:
    response = await session.request(method, path, query=query, timeout_seconds=_CALL_SECONDS)
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
    return response
