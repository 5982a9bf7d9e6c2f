"""A placement service over gRPC, fed by a cluster-state stream under the test's control."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from builders.clusterstate.stream import ClusterStream, serving
from builders.placement.clusters import node, pod_class
from builders.wait import WAIT_SECONDS
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.config.settings import PLAIN_TEXT
from muster.gangs.facts import Batch, PodFacts, PodPhase
from muster.placement.service import FULL_NAME, PlacementServicer
from muster.placement.state.mirror import Mirror
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer
from muster.rpc.subscription import subscribe

PLACED, INFEASIBLE = pb.GroupResult.OUTCOME_PLACED, pb.GroupResult.OUTCOME_INFEASIBLE
PARTIAL = pb.GroupResult.OUTCOME_PARTIAL


def snapshot(*nodes: str, cpu: int = 4) -> Batch:
    return Batch(pod_classes=(pod_class("x"), pod_class("y", 2)), nodes=tuple(node(name, cpu) for name in nodes))


def bound(uid: str, on: str, class_id: str = "x", phase: PodPhase = PodPhase.RUNNING) -> PodFacts:
    return PodFacts(uid, "default", uid, class_id, node=on, phase=phase)


def asks(*roles: tuple[str, int], name: str = "g", minimum: int | None = None, partial: bool = False) -> pb.GangGroup:
    wanted = sum(count for _, count in roles)
    return pb.GangGroup(
        id=name,
        partial=partial,
        gangs=[
            pb.Gang(
                id=name,
                minimum=wanted if minimum is None else minimum,
                roles=[pb.Role(class_id=class_id, wanted=count) for class_id, count in roles],
            )
        ],
    )


def nominated(on: str, **amounts: int) -> pb.NominatedCapacity:
    return pb.NominatedCapacity(
        node=on, amounts=[state_pb.ResourceAmount(name=name, amount=amount) for name, amount in amounts.items()]
    )


def potential_victim(name: str, *pods: tuple[str, str, int], level: int = 0, spare: int = 0) -> pb.PotentialVictim:
    """Pods as (node, class id, count)."""
    listed = [pb.PodsOnNode(node=on, class_id=class_id, count=count) for on, class_id, count in pods]
    return pb.PotentialVictim(id=name, level=level, spare=spare, pods=listed)


@dataclass
class Placement:
    """The service and a client for it."""

    channel: aio.Channel
    stub: "pb_grpc.PlacementServiceAsyncStub"
    health: health_pb2_grpc.HealthStub
    mirror: Mirror = field(default_factory=Mirror)
    """Mirror of the service, if it runs in the test itself."""

    async def solve(
        self, *groups: pb.GangGroup, pods: int = 0, held: tuple[pb.Reservation, ...] = (), seconds: float = 30
    ) -> pb.SolveResponse:
        revision = state_pb.Revision(kinds={"pods": pods} if pods else {})
        request = pb.SolveRequest(min_revision=revision, reservations=held, groups=groups)
        return await self.stub.Solve(request, timeout=seconds)

    async def refused(self, *groups: pb.GangGroup, pods: int = 0, seconds: float = 30) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(aio.AioRpcError) as caught:
            await self.solve(*groups, pods=pods, seconds=seconds)
        return caught.value.code(), caught.value.details() or ""

    async def answer(self, request: pb.SolveRequest) -> pb.GroupResult:
        [result] = (await self.stub.Solve(request, timeout=30)).results
        return result

    async def refusal(self, request: pb.SolveRequest) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(aio.AioRpcError) as caught:
            await self.stub.Solve(request, timeout=30)
        return caught.value.code(), caught.value.details() or ""

    async def until(self, status: "health_pb2.HealthCheckResponse.ServingStatus.ValueType") -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            async for response in self.health.Watch(health_pb2.HealthCheckRequest(service=FULL_NAME)):
                if response.status == status:
                    return

    async def until_ready(self) -> None:
        await self.until(health_pb2.HealthCheckResponse.SERVING)


@asynccontextmanager
async def running(
    stream: ClusterStream, seconds_per_group: float = math.inf, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Placement]:
    async with serving(stream) as address:
        channel, mirror = open_channel(address, PLAIN_TEXT), Mirror()
        servicer = PlacementServicer(mirror, seconds_per_group, clock)
        server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "placement")
        server.add(pb_grpc.add_PlacementServiceServicer_to_server, servicer, FULL_NAME)
        port = await server.start()
        following = asyncio.create_task(mirror.follow(lambda: subscribe(channel, "placement/test"), server.set_ready))
        client = open_channel(f"127.0.0.1:{port}", PLAIN_TEXT)
        try:
            yield Placement(client, pb_grpc.PlacementServiceStub(client), health_pb2_grpc.HealthStub(client), mirror)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()
            await server.stop(grace_seconds=0)
            await channel.close()


def where(result: pb.GroupResult) -> dict[str, int]:
    return {assignment.node: assignment.count for assignment in result.assignments}
