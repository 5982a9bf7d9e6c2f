"""Failures of the API server and etcd: gangs start nevertheless, or wait and report it."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from builders.e2e.faults import BINDS, EVERYTHING, Requests
from builders.e2e.world import World
from builders.gangs.manifests import gang
from builders.wait import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def becomes(world: World, service: str, *, ready: bool) -> None:
    """Wait until the health service reports this status."""
    wanted = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
    async with (
        asyncio.timeout(WAIT_SECONDS),
        grpc.aio.insecure_channel(world.cluster.stack.addresses[service]) as channel,
    ):
        async for answer in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()):
            if answer.status == wanted:
                return


async def test_nothing_is_permitted_without_etcd_and_scheduling_resumes_i2(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4)
    await world.cluster.stack.kill("etcd")
    await becomes(world, "coordinator", ready=False)
    await world.create(a)
    await world.cluster.stack.children["etcd"].start()
    await becomes(world, "coordinator", ready=True)
    await world.bound(a)


async def test_too_many_requests_responses_are_waited_out(world: World) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(8)
    with world.cluster.faults.refuse(BINDS, 429, times=6, headers={"Retry-After": "1"}):
        await world.create(a)
        await world.bound(a)


async def test_g37_binds_that_fail_with_500_are_retried_i6(world: World) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(8)
    with world.cluster.faults.refuse(BINDS, 500, times=5):
        await world.create(a)
        await world.bound(a)


async def test_g37_a_pod_whose_bind_fails_for_good_is_placed_again_i6_i10(world: World) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(8)
    with world.cluster.faults.refuse(Requests("POST", "/a-3/binding"), 500):
        await world.create(a)
        await world.bound(a, count=7)
        seats = world.bound_pods(a)
        assert "a-3" not in seats
        await world.event(a, "is retried", "made to fail")
        await world.event(a, "is placed again", "made to fail")
        assert world.bound_pods(a) == seats
    await world.bound(a)
    assert {pod: node for pod, node in world.bound_pods(a).items() if pod != "a-3"} == seats
    await world.satisfied(a)


async def test_connections_broken_before_the_bind_are_reopened(world: World) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(8)
    with world.cluster.faults.cut(BINDS, times=5):
        await world.create(a)
        await world.bound(a)


async def test_broken_watches_lose_no_change(world: World) -> None:
    await world.nodes(4)
    for number in range(4):
        world.cluster.faults.break_watches()
        a = gang(f"g{number}").of(1)
        await world.create(a)
        await world.bound(a)


async def test_scheduling_resumes_after_an_api_server_outage(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4)
    with world.cluster.faults.cut(EVERYTHING) as fault:
        world.cluster.faults.break_watches()
        await world.create(a)
        await fault.struck(3)
        assert world.bound_pods(a) == {}
    await world.bound(a)
