"""Client of placement: sends Solve effects as calls and returns their answers as events of the core."""

import asyncio
from collections.abc import Mapping

import grpc
from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved, SolveFailed, SolveOutcome, SolveResult
from muster.coordinator.replicas import TIMEOUT_AVOID_SECONDS, Endpoint, Replicas
from muster.gangs.solve import Assignment, PodsOnNode, PotentialVictim, VictimGang
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.errors import describe
from muster.rpc.explanation_codec import decode_explanation
from muster.rpc.topology_codec import encode_constraint


class Solver:
    """Sends each batch to one replica; if that is unreachable, to another."""

    def __init__(self, replicas: Replicas, timeout_seconds: float) -> None:
        self._replicas = replicas
        self._timeout_seconds = timeout_seconds

    async def solve(self, effect: Solve, traceparents: Mapping[str, str]) -> Solved | SolveFailed:
        """Solves a batch; failures of the call are answers, too. `traceparents`: parent spans by group id."""
        request = _request(effect, traceparents)
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout_seconds
        unreachable: list[Endpoint] = []
        while True:
            async with self._replicas.acquire(excluded=unreachable) as endpoint:
                try:
                    return await self._call(endpoint, effect.solve_id, request, max(0.001, deadline - clock()))
                except aio.AioRpcError as error:
                    unreachable.append(endpoint)
                    is_unreachable = error.code() is grpc.StatusCode.UNAVAILABLE
                    if is_unreachable:
                        self._replicas.avoid(endpoint)
                    elif error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        self._replicas.avoid(endpoint, TIMEOUT_AVOID_SECONDS)
                    if not is_unreachable or len(unreachable) == self._replicas.endpoints or clock() >= deadline:
                        is_invalid = error.code() is grpc.StatusCode.INVALID_ARGUMENT
                        return SolveFailed(effect.solve_id, describe(error), is_invalid, away=is_unreachable)

    @staticmethod
    async def _call(
        endpoint: Endpoint, solve_id: int, request: pb.SolveRequest, timeout_seconds: float
    ) -> Solved | SolveFailed:
        """Raises AioRpcError."""
        try:
            response = await endpoint.stub.Solve(request, timeout=timeout_seconds)
            if response is None:  # gRPC returns None for bytes that are not such a message
                return SolveFailed(solve_id, "its answer cannot be decoded: it is not a SolveResponse", unreadable=True)
            return Solved(solve_id, tuple(_result(result) for result in response.results))
        except ValueError as error:
            return SolveFailed(solve_id, f"its answer cannot be decoded: {error}", unreadable=True)


def _request(effect: Solve, traceparents: Mapping[str, str]) -> pb.SolveRequest:
    return pb.SolveRequest(
        min_revision=state_pb.Revision(kinds=effect.min_revision),
        reservations=[
            pb.Reservation(node=held.node, class_id=held.class_id, pod_uids=held.pod_uids)
            for held in effect.reservations
        ],
        groups=[
            pb.GangGroup(
                id=group.id,
                traceparent=traceparents.get(group.id, ""),
                partial=group.partial,
                gangs=[
                    pb.Gang(
                        id=gang.id,
                        minimum=gang.minimum,
                        roles=[pb.Role(class_id=role.class_id, wanted=role.wanted) for role in gang.roles],
                        tree=gang.tree,
                        constraints=map(encode_constraint, gang.constraints),
                        placed=map(_pods_on_node, gang.placed),
                        avoided=gang.avoided,
                    )
                    for gang in group.gangs
                ],
            )
            for group in effect.groups
        ],
        nominated=[
            pb.NominatedCapacity(
                node=kept.node,
                amounts=[state_pb.ResourceAmount(name=name, amount=amount) for name, amount in kept.amounts],
            )
            for kept in effect.nominated
        ],
        potential_victims=map(_potential_victims, effect.potential_victims),
    )


def _potential_victims(gang: PotentialVictim) -> pb.PotentialVictim:
    return pb.PotentialVictim(
        id=gang.id,
        level=gang.level,
        spare=gang.spare,
        pods=map(_pods_on_node, gang.pods),
    )


def _pods_on_node(pods: PodsOnNode) -> pb.PodsOnNode:
    return pb.PodsOnNode(node=pods.node, class_id=pods.class_id, count=pods.count)


def _result(result: pb.GroupResult) -> SolveResult:
    return SolveResult(
        result.id,
        SolveOutcome(result.outcome),
        tuple(
            Assignment(assignment.gang, assignment.role, assignment.node, assignment.count)
            for assignment in result.assignments
        ),
        decode_explanation(result.explanation) if result.HasField("explanation") else None,
        tuple(map(_removed, result.victims)),
    )


def _removed(gang: pb.VictimGang) -> VictimGang:
    pods = tuple(PodsOnNode(pods.node, pods.class_id, pods.count) for pods in gang.pods)
    return VictimGang(gang.id, gang.whole, pods)
