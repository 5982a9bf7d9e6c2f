"""The coordinator's process: stand for election, lead a term, and again; tell who asks about gangs meanwhile."""

import asyncio
from functools import partial

import structlog

from muster.coordinator.api import FULL_NAME, CoordinatorServicer
from muster.coordinator.replicas import Replicas
from muster.coordinator.settings import Settings, read_password
from muster.coordinator.term import Channels, Term
from muster.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from muster.etcd.election import Election
from muster.etcd.store import Store
from muster.retry.retrying import Backoff
from muster.rpc.channel import open_channel
from muster.rpc.lifetime import until_stopped
from muster.rpc.server import RpcServer
from muster.telemetry.metrics import tell_leading

HEALTH_SECONDS = 1.0
"""How often etcd is asked whether it is there."""

_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; then resign, so that a standby takes over at once."""
    password = partial(read_password, settings.etcd_password_file)
    store = Store(settings.etcd, tls=settings.etcd_tls, user=settings.etcd_user, password=password)
    server = RpcServer.by(settings, "coordinator")
    servicer = CoordinatorServicer()
    server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, servicer, FULL_NAME)
    await server.start()
    channels = Channels(
        open_channel(settings.cluster_state, settings.tls),
        Replicas.at(settings.placement, settings.tls, settings.placement_server_name),
        open_channel(settings.binding, settings.tls),
    )
    work = [
        asyncio.create_task(_stand_and_lead(settings, channels, store, servicer)),
        asyncio.create_task(_watch_etcd(store, f"{settings.etcd_prefix}/leader", server)),
    ]
    stop = asyncio.create_task(until_stopped())
    try:
        done, _ = await asyncio.wait([stop, *work], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        server.set_ready(False)
        for task in (stop, *work):
            task.cancel()
        await asyncio.gather(stop, *work, return_exceptions=True)
        await server.stop()
        await channels.cluster_state.close()
        await channels.placement.close()
        await channels.binding.close()
        await store.close()


async def _stand_and_lead(settings: Settings, channels: Channels, store: Store, servicer: CoordinatorServicer) -> None:
    election = Election(
        store, key=f"{settings.etcd_prefix}/leader", identity=settings.instance, ttl_seconds=settings.lease_seconds
    )
    servicer.standby(election.leader)
    backoff = Backoff()
    tell_leading(False)
    while True:
        leadership = await election.campaign()
        tell_leading(True)
        term = Term(settings, channels, store, leadership)
        servicer.lead(term)
        try:
            reason = await term.run()
            _log.warning("term ended", reason=reason)
        except Exception as error:  # all that counts is in etcd and in the cluster: the next term goes on from there
            _log.error("term failed", exc_info=error)
            failed = True
        else:
            failed = False
        finally:
            tell_leading(False)
            servicer.standby(election.leader)
            await election.resign()
        if failed:
            await backoff.pause()  # another replica may go first
        else:
            backoff.reset()


async def _watch_etcd(store: Store, key: str, server: RpcServer) -> None:
    """Ready means: it leads, or could. Without etcd nothing can be permitted."""
    while True:
        server.set_ready(await store.healthy(key))
        await asyncio.sleep(HEALTH_SECONDS)
