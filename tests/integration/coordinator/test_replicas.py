"""Several placement replicas behind the coordinator's client: in turn, one call at a time each, none required."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from msgspec.structs import replace

from builders.core.replicas import Coordination, placements
from builders.gangs.facts import gang
from builders.net.certificates import Authority
from builders.wait import WAIT_SECONDS, yield_to_loop
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.replicas import Endpoint, Replicas
from muster.coordinator.solver import Solver
from muster.gangs.facts import PODS, Batch, NodeFacts, PodClass
from muster.gangs.solve import Role, SolveGang, SolveGroup
from muster.localcluster.ports import free_port
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.errors import RpcError
from muster.rpc.server import RpcServer

QUESTION = Solve(7, {}, (), (SolveGroup("g", (SolveGang("g", 1, (Role("x", 1),)),)),))
FULL_NAME = "muster.placement.v1.PlacementService"


class Replica(pb_grpc.PlacementServiceServicer):
    """A placement that answers on release."""

    def __init__(self) -> None:
        self.asked = self.under_way = self.most_under_way = 0
        self.open = asyncio.Event()
        self.open.set()
        self.error: grpc.StatusCode | None = None
        self._came = asyncio.Event()

    async def Solve(self, request: pb.SolveRequest, context: Any) -> pb.SolveResponse:  # noqa: N802
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        self._came.set()
        try:
            await self.open.wait()
            if self.error is not None:
                raise RpcError(self.error, "as the test wants it")
        finally:
            self.under_way -= 1
        return pb.SolveResponse(results=[pb.GroupResult(id="g", outcome=pb.GroupResult.OUTCOME_NOT_FOUND)])

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:  # noqa: N802
        return pb.DescribeResponse()

    async def until_asked(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self._came.wait()


@asynccontextmanager
async def serving(*servicers: Replica) -> AsyncIterator[list[str]]:
    """Serve placements; yields their addresses."""
    async with AsyncExitStack() as stack:
        addresses = []
        for servicer in servicers:
            server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "replica")
            server.add(pb_grpc.add_PlacementServiceServicer_to_server, servicer, FULL_NAME)
            addresses.append(f"127.0.0.1:{await server.start()}")
            stack.push_async_callback(server.stop, grace_seconds=0)
        yield addresses


@asynccontextmanager
async def solver(addresses: list[str], timeout_seconds: float = 30) -> AsyncIterator[Solver]:
    replicas = Replicas.at(",".join(addresses))
    try:
        yield Solver(replicas, timeout_seconds)
    finally:
        await replicas.close()


async def test_replicas_are_called_in_turn() -> None:
    one, two, three = Replica(), Replica(), Replica()
    async with serving(one, two, three) as addresses, solver(addresses) as client:
        for _ in range(6):
            assert isinstance(await client.solve(QUESTION, {}), Solved)
    assert (one.asked, two.asked, three.asked) == (2, 2, 2)


async def test_replicas_run_concurrently_with_one_call_each() -> None:
    one, two = Replica(), Replica()
    one.open.clear()
    two.open.clear()
    async with serving(one, two) as addresses, solver(addresses) as client, asyncio.TaskGroup() as tasks:
        for number in range(6):
            tasks.create_task(client.solve(replace(QUESTION, solve_id=number), {}))
        await one.until_asked()
        await two.until_asked()
        one.open.set()
        two.open.set()
    assert (one.most_under_way, two.most_under_way) == (1, 1)
    assert one.asked + two.asked == 6


async def test_a_slow_replica_does_not_block_others() -> None:
    slow, quick = Replica(), Replica()
    slow.open.clear()
    async with serving(slow, quick) as addresses, solver(addresses) as client:
        waiting = asyncio.create_task(client.solve(QUESTION, {}))
        await slow.until_asked()
        for _ in range(3):
            assert isinstance(await client.solve(QUESTION, {}), Solved)
        assert not waiting.done()
        slow.open.set()
        assert isinstance(await waiting, Solved)
    assert (slow.asked, quick.asked) == (1, 3)


async def test_a_replica_that_timed_out_is_called_last() -> None:
    silent, quick = Replica(), Replica()
    silent.open.clear()
    async with serving(silent, quick) as addresses, solver(addresses, timeout_seconds=0.3) as client:
        answers = [await client.solve(QUESTION, {}) for _ in range(5)]
    assert [isinstance(answer, Solved) for answer in answers] == [False, True, True, True, True]
    assert (silent.asked, quick.asked) == (1, 4)


async def test_an_unavailable_replica_costs_no_response() -> None:
    there = Replica()
    async with serving(there) as addresses, solver([f"127.0.0.1:{free_port()}", *addresses]) as client:
        for _ in range(4):
            assert isinstance(await client.solve(QUESTION, {}), Solved)
    assert there.asked == 4


async def test_without_replicas_the_solve_fails() -> None:
    async with solver([f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]) as client:
        answer = await client.solve(QUESTION, {})
    assert isinstance(answer, SolveFailed)
    assert answer.message.startswith("it could not be reached")
    assert not answer.refused


@pytest.mark.parametrize(
    ("code", "refused"), [(grpc.StatusCode.INVALID_ARGUMENT, True), (grpc.StatusCode.FAILED_PRECONDITION, False)]
)
async def test_a_deterministic_error_is_not_retried_elsewhere(code: grpc.StatusCode, refused: bool) -> None:
    one, two = Replica(), Replica()
    one.error = two.error = code
    async with serving(one, two) as addresses, solver(addresses) as client:
        answer = await client.solve(QUESTION, {})
    assert isinstance(answer, SolveFailed)
    assert answer.refused is refused
    assert (one.asked, two.asked) == (1, 0)


async def test_a_name_counts_one_replica_per_address() -> None:
    replicas = Replicas.at("dns:///localhost:7003,127.0.0.1:7003")
    counts: asyncio.Queue[int] = asyncio.Queue()
    following = asyncio.create_task(replicas.watch_count(counts.put_nowait))
    try:
        assert replicas.count == 2
        assert await counts.get() == 2
        assert replicas.endpoints == 2
    finally:
        following.cancel()
        await replicas.close()


async def test_all_replicas_behind_a_name_are_called() -> None:
    channel = aio.insecure_channel("127.0.0.1:1")
    endpoint = Endpoint("dns:///placement:7003", channel)
    endpoint.replicas = 2
    replicas = Replicas([endpoint])
    async with replicas.acquire(), replicas.acquire():
        third = asyncio.create_task(replicas.acquire().__aenter__())
        await yield_to_loop()
        assert not third.done()
    async with asyncio.timeout(WAIT_SECONDS):
        assert await third is endpoint
    await channel.close()


def two_pools(gangs: int) -> Batch:
    """Two nodes of 64 for each of two pools, and gangs of 4 that alternate between the pools."""
    classes = [PodClass(pool, (("cpu", 1000), (PODS, 1)), node_selector=(("pool", pool),)) for pool in ("x", "y")]
    nodes = [
        NodeFacts(f"{pool}{i}", allocatable=(("cpu", 64_000), (PODS, 110)), labels={"pool": pool})
        for pool in "xy"
        for i in range(2)
    ]
    built = [gang(f"g{number}").of(4).created(number) for number in range(gangs)]
    pods = [replace(pod, class_id="xy"[at % 2]) for at, each in enumerate(built) for pod in each.pods()]
    return Batch(
        pod_classes=tuple(classes),
        nodes=tuple(nodes),
        pods=tuple(pods),
        gangs=tuple(each.gang_facts() for each in built),
    )


@pytest.mark.parametrize("pools", ["apart", "same"])
async def test_i3_two_real_replicas_start_all_gangs_without_overcommit(pools: str, tmp_path: Path) -> None:
    """The gangs fill the cluster exactly; with separate pools both replicas are used."""
    batch = two_pools(64)
    if pools == "same":
        anywhere = PodClass("any", batch.pod_classes[0].requests)
        batch = replace(batch, pod_classes=(anywhere,), pods=tuple(replace(pod, class_id="any") for pod in batch.pods))
    async with placements(batch, 2, tmp_path) as addresses:
        coordination = Coordination(batch, addresses)
        await coordination.run()
    seats = [seat for record in coordination.permits for seat in record.seats]
    assert len(seats) == len({seat.uid for seat in seats}) == 256
    assert Counter(seat.node for seat in seats) == {node.name: 64 for node in batch.nodes}
    if pools == "apart":
        assert coordination.most_at_once == 2
        assert min(coordination.calls[address] for address in addresses) >= 1


async def test_the_server_name_may_differ_from_the_address(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = RpcServer("127.0.0.1:0", authority.issue("replica", "placement.example.com"), "replica")
    server.add(pb_grpc.add_PlacementServiceServicer_to_server, Replica(), FULL_NAME)
    address = f"127.0.0.1:{await server.start()}"
    mine = authority.issue("coordinator")
    try:
        for name, expected in (("placement.example.com", Solved), ("another.example.com", SolveFailed)):
            replicas = Replicas.at(address, mine, name)
            try:
                assert isinstance(await Solver(replicas, 10).solve(QUESTION, {}), expected)
            finally:
                await replicas.close()
    finally:
        await server.stop(grace_seconds=0)
