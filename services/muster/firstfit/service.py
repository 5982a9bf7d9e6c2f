"""A second placement, for teaching and to keep the contract honest: first-fit in plain Python. Follow, wait, answer."""

import asyncio
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, Final

import grpc
from grpc import aio

from muster.firstfit.checks import check, check_classes
from muster.firstfit.picture import Follower, Outdated, Picture
from muster.firstfit.settings import Settings
from muster.firstfit.solve import solve_group
from muster.firstfit.table import Table
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.errors import RpcError
from muster.rpc.pod_class_codec import decode_amounts
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer
from muster.rpc.subscription import subscribe
from muster.rpc.watch_codec import decode_revision, encode_revision

FULL_NAME: Final = "muster.placement.v1.PlacementService"
_LONGEST_WAIT_SECONDS: Final = 60.0
"""For callers that set no deadline."""
_KEPT_BACK: Final = 0.1
"""Part of the time left that is kept back, so that a refusal arrives before the deadline."""


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; ready while the picture of the cluster is whole and current."""
    channel, follower = open_channel(settings.cluster_state, settings.tls), Follower()
    server = RpcServer.by(settings, "first-fit")
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
    """PlacementService on a picture."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    async def Solve(self, request: pb.SolveRequest, context: aio.ServicerContext[Any, Any]) -> pb.SolveResponse:  # noqa: N802
        check(request)
        left = context.time_remaining()
        seconds = (_LONGEST_WAIT_SECONDS if left is None else left) * (1 - _KEPT_BACK)
        try:
            picture = await self._follower.at(decode_revision(request.min_revision), seconds)
        except Outdated as error:
            code = grpc.StatusCode.FAILED_PRECONDITION if error.known else grpc.StatusCode.UNAVAILABLE
            raise RpcError(code, str(error)) from None
        check_classes(request, picture.classes)
        table, as_it_is = _table(picture, request), not request.potential_victims
        return pb.SolveResponse(
            results=[solve_group(table, picture.classes, group, as_it_is=as_it_is) for group in request.groups],
            revision=encode_revision(picture.revision),
        )

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:  # noqa: N802
        answer = pb.DescribeResponse(implementation="first-fit", version=version("muster"))
        picture = self._follower.picture
        if picture is not None:
            answer.revision.CopyFrom(encode_revision(picture.revision))
            answer.nodes, answer.pods = len(picture.nodes), len(picture.pods)
        return answer


def _table(picture: Picture, request: pb.SolveRequest) -> Table:
    """What is free by the picture, less what is reserved and not seen yet, and what is kept for others."""
    table = Table(picture)
    for held in request.reservations:
        unseen = sum(uid not in picture.pods for uid in held.pod_uids)
        table.put(picture.classes[held.class_id], held.node, unseen)
    for kept in request.nominated:
        table.use(kept.node, decode_amounts(kept.amounts))
    return table
