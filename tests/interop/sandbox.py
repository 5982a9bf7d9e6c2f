"""The part of the cluster that one scenario uses: a namespace, nodes, and gangs of one kind of workload."""

import asyncio
import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from builders.e2e.cluster import Cluster, node_of
from builders.e2e.observations import LABEL
from builders.e2e.world import World
from builders.wait import eventually
from interop.gang import JSON, Gang
from interop.observed_gangs import WAIT_SECONDS, ObservedGangs
from interop.running_controller import RunningController
from interop.starts import Starts
from interop.workload_kind import Patch, WorkloadKind
from muster.localcluster.kubelets.pod_types import STOP_SECONDS

_WITH_PODS: JSON = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}


class Sandbox(ObservedGangs):
    """Actions and observations of one scenario. `size` is the number of pods of each gang."""

    def __init__(
        self,
        cluster: Cluster,
        kind: WorkloadKind,
        controllers: Mapping[str, RunningController],
        starts: Starts,
        size: int,
    ) -> None:
        self._world = World(cluster)
        super().__init__(cluster, self._world.name, controllers)
        self.kind, self.starts, self.size = kind, starts, size
        self.remark = ""
        """Note for readers of the result."""
        self._declared: dict[str, list[JSON]] = {}
        self._paths: dict[tuple[str, str], str] = {}

    # -- given

    async def open(self) -> None:
        """Create the namespace; returns when pods are admitted there."""
        await self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"

        async def exists() -> bool:
            return (await self.cluster.try_call("GET", account)).status == 200

        await eventually(exists, f"{account} exists", seconds=WAIT_SECONDS)
        self.cluster.on_pod = self.starts.on_pod

    async def nodes(self, count: int, labels: Mapping[str, str] | None = None) -> list[str]:
        """Create nodes, each with one CPU: the request of one pod."""
        more: dict[str, Any] = dict(labels or {})
        return await self._world.nodes(*[1] * count, **more)

    async def gang(self, name: str, change: Callable[[list[JSON]], None] | None = None, **options: Any) -> Gang:
        """Declare a gang of the sandbox's kind; `change` edits its objects."""
        gang = Gang(self.namespace, name, self.size, {LABEL: self._world.name}, **options)
        self.starts.expect(gang.namespace, gang.name, gang.size if self.kind.starts_whole else 1)
        self._declared[name] = copy.deepcopy(list(self.kind.objects(gang)))
        if change is not None:
            change(self._declared[name])
        for each in self._declared[name]:
            await self._apply(each)
        return gang

    # -- when

    async def patch(self, patch: Patch) -> None:
        """Change an object."""
        await self.cluster.merge(await self.path(patch.object), patch.body)

    async def restart(self, gang: Gang) -> set[str]:
        """Make the controller restart the whole gang; returns the uids of the pods before.

        Where the controller restarts it after a failure, a member fails.
        """
        before = {pod["metadata"]["uid"] for pod in self.pods(gang)}
        if self.kind.restart is None:
            await self.fail(self.kind.failing(self.pods(gang)))
            return before
        for number, patch in enumerate(self.kind.restart(gang)):
            if number:
                await self.until(lambda: not before & self.uids(gang), f"all pods of {gang.name} are terminating")
            await self.patch(patch)
        return before

    async def fail(self, pod: JSON) -> None:
        """Let a pod fail, as its kubelet would report."""
        state = {"terminated": {"exitCode": 1, "reason": "Error"}}
        container = {"name": pod["spec"]["containers"][0]["name"], "state": state, "image": "", "imageID": ""}
        status = {"phase": "Failed", "containerStatuses": [{**container, "ready": False, "restartCount": 0}]}
        await self.cluster.merge(f"{_pod_path(pod)}/status", {"status": status})

    async def succeed(self, gang: Gang, *pods: JSON) -> None:
        """Let these pods of a gang succeed, by default those that complete the workload, as their kubelets would
        report.
        """
        if not pods and self.kind.finishing is not None:
            pods = (self.cluster.pods[self.namespace, self.kind.finishing(gang)],)
        for pod in pods or self.pods(gang):
            await self.cluster.merge(f"{_pod_path(pod)}/status", {"status": {"phase": "Succeeded"}})

    async def lose_node(self, node: str) -> None:
        """Delete a node whose kubelet is gone, and end its pods as the pod garbage collector does a minute later."""
        lost = [pod for pod in self.cluster.pods.values() if node_of(pod) == node]
        await self._world.remove_nodes(node)
        disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
        for pod in lost:
            status = {"status": {"phase": "Failed", "conditions": [disrupted]}}
            path = _pod_path(pod)
            await self.cluster.call(
                "PATCH", f"{path}/status", status, content_type="application/strategic-merge-patch+json"
            )
            await self.cluster.try_call("DELETE", path, query={"gracePeriodSeconds": "0"})

    async def stop_slowly(self, pod: JSON, seconds: float) -> None:
        """Let the containers of a pod take this long to stop once it is deleted."""
        await self.cluster.merge(_pod_path(pod), {"metadata": {"annotations": {STOP_SECONDS: f"{seconds:g}"}}})

    async def delete(self, gang: Gang) -> None:
        """Delete the objects that declare a gang."""
        for each in (*reversed(self._declared.pop(gang.name)), *self.kind.created(gang)):
            await self.cluster.try_call("DELETE", await self.path(each), _WITH_PODS)

    async def kill_controller(self) -> None:
        """Kill the controller of the sandbox's kind."""
        await self._controllers[self.kind.controller].kill()

    async def start_controller(self) -> None:
        """Start it again; returns when it is ready."""
        await self._controllers[self.kind.controller].start()

    async def kill_coordinator(self) -> None:
        """Kill the coordinator."""
        await self.cluster.stack.kill("coordinator")

    async def kill_coordinator_at_permit(self) -> None:
        """Kill the coordinator as soon as the next permit of the namespace is in etcd; returns when it is dead."""
        done = asyncio.Event()

        def on_record(id_: str, record: object) -> None:
            if record is not None and f"/{self.namespace}/" in id_ and not done.is_set():
                self.cluster.stack.children["coordinator"].freeze()
                done.set()

        self.cluster.on_record = on_record
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await done.wait()
            await self.kill_coordinator()
        finally:
            self.cluster.on_record = None

    # -- then

    async def waits(self, gang: Gang, members: int | None = None) -> None:
        """Wait until the coordinator has tried to place it; none of its pods may be bound."""
        await super().waits(gang, members or (gang.size if self.kind.starts_whole else 1))

    async def completed(self, gang: Gang) -> None:
        """Wait until the workload itself says that it has completed."""
        finished, workload = self.kind.finished, self._declared[gang.name][-1]
        assert finished is not None
        path = await self.path(workload)
        found: JSON = {}

        async def done() -> bool:
            found.clear()
            found.update(await self.cluster.call("GET", path))
            return finished(found)

        await eventually(
            done, lambda: f"{workload['kind']} {gang.name} has completed: {found.get('status')}", seconds=WAIT_SECONDS
        )

    async def workloads(self) -> str:
        """The status of all objects that declare gangs, for failure messages."""
        lines = []
        for each in (one for objects in self._declared.values() for one in objects):
            if (each["apiVersion"], each["kind"]) not in self._paths:
                continue
            answer = await self.cluster.try_call("GET", await self.path(each))
            status = msgspec.json.decode(answer.body).get("status") if answer.status == 200 else answer.status
            lines.append(f"  {each['kind']} {each['metadata']['name']}: {msgspec.json.encode(status).decode()}")
        return "\n".join(lines)

    async def close(self) -> None:
        """Delete everything; returns when the nodes are free."""
        self.cluster.on_pod = None
        with contextlib.suppress(Exception):
            for name in list(self._declared):
                await self.delete(Gang(self.namespace, name, 0, {}))
        await self.cluster.try_call("DELETE", f"/api/v1/namespaces/{self.namespace}")
        await self._world.clear()

    async def path(self, manifest: JSON) -> str:
        """URL path of an object, from the API server's discovery document."""
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"

        async def served() -> bool:
            answer = await self.cluster.try_call("GET", root)
            for resource in msgspec.json.decode(answer.body)["resources"] if answer.status == 200 else ():
                if "/" not in resource["name"]:
                    scope = "/namespaces/{namespace}" if resource["namespaced"] else ""
                    self._paths[version, resource["kind"]] = f"{root}{scope}/{resource['name']}/{{name}}"
            return (version, kind) in self._paths

        if (version, kind) not in self._paths:  # a new kind is served some time after its definition
            await eventually(served, f"the API server serves {kind} of {version}", seconds=WAIT_SECONDS)
        pattern = self._paths[version, kind]
        return pattern.format(namespace=metadata.get("namespace", "default"), name=metadata["name"])

    async def _apply(self, manifest: JSON) -> None:
        """Create an object; tries again while a webhook is not reachable, or does not know another object yet."""
        path = (await self.path(manifest)).rpartition("/")[0]
        answers: list[str] = []

        async def created() -> bool:
            answer = await self.cluster.try_call("POST", path, manifest)
            answers[:] = [f"{answer.status} {answer.body.decode(errors='replace')[:1000]}"]
            assert answer.status < 300 or answer.status == 403 or answer.status >= 500, answers[0]
            return answer.status < 300

        what = f"{manifest['kind']} {manifest['metadata']['name']} is created"
        await eventually(created, lambda: f"{what}: {answers}", seconds=WAIT_SECONDS, every_seconds=0.2)


def _pod_path(pod: JSON) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
