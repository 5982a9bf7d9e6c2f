"""A binding service in this process, its client, and an API server behind a proxy that injects faults."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from builders.e2e.faults import Faults
from builders.kube.calls import KubeCalls
from builders.wait import eventually
from muster.binding.service import BindingService
from muster.binding.settings import Settings
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.server import ApiServer
from muster.localcluster.ports import free_port
from muster.rpc.call_spans import gang_metadata
from muster.rpc.channel import open_channel

SECONDS = 60.0
"""Deadline of calls that should take milliseconds."""

_R = TypeVar("_R", pb.BindResult, pb.EvictResult)
Object = dict[str, Any]


class Rig:
    """A running binding service with its client, the cluster and the faults."""

    service: BindingService
    port: int
    stub: Any

    def __init__(self, kube: KubeCalls, session: KubeSession, faults: Faults) -> None:
        self.kube, self.faults = kube, faults
        self.leader = 0
        """Epoch of the leader key in etcd. Calls with another are refused; the builders of calls set a later one."""
        self.coordinators: Callable[[], Awaitable[int]] | None = None
        """Reads the epoch instead; None: it is `leader`."""
        self._session = session

    def serve(self, service: BindingService, port: int, stub: Any) -> None:
        """The service has started."""
        self.service, self.port, self.stub = service, port, stub

    async def read_epoch(self) -> int:
        return self.leader if self.coordinators is None else await self.coordinators()

    def _leads(self, epoch: int) -> int:
        self.leader = max(self.leader, epoch)
        return epoch

    # -- the cluster, bypassing the faults

    async def pods(self, *names: str, **spec: Any) -> list[Object]:
        """Create pods."""
        containers = [{"name": "main", "image": "registry.example.com/work:1"}]
        body = {"schedulerName": "muster", "containers": containers, **spec}
        return list(
            await asyncio.gather(
                *(self.kube.create("Pod", {"metadata": {"name": name}, "spec": body}) for name in names)
            )
        )

    async def pod(self, name: str) -> Object:
        """A pod as it is now."""
        return await self.get(f"/api/v1/namespaces/ml/pods/{name}")

    async def running(self, *names: str, **labels: str) -> list[Object]:
        """Create pods that run and are ready."""
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        pods = await self.pods(*names)
        for name in names:
            await self.kube.bind(name, "node-0")
            await self.kube.patch("Pod", name, {"metadata": {"labels": labels}})
            await self.kube.patch("Pod", name, {"status": ready}, part="/status")
        return pods

    async def budget(self, name: str, allowed: int, **spec: Any) -> None:
        """Create a disruption budget for pods with the label app=NAME; wait until it allows `allowed` disruptions."""
        selector = {"matchLabels": {"app": name}}
        body = {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}
        await self.kube.create("PodDisruptionBudget", body)
        await self.allows(name, allowed)

    async def allows(self, name: str, allowed: int) -> None:
        """Wait until a disruption budget allows that number of disruptions."""
        path = f"/apis/policy/v1/namespaces/ml/poddisruptionbudgets/{name}"

        async def allowed_now() -> bool:
            status = (await self.get(path))["status"]
            return "observedGeneration" in status and status["disruptionsAllowed"] == allowed

        await eventually(allowed_now, seconds=SECONDS)

    async def is_going(self, name: str) -> bool:
        """Whether the pod is gone or being deleted."""
        items = (await self.get("/api/v1/namespaces/ml/pods"))["items"]
        return all("deletionTimestamp" in each["metadata"] for each in items if each["metadata"]["name"] == name)

    async def nodes_of(self, pods: Iterable[Object]) -> list[str]:
        """The nodes that the pods are bound to; "" for unbound pods."""
        found = await self.get("/api/v1/namespaces/ml/pods")
        nodes = {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in found["items"]}
        return [nodes[pod["metadata"]["uid"]] for pod in pods]

    async def events(self, about: str) -> list[Object]:
        """Events about a pod, as kubectl describe asks for them."""
        uid = (await self.pod(about))["metadata"]["uid"]
        selector = f"involvedObject.kind=Pod,involvedObject.name={about},involvedObject.uid={uid}"
        found = await self.get("/api/v1/namespaces/ml/events", fieldSelector=selector)
        items: list[Object] = found["items"]
        return items

    async def get(self, path: str, **query: str) -> Object:
        """Any object."""
        response = await self._session.request("GET", path, query=query, timeout_seconds=SECONDS)
        assert response.status == 200, response
        return msgspec.json.decode(response.body)  # type: ignore[no-any-return]

    async def delete(self, path: str) -> None:
        """Any object."""
        response = await self._session.request("DELETE", path, timeout_seconds=SECONDS)
        assert response.status == 200, response

    # -- the service

    async def until_waiting(self, jobs: int) -> None:
        """Wait until that number of writes is queued."""
        await eventually(lambda: self.service.waiting == jobs)

    def bind_call(
        self,
        pods: Sequence[Object],
        node: str | Sequence[str] = "node-0",
        *,
        epoch: int = 5,
        timeout: float = SECONDS,
        labels: Mapping[str, str] | None = None,
        gang_span: str = "",
        volumes_first: bool = False,
        volumes: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        devices: Mapping[str, Sequence[pb.DeviceClaim]] = MappingProxyType({}),
        extended: Mapping[str, pb.ExtendedClaim] = MappingProxyType({}),
        **more: str,
    ) -> Any:
        """A running Bind call to one node, or to one per pod; `volumes` are by uid and claim, `devices` and `extended`
        by uid, `more` annotations.
        """
        bindings = [
            pb.PodBinding(
                uid=pod["metadata"]["uid"],
                namespace=pod["metadata"]["namespace"],
                name=pod["metadata"]["name"],
                node=where,
                annotations=more,
                claims=claims_of(pod),
                labels=labels,
                volumes=volumes.get(pod["metadata"]["uid"]),
                device_claims=devices.get(pod["metadata"]["uid"]),
                extended_claim=extended.get(pod["metadata"]["uid"]),
            )
            for pod, where in zip(pods, [node] * len(pods) if isinstance(node, str) else node, strict=True)
        ]
        request = pb.BindRequest(
            leader_epoch=self._leads(epoch), group="ml/gang", pods=bindings, volumes_first=volumes_first
        )
        return self.stub.Bind(request, timeout=timeout, metadata=gang_metadata(gang_span))

    async def bind(
        self, pods: Sequence[Object], node: str | Sequence[str] = "node-0", **more: Any
    ) -> list[pb.BindResult]:
        """All results, in the order of the pods. Fails if a pod has none or several."""
        return in_order(pods, await results_of(self.bind_call(pods, node, **more)))

    def evict_call(self, pods: Sequence[Object], *, epoch: int = 5, timeout: float = SECONDS) -> Any:
        """A running Evict call."""
        request = pb.EvictRequest(leader_epoch=self._leads(epoch), gang="koordinator/ml/gang", pods=map(name_of, pods))
        return self.stub.Evict(request, timeout=timeout)

    async def evict(self, pods: Sequence[Object], **more: Any) -> list[pb.EvictResult]:
        """All results, in the order of the pods. Fails if a pod has none or several."""
        return in_order(pods, await results_of(self.evict_call(pods, **more)))

    async def write(
        self,
        conditions: Sequence[pb.PodCondition] = (),
        events: Sequence[pb.Event] = (),
        annotations: Sequence[pb.PodAnnotations] = (),
        objects: Sequence[pb.ObjectPatch] = (),
        *,
        epoch: int = 5,
        seconds: float = SECONDS,
    ) -> pb.WriteResponse:
        request = pb.WriteRequest(
            leader_epoch=self._leads(epoch),
            conditions=conditions,
            events=events,
            annotations=annotations,
            objects=objects,
        )
        response: pb.WriteResponse = await self.stub.Write(request, timeout=seconds)
        return response


async def results_of(call: Any) -> list[Any]:
    """The remaining results of a Bind or Evict call."""
    results = []
    async for response in call:
        results.extend(response.results)
    return results


def in_order(pods: Sequence[Object], results: Sequence[_R]) -> list[_R]:
    uids = [pod["metadata"]["uid"] for pod in pods]
    assert sorted(result.uid for result in results) == sorted(uids), "every pod has exactly one result"
    return sorted(results, key=lambda result: uids.index(result.uid))


def claims_of(pod: Object) -> list[str]:
    """Names of the claims that a pod uses."""
    volumes = pod["spec"].get("volumes") or ()
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def name_of(pod: Object) -> pb.PodName:
    """The pod's reference in requests."""
    meta = pod["metadata"]
    return pb.PodName(uid=meta["uid"], namespace=meta["namespace"], name=meta["name"])


def annotated(pod: Object, *remove: str, **more: str) -> pb.PodAnnotations:
    """A request to set annotations (`more`) and to remove others by key."""
    return pb.PodAnnotations(pod=name_of(pod), set=more, remove=remove)


def waiting(
    pod: Object, message: str = "0/20 nodes are free", *, first: bool = False, changed: bool = False, **more: Any
) -> pb.PodCondition:
    """The condition of a pod that cannot be scheduled."""
    fields = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message} | more
    meta = pod["metadata"]
    name = {key: meta[key] for key in ("uid", "namespace", "name")}
    return pb.PodCondition(**name, first=first, changed=changed, **fields)


def event(pod: Object, note: str = "0/20 nodes are free", **more: str) -> pb.Event:
    """An event about a pod."""
    meta = pod["metadata"]
    regarding = state_pb.ObjectReference(
        api_version="v1", kind="Pod", namespace=meta["namespace"], name=meta["name"], uid=meta["uid"]
    )
    fields = {"type": "Warning", "reason": "FailedScheduling", "action": "Scheduling"} | more
    return pb.Event(regarding=regarding, note=note, **fields)


def names(count: int, prefix: str = "trainer") -> list[str]:
    """Names of pods: trainer-0, trainer-1 ..."""
    return [f"{prefix}-{number}" for number in range(count)]


@asynccontextmanager
async def rig(directory: Path, **settings: Any) -> AsyncIterator[Rig]:
    """A ready rig with the namespace "ml"."""
    server = ApiServer()
    await server.start()
    server.write_kubeconfig(directory / "direct")
    session = await KubeSession.connect(KubeSettings(kubeconfig=directory / "direct"))
    faults = Faults(session)
    await faults.start(free_port(), directory / "faulty")
    kube = KubeSettings(kubeconfig=directory / "faulty")
    options = Settings(listen="127.0.0.1:0", instance="binding-0", kube=kube, **settings)
    of_service = await KubeSession.connect(options.kube, connections=options.requests_in_flight + 4)
    calls = KubeCalls(session)
    rig = Rig(calls, session, faults)
    service = BindingService(of_service, options, rig.read_epoch)
    port = await service.start()
    channel = open_channel(f"127.0.0.1:{port}")
    rig.serve(service, port, pb_grpc.BindingServiceStub(channel))
    await calls.create("Namespace", {"metadata": {"name": "ml"}})
    try:
        yield rig
    finally:
        await channel.close()
        await service.stop()
        await of_service.close()
        await faults.stop()
        await session.close()
        await server.stop()
