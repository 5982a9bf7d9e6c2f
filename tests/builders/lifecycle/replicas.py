"""Replicas of lifecycle in this process, on an API server of their own."""

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
from muster.kube.informer import Pace
from muster.kube.session import KubeSession
from muster.lifecycle.controllers import CONTROLLERS
from muster.lifecycle.service import LifecycleService
from muster.lifecycle.settings import Settings
from muster.lifecycle.surroundings import Controller, Surroundings
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.ports import free_port

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/muster-lifecycle"
SECONDS = 20.0
"""Deadline of what should take milliseconds."""

_MANIFESTS = Path(__file__).parents[3] / "deploy" / "crds"
_SHORT_TIMEOUTS = Pace(absent_seconds=(0.02, 0.05), retry_seconds=(0.01, 0.1))


class LifecycleRig:
    """An API server, a client of it, and replicas that are started and stopped at will."""

    def __init__(self, directory: Path, server: ApiServer, api: ApiClient, faults: Faults) -> None:
        self.server, self.api, self.faults = server, api, faults
        self.port = 0
        """Where the replica listens that was started last."""
        self._straight = write_kubeconfig(directory, server.url)
        self._through_faults = KubeSettings(kubeconfig=directory / "faulty")

    async def install(self, manifest: str) -> None:
        """Create a CRD of deploy/crds, and wait until it is served."""
        await self.create_crd(self.manifest(manifest))

    def manifest(self, name: str) -> Any:
        """A CRD of deploy/crds."""
        return yaml.safe_load((_MANIFESTS / name).read_text())

    async def create_crd(self, crd: Any) -> None:
        """Create it, and wait until it is served."""
        await self.api.created(CRDS, crd)
        path = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
        await self.api.until(path, lambda reply: reply.status == 200)

    @asynccontextmanager
    async def replica(
        self,
        name: str = "one",
        controllers: Sequence[Callable[[Surroundings], Controller]] = CONTROLLERS,
        *,
        faulty: bool = False,
        **settings: Any,
    ) -> AsyncIterator[LifecycleService]:
        """A replica, as long as the context lasts; a `faulty` one reaches the API server through `faults`."""
        kube = self._through_faults if faulty else self._straight
        session = await KubeSession.connect(kube)
        chosen = Settings(listen="127.0.0.1:0", instance=name, kube=kube, **{"lease_seconds": 2, **settings})
        service = LifecycleService(session, chosen, controllers, _SHORT_TIMEOUTS)
        try:
            self.port = await service.start()
            following = asyncio.create_task(service.follow())
            yield service
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        finally:
            await service.stop()
            await session.close()


@asynccontextmanager
async def lifecycle_rig(directory: Path) -> AsyncIterator[LifecycleRig]:
    """Without replicas at first."""
    server = ApiServer(allow_faults=True)
    await server.start()
    try:
        session = await KubeSession.connect(write_kubeconfig(directory, server.url))
        faults = Faults(session)
        await faults.start(free_port(), directory / "faulty")
        async with api_client(server.url) as api:
            yield LifecycleRig(directory, server, api, faults)
        await faults.stop()
        await session.close()
    finally:
        await server.stop()
