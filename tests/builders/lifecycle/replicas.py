"""Replicas of lifecycle in this process, with an API server of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from builders.e2e.faults import Faults
from builders.kube.client import ApiClient, api_client
from builders.kube.kubeconfigs import write_kubeconfig
from muster.config.settings import KubeSettings
from muster.kube.informer import InformerOptions
from muster.kube.session import KubeSession
from muster.lifecycle.controller import Controller, ControllerContext
from muster.lifecycle.service import CONTROLLERS, LifecycleService
from muster.lifecycle.settings import Settings
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.ports import free_port

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/muster-lifecycle"
SECONDS = 60.0
"""Deadline of steps that take milliseconds."""

_MANIFESTS = Path(__file__).parents[3] / "deploy" / "crds"
_FAST_PACE = InformerOptions(unavailable_seconds=(0.02, 0.05), retry_seconds=(0.01, 0.1))


class LifecycleCluster:
    """An API server, a client, and replicas that tests start and stop."""

    def __init__(self, directory: Path, server: ApiServer, api: ApiClient, faults: Faults) -> None:
        self.server, self.api, self.faults = server, api, faults
        self.port = 0
        """Port of the replica that was started last."""
        self._direct = write_kubeconfig(directory, server.url)
        self._through_faults = KubeSettings(kubeconfig=directory / "faulty")

    async def install(self, manifest: str) -> None:
        """Creates a CRD of deploy/crds and waits until it is served."""
        await self.create_crd(self.manifest(manifest))

    def manifest(self, name: str) -> Any:
        """Returns a CRD of deploy/crds."""
        return yaml.safe_load((_MANIFESTS / name).read_text())

    async def create_crd(self, crd: Any) -> None:
        """Creates a CRD and waits until it is served."""
        await self.api.created(CRDS, crd)
        path = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
        await self.api.until(path, lambda reply: reply.status == 200)

    @asynccontextmanager
    async def replica(
        self,
        name: str = "one",
        controllers: Sequence[Callable[[ControllerContext], Controller]] = CONTROLLERS,
        *,
        faulty: bool = False,
        **settings: Any,
    ) -> AsyncIterator[LifecycleService]:
        """Runs a replica within the context; a `faulty` one reaches the API server through `faults`."""
        kube = self._through_faults if faulty else self._direct
        session = await KubeSession.connect(kube)
        given = Settings(listen="127.0.0.1:0", instance=name, kube=kube, **{"lease_seconds": 2, **settings})
        service = LifecycleService(session, given, controllers, _FAST_PACE)
        try:
            self.port = await service.start()
            running = asyncio.create_task(service.run_controllers())
            try:
                yield service
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
        finally:
            await service.stop()
            await session.close()


@asynccontextmanager
async def lifecycle_cluster(directory: Path) -> AsyncIterator[LifecycleCluster]:
    """An API server without replicas of lifecycle yet."""
    server = ApiServer(allow_faults=True)
    await server.start()
    try:
        session = await KubeSession.connect(write_kubeconfig(directory, server.url))
        faults = Faults(session)
        await faults.start(free_port(), directory / "faulty")
        async with api_client(server.url) as api:
            yield LifecycleCluster(directory, server, api, faults)
        await faults.stop()
        await session.close()
    finally:
        await server.stop()
