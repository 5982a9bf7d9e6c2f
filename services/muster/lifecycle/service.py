"""lifecycle's main path: watches tell the controllers what there is, and the replica that leads writes what follows."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from muster.config.settings import CannotStart
from muster.kube.informer import Pace
from muster.kube.session import KubeSession
from muster.lifecycle.controllers import CONTROLLERS
from muster.lifecycle.election import Election, Leadership
from muster.lifecycle.settings import Settings
from muster.lifecycle.surroundings import Controller, Surroundings
from muster.lifecycle.watches import Watches
from muster.retry.retrying import Backoff
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer

_log = structlog.get_logger(__name__)


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; then let another replica lead, and return.

    Raises BadKubeconfig, CannotListen, BadCertificates.
    """
    session = await KubeSession.connect(settings.kube)
    service = LifecycleService(session, settings)
    try:
        await service.start()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(service.follow())
            await until_stopped()
            following.cancel()
    finally:
        await service.stop()
        await session.close()


class LifecycleService:
    """One replica, without the process around it."""

    def __init__(
        self,
        session: KubeSession,
        settings: Settings,
        controllers: Sequence[Callable[[Surroundings], Controller]] = CONTROLLERS,
        pace: Pace = Pace(),  # noqa: B008 (a frozen value)
    ) -> None:
        self.leadership = Leadership()
        self._watches = Watches(session, pace)
        self._election = Election(session, settings, self.leadership)
        self._server = RpcServer.by(settings, "lifecycle")
        surroundings = Surroundings(session, self._watches, self.leadership, settings)
        self._controllers = [make(surroundings) for make in controllers]

    async def start(self) -> int:
        """Listen, for the health service; returns the port."""
        return await self._server.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop()

    async def follow(self) -> None:
        """Until cancelled. Ready once all kinds have been listed: this replica leads, or could."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watches.run(), name="watches")
            for controller in self._controllers:
                tasks.create_task(_kept_running(controller), name=type(controller).__name__)
            await self._watches.complete.wait()
            tasks.create_task(self._election.run(), name="election")
            self._server.set_ready(True)


async def _kept_running(controller: Controller) -> None:
    """A controller that fails must not take the others with it."""
    backoff = Backoff(longest_seconds=30.0)
    while True:
        try:
            await controller.run()
        except CannotStart:
            raise
        except Exception as error:
            _log.error("controller failed; started again", controller=type(controller).__name__, exc_info=error)
        await backoff.pause()
