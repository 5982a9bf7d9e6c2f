"""The process: from start to the last write."""

import asyncio
from contextlib import suppress

import structlog

from muster.binding import metrics
from muster.binding.claim_watch import ClaimWatch
from muster.binding.events import EventRecorder
from muster.binding.pipeline import Pipeline
from muster.binding.readiness import follow_readiness
from muster.binding.servicer import FULL_NAME, BindingServicer
from muster.binding.settings import Settings
from muster.binding.v1.binding_pb2_grpc import add_BindingServiceServicer_to_server
from muster.kube.session import KubeSession
from muster.rpc.lifetime import until_stopped
from muster.rpc.server import RpcServer

_SPARE_CONNECTIONS = 3  # for the watch, and so that looking whether the API server is well never waits behind writes
_LAST_COUNTS_SECONDS = 2.0

_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; then let running calls finish, and return.

    Raises BadKubeconfig, CannotListen, BadCertificates.
    """
    connections = settings.requests_in_flight + _SPARE_CONNECTIONS
    session = await KubeSession.connect(settings.kube, connections=connections)
    try:
        service = BindingService(session, settings)
        await service.start()
        try:
            await until_stopped()
        finally:
            await service.stop()
    finally:
        await session.close()


class BindingService:
    """One replica, without the process around it."""

    def __init__(self, session: KubeSession, settings: Settings) -> None:
        self._session = session
        self._drain_seconds = settings.drain_seconds
        self._pipeline = Pipeline(settings.requests_in_flight)
        self._events = EventRecorder(session, self._pipeline, settings.instance)
        self._claims = ClaimWatch(session)
        self._server = RpcServer.by(settings, "binding")
        servicer = BindingServicer(session, self._pipeline, self._events, self._claims)
        self._server.add(add_BindingServiceServicer_to_server, servicer, FULL_NAME)
        self._readiness: asyncio.Task[None] | None = None
        metrics.WAITING.read_from(self._waiting_by_urgency)
        metrics.IN_FLIGHT.read_from(lambda: {(): self._pipeline.in_flight})

    @property
    def waiting(self) -> int:
        """Writes that wait for their turn."""
        return self._pipeline.waiting

    def _waiting_by_urgency(self) -> dict[tuple[str, ...], float]:
        return {(urgency.name.lower(),): count for urgency, count in self._pipeline.waiting_by_urgency().items()}

    async def start(self) -> int:
        """Listen; returns the port. Ready as soon as the API server answers."""
        port = await self._server.start()
        self._readiness = asyncio.create_task(follow_readiness(self._session, self._server.set_ready))
        return port

    async def stop(self) -> None:
        """Take no new calls, let running ones finish for a while, write the last counts of events."""
        if self._readiness is not None:
            self._readiness.cancel()
            with suppress(asyncio.CancelledError):
                await self._readiness
        await self._server.stop(self._drain_seconds)
        await self._claims.stop()
        self._events.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_COUNTS_SECONDS):
                await self._pipeline.drain()
        self._events.stop()
