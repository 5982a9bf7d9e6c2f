"""Solve with partial groups, nominated capacity and potential victims."""

import grpc
import pytest
from msgspec import structs

from builders.clusterstate.stream import ClusterStream
from builders.placement.service import (
    INFEASIBLE,
    PARTIAL,
    PLACED,
    Placement,
    asks,
    bound,
    nominated,
    potential_victim,
    where,
)
from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.replicas import Endpoint, Replicas
from muster.coordinator.solver import Solver
from muster.gangs import solve as values
from muster.gangs.facts import Batch
from muster.gangs.solve import Role, SolveGang, SolveGroup, SolveOutcome
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.watch_codec import batch_step


async def test_a_partial_group_is_placed_as_far_as_it_fits(placement: Placement) -> None:
    groups = asks(("x", 9), name="some", partial=True), asks(("x", 1), name="none", partial=True)
    some, none = (await placement.solve(*groups)).results
    assert some.outcome == PARTIAL
    assert where(some) == {"a": 4, "b": 4}
    assert (some.explanation.fit, some.explanation.needed) == (8, 9)
    assert none.outcome == INFEASIBLE


async def test_nominated_capacity_is_withheld_and_reported(placement: Placement) -> None:
    kept = [nominated("a", cpu=3000), nominated("b", cpu=4000, **{"no such thing": 7}), nominated("gone", cpu=1)]
    result = await placement.answer(pb.SolveRequest(groups=[asks(("x", 2))], nominated=kept))
    assert result.explanation.fit == 1
    assert result.explanation.summary.endswith("; capacity is nominated for others on 2 nodes")
    again = await placement.answer(pb.SolveRequest(groups=[asks(("x", 8))]))
    assert where(again) == {"a": 4, "b": 4}


async def test_g43_victims_are_in_the_answer(placement: Placement, stream: ClusterStream) -> None:
    pods = tuple(bound(f"{on}{i}", on) for on in "ab" for i in range(4))
    stream.send(batch_step(Batch(pods=pods, through={"pods": 11})))
    revision = state_pb.Revision(kinds={"pods": 11})
    gangs = [
        *(potential_victim(f"loses-one-{i}", ("a", "x", 1), ("gone", "x", 1)) for i in range(2)),
        potential_victim("one", ("a", "x", 2), level=0),
        potential_victim("higher", ("b", "x", 4), level=1, spare=4),
    ]
    request = pb.SolveRequest(min_revision=revision, groups=[asks(("x", 2))], potential_victims=gangs)
    result = await placement.answer(request)
    assert (result.outcome, where(result)) == (PLACED, {"a": 2})
    assert list(result.victims) == [
        pb.VictimGang(id="one", whole=True, pods=[pb.PodsOnNode(node="a", class_id="x", count=2)])
    ]
    request.groups[0].CopyFrom(asks(("x", 6)))
    more = await placement.answer(request)
    assert [(each.id, each.pods[0].count) for each in more.victims] == [("one", 2), ("higher", 4)]
    request.groups[0].CopyFrom(asks(("x", 9)))
    never = await placement.answer(request)
    assert (never.outcome, len(never.victims)) == (INFEASIBLE, 0)
    assert never.explanation.summary.startswith("even if all potential victims were evicted: 8 of 9 members fit")


async def test_g08_reservations_may_be_victims(placement: Placement) -> None:
    held = [pb.Reservation(node=on, class_id="x", pod_uids=[f"{on}{i}" for i in range(4)]) for on in "ab"]
    gangs = [
        potential_victim("waiting-a", ("a", "x", 4), spare=4),
        potential_victim("waiting-b", ("b", "x", 4), level=1, spare=4),
    ]
    request = pb.SolveRequest(groups=[asks(("x", 3))], reservations=held, potential_victims=gangs)
    result = await placement.answer(request)
    assert [(each.id, each.whole, each.pods[0].count) for each in result.victims] == [("waiting-a", False, 3)]


@pytest.mark.parametrize(
    ("request_", "quoted"),
    [
        (pb.SolveRequest(nominated=[nominated("a", cpu=-1)]), "-1 of 'cpu' cannot be nominated on node 'a'"),
        (pb.SolveRequest(nominated=[nominated("a", cpu=2**53 + 1)]), "9007199254740993 of 'cpu' cannot be nominated"),
        (
            pb.SolveRequest(
                groups=[asks(("x", 1)), asks(("x", 1), name="h")], potential_victims=[potential_victim("r")]
            ),
            "2 groups, but potential victims are supported for one",
        ),
        (
            pb.SolveRequest(groups=[asks(("x", 1))], potential_victims=[potential_victim("r"), potential_victim("r")]),
            "potential victim 'r' is listed twice",
        ),
        (
            pb.SolveRequest(groups=[asks(("x", 1))], potential_victims=[potential_victim("")]),
            "a potential victim has an empty id",
        ),
        (
            pb.SolveRequest(
                groups=[asks(("x", 2), minimum=3, partial=True)], potential_victims=[potential_victim("r")]
            ),
            "gang 'g': minimum 3 is out of range",
        ),
    ],
)
async def test_p36_invalid_nominations_and_victims_are_rejected(
    placement: Placement, request_: pb.SolveRequest, quoted: str
) -> None:
    code, message = await placement.refusal(request_)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert quoted in message


async def test_a_potential_victim_of_an_unknown_class_is_a_failed_precondition(placement: Placement) -> None:
    code, message = await placement.refusal(
        pb.SolveRequest(groups=[asks(("x", 1))], potential_victims=[potential_victim("r", ("a", "nobody", 1))])
    )
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "'nobody'" in message


async def test_the_coordinators_client_codes_all_fields(placement: Placement, stream: ClusterStream) -> None:
    stream.send(batch_step(Batch(pods=tuple(bound(f"a{i}", "a") for i in range(4)), through={"pods": 11})))
    solver = Solver(Replicas([Endpoint("placement", placement.channel)]), timeout_seconds=10)
    group = SolveGroup("g", (SolveGang("g", 6, (Role("x", 6),)),), partial=True)
    kept = (values.NominatedCapacity("b", (("cpu", 1000),)),)
    effect = Solve(1, {"pods": 11}, (), (group,), kept)
    partly = await solver.solve(effect, {})
    assert isinstance(partly, Solved)
    assert partly.results[0].outcome is SolveOutcome.PARTIAL
    assert partly.results[0].assignments == (values.Assignment("g", 0, "b", 3),)
    assert partly.results[0].explanation is not None
    gangs = (values.PotentialVictim("v", 3, 1, (values.PodsOnNode("a", "x", 4),)),)
    whole = await solver.solve(structs.replace(effect, potential_victims=gangs), {})
    assert isinstance(whole, Solved)
    assert whole.results[0].outcome is SolveOutcome.PLACED
    assert whole.results[0].victims == (values.VictimGang("v", True, (values.PodsOnNode("a", "x", 4),)),)
    refused = await solver.solve(structs.replace(effect, groups=(group, group), potential_victims=gangs), {})
    assert isinstance(refused, SolveFailed)
    assert "group 'g' is listed twice" in refused.message
