"""The mirror while cluster-state disconnects, reconnects and restarts its snapshot."""

import asyncio

import grpc
from grpc_health.v1 import health_pb2

from builders.clusterstate.stream import ClusterStream
from builders.placement.clusters import node, pod_class
from builders.placement.service import Placement, asks, bound, running, snapshot, where
from muster.gangs.facts import Batch
from muster.placement.service import FULL_NAME
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.watch_codec import batch_step, snapshot_begin_step, synced_step


async def test_not_ready_before_the_first_snapshot(stream: ClusterStream) -> None:
    stream.opening = [snapshot_begin_step("subscribed"), batch_step(snapshot("a"))]
    async with running(stream) as service:
        await stream.until_subscribed()
        status = await service.health.Check(health_pb2.HealthCheckRequest(service=FULL_NAME), timeout=30)
        assert status.status == health_pb2.HealthCheckResponse.NOT_SERVING
        code, _ = await service.refused(asks(("x", 1)), seconds=5)
        assert code is grpc.StatusCode.UNAVAILABLE
        described = await service.stub.Describe(pb.DescribeRequest(), timeout=30)
        assert not described.HasField("revision")
        stream.send(synced_step({"pods": 1}))
        await service.until_ready()
        assert where((await service.solve(asks(("x", 4)))).results[0]) == {"a": 4}


async def test_a_solve_never_uses_an_incomplete_snapshot(placement: Placement, stream: ClusterStream) -> None:
    stream.send(snapshot_begin_step("fell behind"), batch_step(Batch(nodes=(node("new", 100),), through={"pods": 50})))
    waiting = asyncio.create_task(placement.solve(asks(("x", 1)), pods=50))
    # the complete snapshot stays in use while its successor is received
    assert where((await placement.solve(asks(("x", 8)))).results[0]) == {"a": 4, "b": 4}
    assert not waiting.done()
    stream.send(synced_step({"pods": 51}))
    assert where((await waiting).results[0]) == {"new": 1}
    described = await placement.stub.Describe(pb.DescribeRequest(), timeout=30)
    assert (described.implementation, described.nodes, described.revision.kinds["pods"]) == ("best-fit", 1, 51)


async def test_classes_survive_a_restarted_snapshot(placement: Placement, stream: ClusterStream) -> None:
    stream.send(snapshot_begin_step("subscribed"), batch_step(Batch(pod_classes=(pod_class("late", 2),))))
    stream.send(
        snapshot_begin_step("subscribed"),
        batch_step(Batch(nodes=(node("a", 4),), pods=(bound("p", "a", "late"),))),
        synced_step({"pods": 80}),
    )
    assert where((await placement.solve(asks(("x", 2)), pods=80)).results[0]) == {"a": 2}


async def test_no_solves_while_cluster_state_is_disconnected(placement: Placement, stream: ClusterStream) -> None:
    stream.opening = []
    stream.cut()
    await placement.until(health_pb2.HealthCheckResponse.NOT_SERVING)
    code, message = await placement.refused(asks(("x", 1)), seconds=5)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "cut by the test" in message
    await stream.until_subscribed(2)
    stream.send(snapshot_begin_step("subscribed"), batch_step(snapshot("c")), synced_step({"pods": 60}))
    assert where((await placement.solve(asks(("x", 2)), pods=60)).results[0]) == {"c": 2}
    await placement.until_ready()


async def test_a_pod_of_an_unknown_class_triggers_a_new_snapshot(placement: Placement, stream: ClusterStream) -> None:
    stream.opens_with(snapshot("c"), {"pods": 70})
    stream.send(batch_step(Batch(pods=(bound("p", "a", "never sent"),), through={"pods": 61})))
    await stream.until_subscribed(2)
    assert where((await placement.solve(asks(("x", 2)), pods=70)).results[0]) == {"c": 2}
