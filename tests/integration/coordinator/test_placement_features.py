"""Groups that need a feature that placement does not declare are not sent to it, and the reason names the feature."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from muster.config.settings import PLAIN_TEXT
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved
from muster.coordinator.replicas import Replicas
from muster.coordinator.solver import Solver
from muster.gangs.facts import LevelConstraint, LevelPolicy, PodClass, PodTerm, SpreadConstraint
from muster.gangs.solve import Composite, Role, SolveGang, SolveGroup, SolveOutcome
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.server import RpcServer

FULL_NAME = "muster.placement.v1.PlacementService"
CLASSES = {
    "plain": PodClass("plain", ()),
    "guest": PodClass("guest", (), required_pod_affinity=(PodTerm("s", "rack"),)),
    "even": PodClass("even", (), spread=(SpreadConstraint(1, "zone", "s"),)),
}


class OwnPlacement(pb_grpc.PlacementServiceServicer):
    """Places nothing, and keeps the groups that it was sent."""

    def __init__(self, features: Sequence[pb.Feature.ValueType]) -> None:
        self._features = features
        self.groups: list[str] = []

    async def Solve(self, request: pb.SolveRequest, context: Any) -> pb.SolveResponse:  # noqa: N802
        self.groups += [group.id for group in request.groups]
        results = [pb.GroupResult(id=group.id, outcome=pb.GroupResult.OUTCOME_NOT_FOUND) for group in request.groups]
        return pb.SolveResponse(results=results)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:  # noqa: N802
        return pb.DescribeResponse(implementation="my-placement", features=self._features)


@asynccontextmanager
async def solver_of(placement: OwnPlacement) -> AsyncIterator[Solver]:
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "own placement")
    server.add(pb_grpc.add_PlacementServiceServicer_to_server, placement, FULL_NAME)
    replicas = Replicas.at(f"127.0.0.1:{await server.start()}")
    try:
        yield Solver(replicas, 30, CLASSES.get)
    finally:
        await replicas.close()
        await server.stop(grace_seconds=0)


def group(id_: str, class_id: str = "plain", *, hard: bool = False, composite: bool = False) -> SolveGroup:
    constraints = (LevelConstraint("rack", LevelPolicy.PACK, hard),)
    gang = SolveGang(id_, 1, (Role(class_id, 1),), constraints=constraints, composite=0 if composite else -1)
    return SolveGroup(id_, (gang,), composites=(Composite(1),) if composite else ())


NEEDS = {
    "hard topology constraints (FEATURE_CONSTRAINTS)": (group("g", hard=True), pb.FEATURE_CONSTRAINTS),
    "composites (FEATURE_COMPOSITES)": (group("g", composite=True), pb.FEATURE_COMPOSITES),
    "required pod affinity (FEATURE_POD_TOPOLOGY)": (group("g", "guest"), pb.FEATURE_POD_TOPOLOGY),
    "topologySpreadConstraints with DoNotSchedule (FEATURE_POD_TOPOLOGY)": (
        group("g", "even"),
        pb.FEATURE_POD_TOPOLOGY,
    ),
}


@pytest.mark.parametrize("what", NEEDS)
async def test_what_is_not_declared_is_not_sent_and_named(what: str) -> None:
    wanted, feature = NEEDS[what]
    without = OwnPlacement([each for each in pb.Feature.values() if each not in (0, feature)])
    async with solver_of(without) as solver:
        answer = await solver.solve(Solve(7, {}, (), (wanted, group("other"))), {})
    assert isinstance(answer, Solved)
    results = {result.id: result for result in answer.results}
    assert without.groups == ["other"]
    assert results["g"].outcome is SolveOutcome.NOT_FOUND
    assert results["g"].explanation is not None
    assert results["g"].explanation.summary == f"my-placement does not support {what}; use another placement for it"
    assert results["other"].explanation is None


@pytest.mark.parametrize("what", NEEDS)
async def test_what_is_declared_is_sent(what: str) -> None:
    wanted, feature = NEEDS[what]
    placement = OwnPlacement([feature])
    async with solver_of(placement) as solver:
        await solver.solve(Solve(7, {}, (), (wanted,)), {})
    assert placement.groups == ["g"]


async def test_soft_constraints_need_no_feature_and_a_request_without_groups_is_not_sent() -> None:
    placement = OwnPlacement([])
    async with solver_of(placement) as solver:
        await solver.solve(Solve(7, {}, (), (group("soft"),)), {})
        answer = await solver.solve(Solve(8, {}, (), (group("hard", hard=True),)), {})
    assert placement.groups == ["soft"]
    assert isinstance(answer, Solved) and [result.id for result in answer.results] == ["hard"]
