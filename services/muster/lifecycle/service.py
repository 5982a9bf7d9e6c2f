"""Runs lifecycle: informers feed the controllers, and the replica that leads reconciles."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from muster.config.settings import CannotStart
from muster.kube.informer import InformerOptions
from muster.kube.session import KubeSession
from muster.lifecycle.composite_groups.controller import CompositeGroupController
from muster.lifecycle.controller import Controller, ControllerContext
from muster.lifecycle.device_allocations.controller import DeviceAllocationController
from muster.lifecycle.election import Election, Leadership
from muster.lifecycle.informers import SharedInformers
from muster.lifecycle.malformed_objects import MalformedObjectReporter
from muster.lifecycle.pod_groups.controller import PodGroupController
from muster.lifecycle.provisioning.controller import ProvisioningController
from muster.lifecycle.queue_jobs.controller import QueueJobController
from muster.lifecycle.quota.controller import QuotaController
from muster.lifecycle.settings import Settings
from muster.retry.retrying import Backoff
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer

_log = structlog.get_logger(__name__)


CONTROLLERS: Final[tuple[Callable[[ControllerContext], Controller], ...]] = (
    PodGroupController,
    CompositeGroupController,
    QueueJobController,
    QuotaController,
    DeviceAllocationController,
    ProvisioningController,
    MalformedObjectReporter,
)


async def run(settings: Settings) -> None:
    """Serves until SIGTERM, SIGINT or cancellation, then releases the Lease and returns.

    Raises BadKubeconfig, CannotListen, BadCertificates.
    """
    session = await KubeSession.connect(settings.kube)
    service = LifecycleService(session, settings)
    try:
        await service.start()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(service.run_controllers())
            await until_stopped()
            running.cancel()
    finally:
        await service.stop()
        await session.close()


class LifecycleService:
    """One replica of lifecycle."""

    def __init__(
        self,
        session: KubeSession,
        settings: Settings,
        controllers: Sequence[Callable[[ControllerContext], Controller]] = CONTROLLERS,
        pace: InformerOptions = InformerOptions(),  # noqa: B008 (a frozen value)
    ) -> None:
        self.leadership = Leadership()
        self._informers = SharedInformers(session, pace)
        self._election = Election(session, settings, self.leadership)
        self._server = RpcServer.from_settings(settings, "lifecycle")
        context = ControllerContext(session, self._informers, self.leadership, settings)
        self._controllers = [make(context) for make in controllers]

    async def start(self) -> int:
        """Starts the health service; returns its port."""
        return await self._server.start()

    async def stop(self) -> None:
        """Stops the health service."""
        await self._server.stop()

    async def run_controllers(self) -> None:
        """Runs informers, controllers and the election until cancelled. Ready once the informers have synced."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informers.run(), name="informers")
            for controller in self._controllers:
                tasks.create_task(_run_forever(controller), name=type(controller).__name__)
            await self._informers.synced.wait()
            tasks.create_task(self._election.run(), name="election")
            self._server.set_ready(True)


async def _run_forever(controller: Controller) -> None:
    """Restarts a controller that fails, so that it does not stop the others."""
    backoff = Backoff(longest_seconds=30.0)
    while True:
        try:
            await controller.run()
        except CannotStart:
            raise
        except Exception as error:
            _log.error("controller_failed", controller=type(controller).__name__, exc_info=error)
        await backoff.pause()
