"""A simulated autoscaler: answers the ProvisioningRequests of a namespace with nodes for all of their pods."""

from typing import Any

import msgspec

from builders.e2e.cluster import Cluster
from builders.e2e.world import World
from builders.gangs.manifests import Workload
from builders.lifecycle.provisioning import CRD, condition
from builders.wait import eventually
from muster.localcluster.manifests import Manifest, apply_manifests

JSON = dict[str, Any]


class Autoscaler:
    """Cluster Autoscaler as far as ProvisioningRequests are concerned: all nodes of a request, or none."""

    def __init__(self, world: World, workload: Workload) -> None:
        self._world, self._call = world, world.cluster.try_call
        namespace = world.here(workload).namespace
        self._path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests"
        self._templates = f"/api/v1/namespaces/{namespace}/podtemplates"

    async def request(self, pods: int) -> JSON:
        """Waits for a request for so many pods, whose templates exist; returns it."""

        async def found() -> JSON | None:
            for request in await self._items(self._path):
                sets = request["spec"]["podSets"]
                names = {template["metadata"]["name"] for template in await self._items(self._templates)}
                if sum(each["count"] for each in sets) == pods:
                    assert {each["podTemplateRef"]["name"] for each in sets} <= names
                    return request
            return None

        return await eventually(found, f"a ProvisioningRequest for {pods} pods")

    async def answer(self, request: JSON, status: str, message: str) -> None:
        """Writes the condition Provisioned."""
        path = f"{self._path}/{request['metadata']['name']}/status"
        await self._world.cluster.merge(path, {"status": {"conditions": [condition("Provisioned", status, message)]}})

    async def provision(self, request: JSON, *cpus: int) -> None:
        """Adds nodes with these CPUs; the answer is given as soon as they are requested."""
        await self.answer(request, "True", "the scale-up was requested")
        await self._world.nodes(*cpus)

    async def remove(self, request: JSON) -> None:
        """Deletes a request, and waits until there is another one."""
        uid = request["metadata"]["uid"]
        await self._call("DELETE", f"{self._path}/{request['metadata']['name']}")

        async def replaced() -> bool:
            return any(each["metadata"]["uid"] != uid for each in await self._items(self._path))

        await eventually(replaced, "another ProvisioningRequest")

    async def gone(self) -> None:
        """Waits until there is no request."""

        async def none() -> bool:
            return not await self._items(self._path)

        await eventually(none, "no ProvisioningRequest is left")

    async def _items(self, path: str) -> list[JSON]:
        found = await self._call("GET", path)
        items: list[JSON] = msgspec.json.decode(found.body)["items"]
        return items


async def install(cluster: Cluster) -> None:
    """Creates the CustomResourceDefinition and waits until it is served."""
    await apply_manifests(cluster.session, [Manifest(CRD)])

    async def served() -> bool:
        return bool((await cluster.try_call("GET", "/apis/autoscaling.x-k8s.io/v1/provisioningrequests")).status == 200)

    await eventually(served, "ProvisioningRequests are served")
