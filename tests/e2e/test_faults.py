"""The API server and etcd fail in every way that they do; gangs start all the same, or wait and say so."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from builders.e2e.faults import BINDS, EVERYTHING, Requests
from builders.e2e.world import Scene
from builders.gangs.workloads import gang

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def becomes(scene: Scene, service: str, *, ready: bool) -> None:
    """Wait until the health service says so: it can be watched."""
    wanted = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
    async with (
        asyncio.timeout(30),
        grpc.aio.insecure_channel(scene.cluster.stack.addresses[service]) as channel,
    ):
        async for answer in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()):
            if answer.status == wanted:
                return


async def test_etcd_down_nothing_is_permitted_and_all_goes_on_by_itself_i2(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4)
    await scene.cluster.stack.kill("etcd")
    await becomes(scene, "coordinator", ready=False)
    await scene.create(a)
    await scene.cluster.stack.children["etcd"].start()
    await becomes(scene, "coordinator", ready=True)
    await scene.bound(a)


async def test_too_many_requests_are_waited_out(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(8)
    with scene.cluster.faults.refuse(BINDS, 429, times=6, headers={"Retry-After": "1"}):
        await scene.create(a)
        await scene.bound(a)


async def test_g37_binds_that_fail_with_500_are_tried_again_i6(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(8)
    with scene.cluster.faults.refuse(BINDS, 500, times=5):
        await scene.create(a)
        await scene.bound(a)


async def test_g37_a_pod_whose_bind_fails_for_good_is_placed_again_and_the_others_stay_i6_i10(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(8)
    with scene.cluster.faults.refuse(Requests("POST", "/a-3/binding"), 500):
        await scene.create(a)
        await scene.bound(a, count=7)
        seats = scene.bound_pods(a)
        assert "a-3" not in seats
        await scene.event(a, "is tried again", "made to fail")
        await scene.event(a, "is placed again", "made to fail")
        assert scene.bound_pods(a) == seats
    await scene.bound(a)
    assert {pod: node for pod, node in scene.bound_pods(a).items() if pod != "a-3"} == seats
    await scene.satisfied(a)


async def test_connections_that_break_before_the_bind_are_made_anew(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(8)
    with scene.cluster.faults.cut(BINDS, times=5):
        await scene.create(a)
        await scene.bound(a)


async def test_watches_that_break_lose_nothing(scene: Scene) -> None:
    await scene.nodes(4)
    for number in range(4):
        scene.cluster.faults.break_watches()
        a = gang(f"g{number}").of(1)
        await scene.create(a)
        await scene.bound(a)


async def test_an_api_server_that_is_away_for_a_while_is_found_again(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4)
    with scene.cluster.faults.cut(EVERYTHING) as fault:
        scene.cluster.faults.break_watches()
        await scene.create(a)
        await fault.struck(3)
        assert scene.bound_pods(a) == {}
    await scene.bound(a)
