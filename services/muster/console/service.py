"""The console: follows cluster-state and the coordinator, and shows them to people in browsers. It writes nothing."""

import asyncio

from grpc import aio

from muster.console.access import Access, OpenAccess, ReviewedAccess
from muster.console.coordinator import CoordinatorClient
from muster.console.follow import follow_cluster, follow_gangs, follow_leader, follow_records, follow_starts
from muster.console.forecast import ForecastClient
from muster.console.played_changes import PlayedChanges
from muster.console.server import ConsoleServer
from muster.console.settings import Settings
from muster.console.signal import Signal
from muster.console.state import State
from muster.console.stream import Sources
from muster.kube.session import KubeSession
from muster.rpc.channel import open_channel
from muster.rpc.health import Health
from muster.rpc.https import ReloadedTls
from muster.rpc.process import until_stopped
from muster.rpc.server import ProbeServer
from muster.rpc.subscription import subscribe


async def run(settings: Settings) -> None:
    """Serves until SIGTERM, SIGINT or cancellation. Ready once the first snapshot of the cluster is complete: what
    cannot be reached later is shown on the page.

    Raises BadKubeconfig, BadCertificates, BadServerCertificate, CannotListenForBrowsers, CannotListen.
    """
    session = await KubeSession.connect(settings.kube) if settings.authentication == "token" else None
    cluster_state = open_channel(settings.cluster_state, settings.tls)
    coordinator = open_channel(settings.coordinator, settings.tls)
    forecast = open_channel(settings.forecast, settings.tls) if settings.forecast else None
    try:
        await _serve(settings, _access(session), cluster_state, coordinator, forecast)
    finally:
        for channel in (cluster_state, coordinator, forecast):
            if channel is not None:
                await channel.close()
        if session is not None:
            await session.close()


async def _serve(
    settings: Settings,
    access: Access,
    cluster_state: aio.Channel,
    coordinator: aio.Channel,
    forecast: aio.Channel | None,
) -> None:
    signal = Signal()
    state, client = State(signal.touch), CoordinatorClient(coordinator)
    forecaster = ForecastClient(forecast) if forecast is not None else None
    tls = ReloadedTls("the console", *settings.https_files).context if settings.https_files is not None else None
    played = PlayedChanges(forecaster, signal.touch) if forecaster is not None else None
    sources = Sources(state, signal, client, access, settings.trace_url, forecaster, played)
    server = ConsoleServer(settings.listen, tls, sources)
    health = Health()
    probes = ProbeServer(settings.health_listen, health) if settings.health_listen is not None else None

    def synced() -> None:
        health.set_ready(True)
        server.set_ready()

    try:
        await server.start()
        if probes is not None:
            await probes.start()
        async with asyncio.TaskGroup() as tasks:
            following = [
                tasks.create_task(work)
                for work in (
                    follow_cluster(state, lambda: subscribe(cluster_state, f"console/{settings.instance}"), synced),
                    follow_gangs(state, client),
                    follow_leader(state, client),
                    follow_records(state, client, lambda: server.watched),
                )
            ]
            if forecaster is not None:
                following.append(tasks.create_task(follow_starts(state, forecaster, lambda: server.watched)))
            if played is not None:
                following.append(tasks.create_task(played.run()))
            try:
                await until_stopped()
            finally:
                health.set_ready(False)
                await server.stop()
                for task in following:
                    task.cancel()
    finally:
        await server.stop()
        if probes is not None:
            await probes.stop()


def _access(session: KubeSession | None) -> Access:
    if session is None:
        return OpenAccess()
    return ReviewedAccess(session, asyncio.get_running_loop().time)
