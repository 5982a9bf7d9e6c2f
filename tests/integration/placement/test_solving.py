"""Solve over gRPC: answers, waiting for revisions, and rejected requests."""

import asyncio

import grpc
import pytest
from grpc import aio

from builders.clusterstate.stream import ClusterStream
from builders.placement.clusters import node
from builders.placement.service import INFEASIBLE, PLACED, Placement, asks, bound, where
from muster.gangs.facts import Batch, PodPhase
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.watch_codec import batch_step


async def test_answers_are_in_order_with_assignments_and_explanations(placement: Placement) -> None:
    groups = asks(("x", 6), name="fits"), asks(("x", 3), name="not"), asks(("y", 1), name="last")
    response = await placement.solve(*groups)
    assert [result.id for result in response.results] == ["fits", "not", "last"]
    assert [result.outcome for result in response.results] == [PLACED, INFEASIBLE, PLACED]
    assert where(response.results[0]) == {"a": 4, "b": 2}
    explanation = response.results[1].explanation
    assert (explanation.fit, explanation.needed, explanation.class_id) == (2, 3, "x")
    assert explanation.summary.startswith("2 of 3 members fit; short of 1 cpu for the next; 0/2 nodes are available")
    assert [(lost.reason, lost.nodes) for lost in explanation.filtered_nodes] == [("Insufficient cpu", 2)]
    assert [(short.name, short.amount) for short in explanation.short_by] == [("cpu", 1000)]
    assert dict(response.revision.kinds) == {"pods": 10, "nodes": 5}


async def test_a_solve_leaves_no_reservations(placement: Placement) -> None:
    first = await placement.solve(asks(("x", 8)))
    again = await placement.solve(asks(("x", 8)))
    assert first == again


async def test_deltas_change_free_capacity(placement: Placement, stream: ClusterStream) -> None:
    stream.send(batch_step(Batch(pods=(bound("p", "a", "y"), bound("q", "b", "y")), through={"pods": 11})))
    assert where((await placement.solve(asks(("x", 4)), pods=11)).results[0]) == {"a": 2, "b": 2}
    ended = bound("p", "a", "y", PodPhase.SUCCEEDED)
    stream.send(batch_step(Batch(pods=(ended,), removed_pods=("q",), removed_nodes=("b",), through={"pods": 12})))
    assert where((await placement.solve(asks(("x", 4)), pods=12)).results[0]) == {"a": 4}
    stream.send(batch_step(Batch(nodes=(node("c", 2),), through={"nodes": 6, "pods": 13})))
    assert where((await placement.solve(asks(("x", 6)), pods=13)).results[0]) == {"a": 4, "c": 2}
    stream.send(batch_step(Batch(nodes=(node("c", 2, unschedulable=True),), through={"nodes": 7, "pods": 14})))
    [refused] = (await placement.solve(asks(("x", 6)), pods=14)).results
    assert ("node(s) were unschedulable", 1) in [
        (lost.reason, lost.nodes) for lost in refused.explanation.filtered_nodes
    ]


async def test_p32_reservations_count_until_their_pods_are_bound(placement: Placement, stream: ClusterStream) -> None:
    held = (pb.Reservation(node="a", class_id="y", pod_uids=["p", "q"]),)
    [before] = (await placement.solve(asks(("x", 5)), held=held)).results
    assert before.explanation.fit == 4
    stream.send(batch_step(Batch(pods=(bound("p", "a", "y"),), through={"pods": 11})))
    [half] = (await placement.solve(asks(("x", 5)), held=held, pods=11)).results
    assert half.explanation.fit == 4
    assert (await placement.solve(asks(("x", 8)))).results[0].explanation.fit == 6


async def test_p33_a_solve_waits_for_the_requested_revision(placement: Placement, stream: ClusterStream) -> None:
    waiting = asyncio.create_task(placement.solve(asks(("x", 8)), pods=12))
    await placement.solve(asks(("x", 8)))
    assert not waiting.done()
    stream.send(batch_step(Batch(pods=(bound("p", "a"),), through={"pods": 12})))
    [result] = (await waiting).results
    assert result.outcome == INFEASIBLE


async def test_p33_a_missing_revision_fails_before_the_deadline(placement: Placement) -> None:
    code, message = await placement.refused(asks(("x", 1)), pods=99, seconds=5)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert message == "deadline exceeded before cluster-state sent pods 99 (reached: 10)"


async def test_an_unknown_class_fails_the_precondition(placement: Placement) -> None:
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
        ([asks(("x", 1)), asks(("x", 1))], "group 'g' is listed twice"),
        ([asks(("x", 1), name="")], "a group has an empty id"),
        (
            [pb.GangGroup(id=name, gangs=asks(("x", 1), name="same").gangs) for name in "ab"],
            "gang 'same' is listed twice",
        ),
    ],
)
async def test_p36_invalid_requests_are_rejected_with_the_error(
    placement: Placement, groups: list[pb.GangGroup], quoted: str
) -> None:
    code, message = await placement.refused(*groups)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert quoted in message


async def test_a_pod_reserved_twice_is_rejected(placement: Placement) -> None:
    held = (
        pb.Reservation(node="a", class_id="x", pod_uids=["p"]),
        pb.Reservation(node="b", class_id="x", pod_uids=["p"]),
    )
    with pytest.raises(aio.AioRpcError, match="reserved pod 'p' is listed twice"):
        await placement.solve(asks(("x", 1)), held=held)


async def test_concurrent_solves_are_isolated(placement: Placement) -> None:
    responses = await asyncio.gather(*(placement.solve(asks(("x", 5)), asks(("y", 1), name="h")) for _ in range(8)))
    assert all(response == responses[0] for response in responses)
    assert responses[0].results[1].outcome == PLACED
