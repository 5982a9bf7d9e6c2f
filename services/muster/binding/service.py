"""The binding process: start, readiness and shutdown."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from muster.binding import metrics
from muster.binding.events import EventRecorder
from muster.binding.leader_epoch import LeaderEpochReader
from muster.binding.leader_fence import LeaderFence
from muster.binding.pipeline import Pipeline
from muster.binding.servicer import FULL_NAME, BindingServicer
from muster.binding.settings import Settings
from muster.binding.shared_claim_state import SharedClaimState
from muster.binding.v1.binding_pb2_grpc import add_BindingServiceServicer_to_server
from muster.kube.responses import KubeUnreachable
from muster.kube.session import KubeSession
from muster.rpc.channel import open_channel
from muster.rpc.kept_connection import keep_connected
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer

_SPARE_CONNECTIONS: Final = 4  # for the watches of claims, and so that readiness probes never queue behind writes
_LAST_COUNTS_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 2.0
_PROBE_TIMEOUT_SECONDS: Final = 3.0
_GRACE_SECONDS: Final = 10.0  # calls ride out shorter outages

_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; then let running calls finish, and return.

    Raises BadKubeconfig, CannotListen, BadCertificates.
    """
    connections = settings.requests_in_flight + _SPARE_CONNECTIONS
    session = await KubeSession.connect(settings.kube, connections=connections)
    try:
        coordinator = open_channel(settings.coordinator, settings.tls)
        service = BindingService(session, settings, LeaderEpochReader(coordinator))
        await service.start()
        connection = asyncio.create_task(keep_connected((coordinator,)))
        try:
            await until_stopped()
        finally:
            connection.cancel()
            await service.stop()
            await coordinator.close()
    finally:
        await session.close()


class BindingService:
    """One replica."""

    def __init__(self, session: KubeSession, settings: Settings, read_epoch: Callable[[], Awaitable[int]]) -> None:
        """`read_epoch` as of LeaderFence."""
        self._session = session
        self._drain_seconds = settings.drain_seconds
        self._pipeline = Pipeline(settings.requests_in_flight)
        self._events = EventRecorder(session, self._pipeline, settings.instance)
        self._claims = SharedClaimState.of(session)
        self._server = RpcServer.from_settings(settings, "binding")
        servicer = BindingServicer(session, self._pipeline, self._events, self._claims, LeaderFence(read_epoch))
        self._server.add(add_BindingServiceServicer_to_server, servicer, FULL_NAME)
        self._background: list[asyncio.Task[None]] = []
        metrics.PENDING.read_from(self._waiting_by_type)
        metrics.IN_FLIGHT.read_from(lambda: {(): self._pipeline.in_flight})

    @property
    def waiting(self) -> int:
        """Number of queued writes."""
        return self._pipeline.waiting

    def _waiting_by_type(self) -> dict[tuple[str, ...], float]:
        return {(write_type.name.lower(),): count for write_type, count in self._pipeline.waiting_by_type().items()}

    async def start(self) -> int:
        """Listen; returns the port. The replica is ready as soon as the API server answers."""
        port = await self._server.start()
        self._background = [
            asyncio.create_task(report_readiness(self._session, self._server.set_ready)),
            asyncio.create_task(self._events.expire()),
        ]
        return port

    async def stop(self) -> None:
        """Refuse new calls, let running calls finish for `drain_seconds`, and write the last counts of events."""
        for task in self._background:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._server.stop(self._drain_seconds)
        await self._claims.stop()
        self._events.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_COUNTS_SECONDS):
                await self._pipeline.drain()
        self._events.stop()


async def report_readiness(
    session: KubeSession,
    set_ready: Callable[[bool], None],
    *,
    poll_seconds: float = _POLL_SECONDS,
    grace_seconds: float = _GRACE_SECONDS,
) -> None:
    """Report, until cancelled, whether the API server is usable.

    Not ready before its first answer; then ready until it has not answered for `grace_seconds`.
    """
    loop = asyncio.get_running_loop()
    answered = float("-inf")
    problem = ""
    while True:
        before, problem = problem, await _server_problem(session)
        if not problem:
            answered = loop.time()
            if before:
                _log.info("api_server_recovered", server=session.server)
        elif problem != before:
            _log.warning("api_server_unavailable", server=session.server, problem=problem)
        set_ready(loop.time() - answered <= grace_seconds)
        await asyncio.sleep(poll_seconds)


async def _server_problem(session: KubeSession) -> str:
    """The reason why the API server is not usable; empty if it is."""
    try:
        response = await session.request("GET", "/readyz", timeout_seconds=_PROBE_TIMEOUT_SECONDS)
    except KubeUnreachable as error:
        return str(error)
    if response.status == 401:
        return "401: the API server rejects the credentials"
    if response.status >= 500:
        return f"{response.status}: the API server is not ready"
    return ""
