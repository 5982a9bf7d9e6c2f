"""Solves run beside the event loop: health checks are answered meanwhile, and a caller that gives up frees the lock.

The clock that solves read waits until the test opens it, so that a solve is under way as long as the test needs.
"""

import asyncio
import threading
import time

import pytest
from grpc_health.v1 import health_pb2

from builders.clusterstate.stream import ClusterStream
from builders.placement.clusters import node
from builders.placement.service import PLACED, Placement, asks, running, snapshot
from builders.wait import eventually
from muster.gangs.facts import Batch
from muster.placement.service import FULL_NAME
from muster.placement.state.mirror import Worker
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.watch_codec import batch_step

NOT_FOUND = pb.GroupResult.OUTCOME_NOT_FOUND


class Gate:
    """A clock that can be stopped: whoever reads it then waits."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Event()

    def __call__(self) -> float:
        if not self._open.is_set():
            self.waiting.set()
            assert self._open.wait(30)
        return time.monotonic()

    def close(self) -> None:
        self.waiting.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()


async def until_waiting(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.waiting.wait, 30)


@pytest.fixture
def stream() -> ClusterStream:
    stream = ClusterStream()
    stream.opens_with(snapshot("a", "b"), {"pods": 10, "nodes": 5})
    return stream


async def health(placement: Placement) -> int:
    response = await placement.health.Check(health_pb2.HealthCheckRequest(service=FULL_NAME), timeout=30)
    return int(response.status)


async def test_health_checks_are_answered_while_a_solve_is_under_way(stream: ClusterStream) -> None:
    gate = Gate()
    async with running(stream, clock=gate) as placement:
        await placement.until_ready()
        gate.close()
        try:
            solving = asyncio.create_task(placement.solve(asks(("x", 6))))
            await until_waiting(gate)
            assert await health(placement) == health_pb2.HealthCheckResponse.SERVING
            assert (await placement.stub.Describe(pb.DescribeRequest(), timeout=30)).nodes == 2
            stream.send(batch_step(Batch(nodes=(node("c", 4),), through={"nodes": 6})))
            assert not solving.done()
        finally:
            gate.open()
        [result] = (await solving).results
        assert result.outcome == PLACED
        await eventually(lambda: placement.mirror.cluster is not None and len(placement.mirror.cluster.nodes) == 3)
        [more] = (await placement.solve(asks(("x", 12)))).results
        assert more.outcome == PLACED


async def test_a_caller_that_gives_up_ends_its_solve_and_frees_the_lock(stream: ClusterStream) -> None:
    gate = Gate()
    async with running(stream, clock=gate) as placement:
        await placement.until_ready()
        gate.close()
        try:
            given_up = asyncio.create_task(placement.solve(asks(("x", 6))))
            await until_waiting(gate)
            given_up.cancel()
            await asyncio.wait((given_up,))
            next_one = asyncio.create_task(placement.solve(asks(("x", 8), name="next")))
        finally:
            gate.open()
        [result] = (await next_one).results
        assert result.outcome == PLACED


async def test_groups_that_exceed_their_time_are_not_found_and_others_are_placed(stream: ClusterStream) -> None:
    async with running(stream, seconds_per_group=0) as placement:
        await placement.until_ready()
        [result] = (await placement.solve(asks(("x", 1), ("y", 1)))).results
        assert (result.outcome, result.out_of_time) == (NOT_FOUND, True)
        assert result.explanation.summary == "no placement was found within 0 s"


async def test_a_large_batch_is_applied_in_the_worker_thread(stream: ClusterStream) -> None:
    gate = Gate()
    async with running(stream) as placement:
        await placement.until_ready()
        gate.close()
        try:
            occupied = asyncio.create_task(placement.mirror.worker.run(gate))
            await until_waiting(gate)
            nodes = tuple(node(f"node-{number}") for number in range(300))
            stream.send(batch_step(Batch(nodes=nodes, through={"nodes": 6})))
            await eventually(placement.mirror.lock.locked)
            assert await health(placement) == health_pb2.HealthCheckResponse.SERVING
            assert (await placement.stub.Describe(pb.DescribeRequest(), timeout=30)).nodes == 2
        finally:
            gate.open()
        await occupied
        await eventually(lambda: placement.mirror.cluster is not None and len(placement.mirror.cluster.nodes) == 302)


async def test_a_cancelled_caller_waits_until_its_work_has_ended() -> None:
    worker, gate, ended = Worker(), Gate(), []
    gate.close()

    def work() -> None:
        gate()
        ended.append(True)

    task = asyncio.create_task(worker.run(work, gate.open))
    await until_waiting(gate)
    task.cancel()
    await eventually(task.done)
    assert task.cancelled()
    assert ended
