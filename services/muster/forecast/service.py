"""The process of forecast: follows the cluster, runs a placement of its own, and answers what would happen."""

import asyncio
from contextlib import aclosing

from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.follower import Follower
from muster.forecast.placement_process import own_placement
from muster.forecast.servicer import FULL_NAME, ForecastServicer
from muster.forecast.settings import Settings
from muster.forecast.starts import StartForecaster
from muster.forecast.v1 import forecast_pb2_grpc as pb_grpc
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import Forecaster
from muster.rpc.channel import open_channel
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer
from muster.rpc.subscription import subscribe


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; ready while the cluster is complete and current."""
    cluster_state = open_channel(settings.cluster_state, settings.tls)
    coordinator = open_channel(settings.coordinator, settings.tls)
    follower, stream = Follower(), ClusterStream(VirtualCluster())
    server = RpcServer.from_settings(settings, "forecast")
    try:
        async with (
            own_placement(stream) as solver,
            asyncio.TaskGroup() as tasks,
            aclosing(subscribe(cluster_state, f"forecast/{settings.instance}")) as steps,
        ):
            servicer = ForecastServicer(
                settings, follower, coordinator, Forecaster(stream, solver), StartForecaster(stream, solver)
            )
            server.add(pb_grpc.add_ForecastServiceServicer_to_server, servicer, FULL_NAME)
            await server.start()
            work = [
                tasks.create_task(follower.follow(steps, server.set_ready)),
                tasks.create_task(solver.until_ended()),
            ]
            try:
                await until_stopped()
            finally:
                await server.stop()
                for task in work:
                    task.cancel()
                await asyncio.wait(work)
    finally:
        await cluster_state.close()
        await coordinator.close()
