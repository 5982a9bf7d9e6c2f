"""The coordinator's process: campaigns, leads a term, campaigns again, and serves the coordinator's gRPC API."""

import asyncio
from functools import partial

import structlog

from muster.coordinator.api import FULL_NAME, CoordinatorServicer
from muster.coordinator.cluster_follower import ClusterFollower
from muster.coordinator.effect_runner import Channels
from muster.coordinator.replicas import Replicas
from muster.coordinator.settings import Settings, read_password
from muster.coordinator.term import Term
from muster.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from muster.etcd.election import Election
from muster.etcd.store import Store
from muster.retry.retrying import Backoff
from muster.rpc.channel import open_channel
from muster.rpc.kept_connection import keep_connected
from muster.rpc.process import until_stopped
from muster.rpc.process_end import until_process_ended
from muster.rpc.server import RpcServer
from muster.telemetry.metrics import expose_leadership

HEALTH_SECONDS = 1.0
"""Interval of health checks of etcd."""

_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then resigns, so that a standby takes over at once."""
    password = partial(read_password, settings.etcd_password_file)
    store = Store(settings.etcd, tls=settings.etcd_tls, user=settings.etcd_user, password=password)
    server = RpcServer.from_settings(settings, "coordinator")
    servicer = CoordinatorServicer()
    server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, servicer, FULL_NAME)
    port = await server.start()
    channels = Channels(
        open_channel(settings.cluster_state, settings.tls),
        Replicas.at(settings.placement, settings.tls, settings.placement_server_name),
        open_channel(settings.binding, settings.tls),
    )
    election = Election(
        store,
        key=f"{settings.etcd_prefix}/leader",
        identity=settings.instance,
        ttl_seconds=settings.lease_seconds,
        address=settings.advertised(port),
        until_ended=partial(until_process_ended, tls=settings.tls, server_name=settings.replica_server_name),
    )
    work = [
        asyncio.create_task(_campaign_and_lead(settings, channels, store, election, servicer)),
        asyncio.create_task(_check_etcd(store, f"{settings.etcd_prefix}/leader", server)),
        asyncio.create_task(keep_connected((channels.cluster_state, *channels.placement.channels, channels.binding))),
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


async def _campaign_and_lead(
    settings: Settings, channels: Channels, store: Store, election: Election, servicer: CoordinatorServicer
) -> None:
    servicer.standby(election.leader)
    backoff = Backoff()
    expose_leadership(False)
    while True:
        async with ClusterFollower(channels.cluster_state, settings.instance) as cluster:
            leadership = await election.campaign()
            expose_leadership(True)
            term = Term(settings, channels, store, leadership, cluster)
            servicer.lead(term)
            try:
                reason = await term.run()
                _log.warning("term_ended", reason=reason)
            except Exception as error:  # the next term continues from etcd and the cluster
                _log.error("term_failed", exc_info=error)
                failed = True
            else:
                failed = False
            finally:
                expose_leadership(False)
                servicer.standby(election.leader)
                await election.resign()
        if failed:
            await backoff.pause()  # lets another replica lead
        else:
            backoff.reset()


async def _check_etcd(store: Store, key: str, server: RpcServer) -> None:
    """Keeps readiness up to date: a replica that reaches etcd leads, or can."""
    while True:
        server.set_ready(await store.healthy(key))
        await asyncio.sleep(HEALTH_SECONDS)
