"""placement as its callers see it: real gRPC on both sides, fed by a cluster-state that says what a test tells it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec import structs

from builders.cluster_stream import ClusterStream, begin, part, serving, synced
from builders.placement import node, pod_class
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.core.events import Solve, Solved, SolveFailed, SolveOutcome
from muster.coordinator.replicas import Place, Replicas
from muster.coordinator.solver import Solver
from muster.gangs import placing as values
from muster.gangs.facts import Batch, PodFacts, PodPhase
from muster.gangs.placing import GangToPlace, GroupToPlace, Role
from muster.localcluster.ports import free_port
from muster.placement.mirror import Mirror
from muster.placement.service import FULL_NAME, PlacementServicer, run
from muster.placement.settings import Settings
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer
from muster.rpc.subscription import subscribe

PLACED, INFEASIBLE = pb.GroupResult.OUTCOME_PLACED, pb.GroupResult.OUTCOME_INFEASIBLE
PARTLY = pb.GroupResult.OUTCOME_PARTLY


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


def withheld(on: str, **amounts: int) -> pb.Withheld:
    return pb.Withheld(
        node=on, amounts=[state_pb.ResourceAmount(name=name, amount=amount) for name, amount in amounts.items()]
    )


def removable(name: str, *pods: tuple[str, str, int], level: int = 0, spare: int = 0) -> pb.Removable:
    """Pods as (node, class id, count)."""
    listed = [pb.PodsOnNode(node=on, class_id=class_id, count=count) for on, class_id, count in pods]
    return pb.Removable(id=name, level=level, spare=spare, pods=listed)


@dataclass
class Placement:
    """The service and how to talk to it."""

    channel: aio.Channel
    stub: "pb_grpc.PlacementServiceAsyncStub"
    health: health_pb2_grpc.HealthStub

    async def solve(
        self, *groups: pb.GangGroup, pods: int = 0, held: tuple[pb.Reservation, ...] = (), seconds: float = 10
    ) -> pb.SolveResponse:
        revision = state_pb.Revision(kinds={"pods": pods} if pods else {})
        request = pb.SolveRequest(min_revision=revision, reservations=held, groups=groups)
        return await self.stub.Solve(request, timeout=seconds)

    async def refused(self, *groups: pb.GangGroup, pods: int = 0, seconds: float = 10) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(aio.AioRpcError) as caught:
            await self.solve(*groups, pods=pods, seconds=seconds)
        return caught.value.code(), caught.value.details() or ""

    async def answer(self, request: pb.SolveRequest) -> pb.GroupResult:
        [result] = (await self.stub.Solve(request, timeout=10)).results
        return result

    async def refusal(self, request: pb.SolveRequest) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(aio.AioRpcError) as caught:
            await self.stub.Solve(request, timeout=10)
        return caught.value.code(), caught.value.details() or ""

    async def until(self, status: "health_pb2.HealthCheckResponse.ServingStatus.ValueType") -> None:
        async with asyncio.timeout(10):
            async for told in self.health.Watch(health_pb2.HealthCheckRequest(service=FULL_NAME)):
                if told.status == status:
                    return

    async def until_ready(self) -> None:
        await self.until(health_pb2.HealthCheckResponse.SERVING)


@asynccontextmanager
async def running(stream: ClusterStream) -> AsyncIterator[Placement]:
    async with serving(stream) as address:
        channel, mirror = open_channel(address, PLAIN_TEXT), Mirror()
        server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "placement")
        server.add(pb_grpc.add_PlacementServiceServicer_to_server, PlacementServicer(mirror), FULL_NAME)
        port = await server.start()
        following = asyncio.create_task(mirror.follow(lambda: subscribe(channel, "placement/test"), server.set_ready))
        client = open_channel(f"127.0.0.1:{port}", PLAIN_TEXT)
        try:
            yield Placement(client, pb_grpc.PlacementServiceStub(client), health_pb2_grpc.HealthStub(client))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()
            await server.stop(grace_seconds=0)
            await channel.close()


@pytest.fixture
def stream() -> ClusterStream:
    return ClusterStream()


@pytest.fixture
async def placement(stream: ClusterStream) -> AsyncIterator[Placement]:
    """Two nodes of 4 cpu, at pods revision 10."""
    stream.opens_with(snapshot("a", "b"), {"pods": 10, "nodes": 5})
    async with running(stream) as service:
        await service.until_ready()
        yield service


def where(result: pb.GroupResult) -> dict[str, int]:
    return {run.node: run.count for run in result.runs}


async def test_a_batch_is_answered_in_order_with_runs_and_explanations(placement: Placement) -> None:
    groups = asks(("x", 6), name="fits"), asks(("x", 3), name="not"), asks(("y", 1), name="last")
    response = await placement.solve(*groups)
    assert [result.id for result in response.results] == ["fits", "not", "last"]
    assert [result.outcome for result in response.results] == [PLACED, INFEASIBLE, PLACED]
    assert where(response.results[0]) == {"a": 4, "b": 2}
    explanation = response.results[1].explanation
    assert (explanation.fit, explanation.needed, explanation.class_id) == (2, 3, "x")
    assert explanation.summary.startswith("2 of 3 members fit; short of 1 cpu for the next; 0/2 nodes are available")
    assert [(lost.reason, lost.nodes) for lost in explanation.nodes_lost] == [("Insufficient cpu", 2)]
    assert [(short.name, short.amount) for short in explanation.short_by] == [("cpu", 1000)]
    assert dict(response.revision.kinds) == {"pods": 10, "nodes": 5}


async def test_a_solve_keeps_nothing(placement: Placement) -> None:
    first = await placement.solve(asks(("x", 8)))
    again = await placement.solve(asks(("x", 8)))
    assert first == again


async def test_deltas_change_what_is_free(placement: Placement, stream: ClusterStream) -> None:
    stream.send(part(Batch(pods=(bound("p", "a", "y"), bound("q", "b", "y")), through={"pods": 11})))
    assert where((await placement.solve(asks(("x", 4)), pods=11)).results[0]) == {"a": 2, "b": 2}
    ended = bound("p", "a", "y", PodPhase.SUCCEEDED)
    stream.send(part(Batch(pods=(ended,), removed_pods=("q",), removed_nodes=("b",), through={"pods": 12})))
    assert where((await placement.solve(asks(("x", 4)), pods=12)).results[0]) == {"a": 4}
    stream.send(part(Batch(nodes=(node("c", 2),), through={"nodes": 6, "pods": 13})))
    assert where((await placement.solve(asks(("x", 6)), pods=13)).results[0]) == {"a": 4, "c": 2}
    stream.send(part(Batch(nodes=(node("c", 2, unschedulable=True),), through={"nodes": 7, "pods": 14})))
    [refused] = (await placement.solve(asks(("x", 6)), pods=14)).results
    assert ("node(s) were unschedulable", 1) in [(lost.reason, lost.nodes) for lost in refused.explanation.nodes_lost]


async def test_p32_reservations_count_until_their_pods_are_seen_and_then_no_more(
    placement: Placement, stream: ClusterStream
) -> None:
    held = (pb.Reservation(node="a", class_id="y", pod_uids=["p", "q"]),)
    [before] = (await placement.solve(asks(("x", 5)), held=held)).results
    assert before.explanation.fit == 4
    stream.send(part(Batch(pods=(bound("p", "a", "y"),), through={"pods": 11})))
    [half] = (await placement.solve(asks(("x", 5)), held=held, pods=11)).results
    assert half.explanation.fit == 4
    assert (await placement.solve(asks(("x", 8)))).results[0].explanation.fit == 6


async def test_p33_a_solve_waits_for_the_revision_it_asks_for(placement: Placement, stream: ClusterStream) -> None:
    waiting = asyncio.create_task(placement.solve(asks(("x", 8)), pods=12))
    await placement.solve(asks(("x", 8)))
    assert not waiting.done()
    stream.send(part(Batch(pods=(bound("p", "a"),), through={"pods": 12})))
    [result] = (await waiting).results
    assert result.outcome == INFEASIBLE


async def test_p33_a_revision_that_does_not_come_is_refused_before_the_deadline(placement: Placement) -> None:
    code, message = await placement.refused(asks(("x", 1)), pods=99, seconds=5)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert message == "the deadline came before cluster-state told of pods 99 (reached: 10)"


async def test_an_unknown_class_is_a_failed_precondition(placement: Placement) -> None:
    code, message = await placement.refused(asks(("nobody", 1)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "'nobody'" in message


@pytest.mark.parametrize(
    ("groups", "quoted"),
    [
        ([pb.GangGroup(id="empty")], "group 'empty' has no gangs"),
        ([pb.GangGroup(id="g", gangs=[pb.Gang(id="hollow", minimum=1)])], "gang 'hollow' has no members"),
        ([asks(("x", 2), ("x", 0))], "gang 'g': role 1 wants 0 members"),
        ([asks(("x", 2), minimum=3)], "gang 'g': minimum 3 is out of range; it wants 2 members"),
        ([asks(("x", 2), minimum=0)], "gang 'g': minimum 0 is out of range"),
        ([asks(("x", 1)), asks(("x", 1))], "group 'g' is named twice"),
        ([asks(("x", 1), name="")], "a group has an empty id"),
        (
            [pb.GangGroup(id=name, gangs=asks(("x", 1), name="same").gangs) for name in "ab"],
            "gang 'same' is named twice",
        ),
    ],
)
async def test_p36_senseless_requests_are_refused_with_what_is_wrong(
    placement: Placement, groups: list[pb.GangGroup], quoted: str
) -> None:
    code, message = await placement.refused(*groups)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert quoted in message


async def test_a_pod_reserved_twice_is_refused(placement: Placement) -> None:
    held = (
        pb.Reservation(node="a", class_id="x", pod_uids=["p"]),
        pb.Reservation(node="b", class_id="x", pod_uids=["p"]),
    )
    with pytest.raises(aio.AioRpcError, match="reserved pod 'p' is named twice"):
        await placement.solve(asks(("x", 1)), held=held)


# -- in part, with room kept for others, and with others removed


async def test_a_partial_group_is_placed_as_far_as_there_is_room(placement: Placement) -> None:
    groups = asks(("x", 9), name="some", partial=True), asks(("x", 1), name="none", partial=True)
    some, none = (await placement.solve(*groups)).results
    assert some.outcome == PARTLY
    assert where(some) == {"a": 4, "b": 4}
    assert (some.explanation.fit, some.explanation.needed) == (8, 9)
    assert none.outcome == INFEASIBLE


async def test_withheld_room_is_not_given_and_told_of(placement: Placement) -> None:
    kept = [withheld("a", cpu=3000), withheld("b", cpu=4000, **{"no such thing": 7}), withheld("gone", cpu=1)]
    result = await placement.answer(pb.SolveRequest(groups=[asks(("x", 2))], withheld=kept))
    assert result.explanation.fit == 1
    assert result.explanation.summary.endswith("; room is kept for others on 2 nodes")
    again = await placement.answer(pb.SolveRequest(groups=[asks(("x", 8))]))
    assert where(again) == {"a": 4, "b": 4}


async def test_g43_who_has_to_go_is_told(placement: Placement, stream: ClusterStream) -> None:
    pods = tuple(bound(f"{on}{i}", on) for on in "ab" for i in range(4))
    stream.send(part(Batch(pods=pods, through={"pods": 11})))
    revision = state_pb.Revision(kinds={"pods": 11})
    gangs = [
        *(removable(f"loses-one-{i}", ("a", "x", 1), ("gone", "x", 1)) for i in range(2)),
        removable("one", ("a", "x", 2), level=0),
        removable("higher", ("b", "x", 4), level=1, spare=4),
    ]
    request = pb.SolveRequest(min_revision=revision, groups=[asks(("x", 2))], removable=gangs)
    result = await placement.answer(request)
    assert (result.outcome, where(result)) == (PLACED, {"a": 2})
    assert list(result.removed) == [
        pb.Removed(id="one", whole=True, pods=[pb.PodsOnNode(node="a", class_id="x", count=2)])
    ]
    request.groups[0].CopyFrom(asks(("x", 6)))
    more = await placement.answer(request)
    assert [(each.id, each.pods[0].count) for each in more.removed] == [("one", 2), ("higher", 4)]
    request.groups[0].CopyFrom(asks(("x", 9)))
    never = await placement.answer(request)
    assert (never.outcome, len(never.removed)) == (INFEASIBLE, 0)
    assert never.explanation.summary.startswith("even if all that may be removed were gone: 8 of 9 members fit")


async def test_g08_reservations_of_others_may_be_what_has_to_go(placement: Placement) -> None:
    held = [pb.Reservation(node=on, class_id="x", pod_uids=[f"{on}{i}" for i in range(4)]) for on in "ab"]
    gangs = [removable("waiting-a", ("a", "x", 4), spare=4), removable("waiting-b", ("b", "x", 4), level=1, spare=4)]
    request = pb.SolveRequest(groups=[asks(("x", 3))], reservations=held, removable=gangs)
    result = await placement.answer(request)
    assert [(each.id, each.whole, each.pods[0].count) for each in result.removed] == [("waiting-a", False, 3)]


@pytest.mark.parametrize(
    ("request_", "quoted"),
    [
        (pb.SolveRequest(withheld=[withheld("a", cpu=-1)]), "-1 of 'cpu' cannot be withheld on node 'a'"),
        (pb.SolveRequest(withheld=[withheld("a", cpu=2**53 + 1)]), "9007199254740993 of 'cpu' cannot be withheld"),
        (
            pb.SolveRequest(groups=[asks(("x", 1)), asks(("x", 1), name="h")], removable=[removable("r")]),
            "2 groups, but what may be removed may be for one only",
        ),
        (
            pb.SolveRequest(groups=[asks(("x", 1))], removable=[removable("r"), removable("r")]),
            "removable gang 'r' is named twice",
        ),
        (pb.SolveRequest(groups=[asks(("x", 1))], removable=[removable("")]), "a removable gang has an empty id"),
        (
            pb.SolveRequest(groups=[asks(("x", 2), minimum=3, partial=True)], removable=[removable("r")]),
            "gang 'g': minimum 3 is out of range",
        ),
    ],
)
async def test_p36_senseless_room_and_removals_are_refused(
    placement: Placement, request_: pb.SolveRequest, quoted: str
) -> None:
    code, message = await placement.refusal(request_)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert quoted in message


async def test_a_removable_pod_of_an_unknown_class_is_a_failed_precondition(placement: Placement) -> None:
    code, message = await placement.refusal(
        pb.SolveRequest(groups=[asks(("x", 1))], removable=[removable("r", ("a", "nobody", 1))])
    )
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "'nobody'" in message


async def test_the_coordinator_asks_and_understands_all_of_it(placement: Placement, stream: ClusterStream) -> None:
    stream.send(part(Batch(pods=tuple(bound(f"a{i}", "a") for i in range(4)), through={"pods": 11})))
    solver = Solver(Replicas([Place("placement", placement.channel)]), timeout_seconds=10)
    group = GroupToPlace("g", (GangToPlace("g", 6, (Role("x", 6),)),), partial=True)
    kept = (values.Withheld("b", (("cpu", 1000),)),)
    effect = Solve(1, {"pods": 11}, (), (group,), kept)
    partly = await solver.solve(effect, {})
    assert isinstance(partly, Solved)
    assert partly.results[0].outcome is SolveOutcome.PARTLY
    assert partly.results[0].runs == (values.Run("g", 0, "b", 3),)
    assert partly.results[0].explanation is not None
    gangs = (values.Removable("v", 3, 1, (values.PodsOnNode("a", "x", 4),)),)
    whole = await solver.solve(structs.replace(effect, removable=gangs), {})
    assert isinstance(whole, Solved)
    assert whole.results[0].outcome is SolveOutcome.PLACED
    assert whole.results[0].removed == (values.Removed("v", True, (values.PodsOnNode("a", "x", 4),)),)
    refused = await solver.solve(structs.replace(effect, groups=(group, group), removable=gangs), {})
    assert isinstance(refused, SolveFailed)
    assert "INVALID_ARGUMENT" in refused.message


async def test_before_the_first_snapshot_it_is_not_ready_and_refuses(stream: ClusterStream) -> None:
    stream.opening = [begin(), part(snapshot("a"))]
    async with running(stream) as service:
        await stream.until_subscribed()
        status = await service.health.Check(health_pb2.HealthCheckRequest(service=FULL_NAME), timeout=10)
        assert status.status == health_pb2.HealthCheckResponse.NOT_SERVING
        code, _ = await service.refused(asks(("x", 1)), seconds=5)
        assert code is grpc.StatusCode.UNAVAILABLE
        described = await service.stub.Describe(pb.DescribeRequest(), timeout=10)
        assert not described.HasField("revision")
        stream.send(synced({"pods": 1}))
        await service.until_ready()
        assert where((await service.solve(asks(("x", 4)))).results[0]) == {"a": 4}


async def test_a_solve_never_sees_half_a_snapshot(placement: Placement, stream: ClusterStream) -> None:
    stream.send(begin("fell behind"), part(Batch(nodes=(node("new", 100),), through={"pods": 50})))
    waiting = asyncio.create_task(placement.solve(asks(("x", 1)), pods=50))
    # what was complete goes on being used while its successor is built
    assert where((await placement.solve(asks(("x", 8)))).results[0]) == {"a": 4, "b": 4}
    assert not waiting.done()
    stream.send(synced({"pods": 51}))
    assert where((await waiting).results[0]) == {"new": 1}
    described = await placement.stub.Describe(pb.DescribeRequest(), timeout=10)
    assert (described.implementation, described.nodes, described.revision.kinds["pods"]) == ("best-fit", 1, 51)


async def test_a_snapshot_that_starts_over_still_knows_the_classes_sent_before(
    placement: Placement, stream: ClusterStream
) -> None:
    stream.send(begin(), part(Batch(pod_classes=(pod_class("late", 2),))))
    stream.send(begin(), part(Batch(nodes=(node("a", 4),), pods=(bound("p", "a", "late"),))), synced({"pods": 80}))
    assert where((await placement.solve(asks(("x", 2)), pods=80)).results[0]) == {"a": 2}


async def test_what_is_known_is_not_used_while_cluster_state_is_lost(
    placement: Placement, stream: ClusterStream
) -> None:
    stream.opening = []
    stream.cut()
    await placement.until(health_pb2.HealthCheckResponse.NOT_SERVING)
    code, message = await placement.refused(asks(("x", 1)), seconds=5)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "cut by the test" in message
    await stream.until_subscribed(2)
    stream.send(begin(), part(snapshot("c")), synced({"pods": 60}))
    assert where((await placement.solve(asks(("x", 2)), pods=60)).results[0]) == {"c": 2}
    await placement.until_ready()


async def test_a_pod_of_a_class_never_sent_makes_it_ask_for_a_new_snapshot(
    placement: Placement, stream: ClusterStream
) -> None:
    stream.opens_with(snapshot("c"), {"pods": 70})
    stream.send(part(Batch(pods=(bound("p", "a", "never sent"),), through={"pods": 61})))
    await stream.until_subscribed(2)
    assert where((await placement.solve(asks(("x", 2)), pods=70)).results[0]) == {"c": 2}


async def test_solves_at_the_same_time_do_not_see_each_other(placement: Placement) -> None:
    responses = await asyncio.gather(*(placement.solve(asks(("x", 5)), asks(("y", 1), name="h")) for _ in range(8)))
    assert all(response == responses[0] for response in responses)
    assert responses[0].results[1].outcome == PLACED


class SlowCompiler:
    """In place of a kernel: takes until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def make_ready(self) -> bool:
        self.begun.set()
        return self.let_go.wait(30)


async def test_it_is_alive_but_not_ready_while_kernels_are_compiled(
    stream: ClusterStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = SlowCompiler()
    monkeypatch.setattr("muster.placement.service.KERNELS", (compiler,))
    stream.opens_with(snapshot("a"), {"pods": 1})
    async with serving(stream) as address:
        listen = f"127.0.0.1:{free_port()}"
        service = asyncio.create_task(run(Settings(listen=listen, cluster_state=address, instance="test-0")))
        channel = open_channel(listen, PLAIN_TEXT)
        try:
            placement = Placement(channel, pb_grpc.PlacementServiceStub(channel), health_pb2_grpc.HealthStub(channel))
            assert await asyncio.to_thread(compiler.begun.wait, 10)
            asked = health_pb2.HealthCheckRequest(service=FULL_NAME)
            status = await placement.health.Check(asked, timeout=10, wait_for_ready=True)
            assert status.status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert stream.subscribers == []
            compiler.let_go.set()
            await placement.until_ready()
            assert where((await placement.solve(asks(("x", 4)))).results[0]) == {"a": 4}
        finally:
            compiler.let_go.set()
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)
            await channel.close()


async def test_the_service_serves_until_it_is_stopped(stream: ClusterStream) -> None:
    stream.opens_with(snapshot("a"), {"pods": 1})
    async with serving(stream) as address:
        listen = f"127.0.0.1:{free_port()}"
        service = asyncio.create_task(run(Settings(listen=listen, cluster_state=address, instance="test-0")))
        channel = open_channel(listen, PLAIN_TEXT)
        try:
            stub: pb_grpc.PlacementServiceAsyncStub = pb_grpc.PlacementServiceStub(channel)
            response = await stub.Solve(pb.SolveRequest(groups=[asks(("x", 4))]), timeout=10, wait_for_ready=True)
            assert where(response.results[0]) == {"a": 4}
            assert stream.subscribers == ["placement/test-0"]
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)
            with pytest.raises(aio.AioRpcError, match="UNAVAILABLE"):
                await stub.Describe(pb.DescribeRequest(), timeout=5)
        finally:
            service.cancel()
            await channel.close()
