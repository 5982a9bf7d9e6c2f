"""A control plane with hollow nodes, on which one contender schedules, and the binds that are observed."""

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from bench import load
from bench.binds import BindTimes
from builders.gangs.manifests import Workload, gang
from builders.kube.nodes import Machine, make_nodes
from builders.wait import eventually
from compare.contenders import RACK, Contender
from interop.control_plane import running_control_plane
from muster.config.settings import KubeSettings
from muster.kube.session import ApiStatusError, KubeSession
from muster.localcluster.manifests import Manifest, apply_manifests

NODES_PER_RACK: Final = 20
CPUS: Final = 64
MOST_SECONDS: Final = 300.0
"""Time after which a measurement counts what is bound."""
_CONTROLLERS: Final = "*,-node-lifecycle-controller"
"""The nodes have no kubelets, so that they would be marked as not ready."""
_ALLOCATABLE: Final = {"cpu": str(CPUS), "memory": "256Gi", "pods": "110"}
_AT_ONCE: Final = 32
_CALL_SECONDS: Final = 120.0

JSON = dict[str, Any]


class ComparedCluster:
    """One contender on one control plane."""

    def __init__(self, session: KubeSession, contender: Contender) -> None:
        self.session, self.contender = session, contender
        self.namespace = ""

    async def begin(self) -> BindTimes:
        """A new namespace for the next measurement; returns the observer of its binds."""
        self.namespace = f"compare-{secrets.token_hex(3)}"
        metadata = {"name": self.namespace}
        await apply_manifests(self.session, [Manifest({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})])
        binds = BindTimes(self.session, self.namespace)
        await binds.start()
        return binds

    async def end(self, binds: BindTimes) -> None:
        """Delete all pods of the namespace, and its PodGroups; returns when they are gone."""
        await binds.stop()
        await self.delete_pods()
        for path in self._pod_groups():
            await self.session.request("DELETE", path, timeout_seconds=_CALL_SECONDS)

    async def delete_pods(self, **query: str) -> None:
        """Delete the pods of the namespace that a label selects, or all; returns when they are gone."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        await self.call("DELETE", path, query={"gracePeriodSeconds": "0", **query})

        async def gone() -> bool:
            answer = await self.call("GET", path, query={"limit": "1", **query})
            return not msgspec.json.decode(answer)["items"]

        await eventually(gone, "the pods are gone", seconds=_CALL_SECONDS)

    def gang(self, name: str, size: int, cpu: int = 1, *, in_rack: bool = False, priority: str = "") -> Workload:
        """A gang of equal pods."""
        workload = gang(name).of(size).asking(cpu=cpu, memory="1Gi").in_namespace(self.namespace)
        declared = self.contender.gang(workload, in_rack=in_rack)
        if not priority:
            return declared
        return declared.with_spec(priorityClassName=priority).declaring(priorityClassName=priority)

    async def create(self, *gangs: Workload) -> None:
        """Create the PodGroups, then all pods in their order."""
        await self.define(*gangs)
        await self.create_pods(*(pod for each in gangs for pod in each.pods()))

    async def define(self, *gangs: Workload) -> None:
        """Create the PodGroups alone."""
        groups = [Manifest(group) for each in gangs if (group := each.definition()) is not None]
        await apply_manifests(self.session, groups)

    async def create_pods(self, *pods: JSON) -> None:
        await apply_manifests(self.session, map(Manifest, pods))

    async def pods(self) -> list[JSON]:
        """All pods of the namespace."""
        answer = await self.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        return list(msgspec.json.decode(answer)["items"])

    async def messages(self) -> list[str]:
        """Messages of all conditions and events of the namespace."""
        listed = [*await self.pods()]
        for path in self._pod_groups():
            answer = await self.session.request("GET", path, timeout_seconds=_CALL_SECONDS)
            listed += msgspec.json.decode(answer.body)["items"] if answer.status == 200 else []
        found = [
            str(condition.get("message", ""))
            for each in listed
            for key in ("conditions", "schedulingConditions")
            for condition in each.get("status", {}).get(key, ())
        ]
        events = await self.call("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [each for each in (*found, *(e.get("note", "") for e in msgspec.json.decode(events)["items"])) if each]

    async def call(self, method: Any, path: str, *, query: dict[str, str] | None = None) -> bytes:
        """Raises ApiStatusError."""
        response = await self.session.request(method, path, query=query, timeout_seconds=_CALL_SECONDS)
        if response.status >= 300:
            raise ApiStatusError.from_response(response)
        return response.body

    def cpu_seconds(self) -> float:
        """Processor time of the contender's processes so far."""
        times = [psutil.Process(pid).cpu_times() for pid in self.contender.pids().values()]
        return sum(each.user + each.system for each in times)

    def _pod_groups(self) -> list[str]:
        groups = ("scheduling.k8s.io/v1beta1", "scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2alpha2")
        return [f"/apis/{each}/namespaces/{self.namespace}/podgroups" for each in groups]


@asynccontextmanager
async def compared_cluster(kind: type[Contender], nodes: int) -> AsyncIterator[ComparedCluster]:
    """A control plane with so many nodes, and the contender prepared and stopped. Raises NotBuilt."""
    with tempfile.TemporaryDirectory(prefix="muster-compare-") as directory:
        plane_directory = Path(directory) / "control-plane"
        async with running_control_plane(plane_directory, durable=True, controllers=_CONTROLLERS) as plane:
            session = await KubeSession.connect(KubeSettings(kubeconfig=plane.kubeconfig))
            contender = kind(plane, session)
            try:
                racks = await add_nodes(session, nodes)
                await apply_manifests(session, [_priority_class("low", 0), _priority_class("high", 9)])
                await contender.prepare(racks)
                yield ComparedCluster(session, contender)
            finally:
                await contender.close()
                await session.close()


async def add_nodes(session: KubeSession, count: int) -> list[str]:
    """Create nodes in racks; returns the names of the racks."""
    racks = [f"rack-{number // NODES_PER_RACK:03}" for number in range(count)]
    machines = [
        Machine(f"node-{number:05}", _ALLOCATABLE, {RACK: rack, load.LABEL: "true"})
        for number, rack in enumerate(racks)
    ]
    for start in range(0, count, _AT_ONCE):
        await make_nodes(session, *machines[start : start + _AT_ONCE])
    return list(dict.fromkeys(racks))


async def observed(binds: BindTimes, pods: set[str], since: float, seconds: float = MOST_SECONDS) -> tuple[int, float]:
    """Pods that are bound, and the seconds from `since` until the last one was; after MOST_SECONDS those bound so far,
    and that time.
    """
    try:
        await binds.all_of(pods, timeout_seconds=seconds)
    except TimeoutError:
        return len(pods & binds.seen.keys()), time.monotonic() - since
    return len(pods), max(binds.seen[pod] for pod in pods) - since


async def bind_all(session: KubeSession, namespace: str, pods: Sequence[str], nodes: int) -> float:
    """Bind pods by plain requests, 32 at a time; returns the seconds that it took."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def bind(number: int, pod: str) -> None:
        async with turns:
            body = msgspec.json.encode(
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": pod, "namespace": namespace},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": f"node-{number % nodes:05}"},
                }
            )
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"
            answer = await session.request("POST", path, body=body, timeout_seconds=_CALL_SECONDS)
            assert answer.status == 201, answer.body

    began = time.monotonic()
    await asyncio.gather(*(bind(number, pod) for number, pod in enumerate(pods)))
    return time.monotonic() - began


def _priority_class(name: str, value: int) -> Manifest:
    metadata = {"name": name}
    return Manifest(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}
    )
