"""A second placement service, to learn from and to keep the contract honest: first-fit in plain Python."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, Final

import grpc
from grpc import aio

from muster.firstfit.cluster import Cluster, Follower, Outdated
from muster.firstfit.node_usage import NodeUsage
from muster.firstfit.settings import Settings
from muster.firstfit.solve import solve_group
from muster.gangs.facts import PodClass, split_kind
from muster.gangs.solve import SolveRequest
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.errors import RpcError
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer
from muster.rpc.solve_codec import decode_solve_request, encode_solve_result
from muster.rpc.subscription import subscribe
from muster.rpc.watch_codec import encode_revision

FULL_NAME: Final = "muster.placement.v1.PlacementService"
FEATURES: Final = (
    pb.FEATURE_HOST_PORTS,
    pb.FEATURE_POD_ANTI_AFFINITY,
    pb.FEATURE_NODE_SELECTION,
    pb.FEATURE_VOLUMES,
    pb.FEATURE_EXPLANATIONS,
)
_MAX_WAIT_SECONDS: Final = 60.0
"""Timeout of calls without a deadline."""
_RESERVED_FRACTION: Final = 0.1
"""Fraction of the deadline held in reserve, so that an error arrives before it."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; ready while the cluster state is complete and current."""
    channel, follower = open_channel(settings.cluster_state, settings.tls), Follower()
    server = RpcServer.from_settings(settings, "first-fit")
    server.add(pb_grpc.add_PlacementServiceServicer_to_server, FirstFit(follower), FULL_NAME)
    try:
        async with (
            asyncio.TaskGroup() as tasks,
            aclosing(subscribe(channel, f"first-fit/{settings.instance}")) as steps,
        ):
            await server.start()
            following = tasks.create_task(follower.follow(steps, server.set_ready))
            try:
                await until_stopped()
            finally:
                await server.stop()
                following.cancel()
                await asyncio.wait([following])
    finally:
        await channel.close()


class FirstFit(pb_grpc.PlacementServiceServicer):
    """PlacementService on the followed cluster."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    async def Solve(self, request: pb.SolveRequest, context: aio.ServicerContext[Any, Any]) -> pb.SolveResponse:  # noqa: N802
        decoded = decode_solve_request(request)
        left = context.time_remaining()
        seconds = (_MAX_WAIT_SECONDS if left is None else left) * (1 - _RESERVED_FRACTION)
        try:
            cluster = await self._follower.at(decoded.min_revision, seconds)
        except Outdated as error:
            code = grpc.StatusCode.FAILED_PRECONDITION if error.known else grpc.StatusCode.UNAVAILABLE
            raise RpcError(code, str(error)) from None
        classes = _kinds(decoded, cluster)
        usage, preemption_allowed = _usage(cluster, decoded, classes), bool(decoded.potential_victims)
        response = pb.SolveResponse(revision=encode_revision(cluster.revision))
        for group in decoded.groups:
            result = solve_group(usage, classes, group, preemption_allowed=preemption_allowed)
            encode_solve_result(result, response.results.add())
        return response

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:  # noqa: N802
        answer = pb.DescribeResponse(implementation="first-fit", version=version("muster"), features=FEATURES)
        cluster = self._follower.cluster
        if cluster is not None:
            answer.revision.CopyFrom(encode_revision(cluster.revision))
            answer.nodes, answer.pods = len(cluster.nodes), len(cluster.pods)
        return answer


def _kinds(request: SolveRequest, cluster: Cluster) -> dict[str, PodClass]:
    """The classes of all kinds of pods in a request. Raises RpcError FAILED_PRECONDITION for an unknown class."""
    named = {role.class_id for group in request.groups for gang in group.gangs for role in gang.roles}
    named.update(held.class_id for held in request.reservations)
    unknown = sorted({split_kind(kind)[0] for kind in named} - cluster.classes.keys())
    if unknown:
        raise RpcError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"pod class {unknown[0]!r} is unknown at this revision; request the revision of its first pod",
        )
    return {kind: cluster.kind(kind) for kind in named}


def _usage(cluster: Cluster, request: SolveRequest, classes: Mapping[str, PodClass]) -> NodeUsage:
    """Usage by bound pods, by reservations whose pods are not bound yet, and by nominated capacity."""
    usage = NodeUsage(cluster)
    for held in request.reservations:
        unseen = sum(uid not in cluster.pods for uid in held.pod_uids)
        usage.put(classes[held.class_id], held.node, unseen)
    for nominated in request.nominated:
        usage.use(nominated.node, nominated.amounts)
    return usage
