"""Client of placement: sends Solve effects as calls and returns their answers as events of the core."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

import grpc
from grpc import aio

from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.replicas import TIMEOUT_AVOID_SECONDS, Endpoint, Replicas
from muster.gangs.solve import SolveRequest
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.errors import in_words
from muster.rpc.solve_codec import decode_solve_results, encode_solve_request

MANY_VICTIMS: Final = 1000
"""Requests with more potential victims are encoded in a thread: 20,000 take 0.1 s (I12)."""


class Solver:
    """Sends each batch to one replica; if that is unreachable, to another."""

    def __init__(self, replicas: Replicas, timeout_seconds: float) -> None:
        self._replicas = replicas
        self._timeout_seconds = timeout_seconds

    async def solve(self, effect: Solve, traceparents: Mapping[str, str]) -> Solved | SolveFailed:
        """Solves a batch; failures of the call are answers, too. `traceparents`: parent spans by group id."""
        solve_request = SolveRequest(
            effect.min_revision, effect.reservations, effect.groups, effect.nominated, effect.potential_victims
        )
        encode = partial(encode_solve_request, solve_request, traceparents)
        is_large = len(effect.potential_victims) > MANY_VICTIMS
        request = await asyncio.to_thread(encode) if is_large else encode()
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
                        return SolveFailed(effect.solve_id, in_words(error), is_invalid, away=is_unreachable)

    @staticmethod
    async def _call(
        endpoint: Endpoint, solve_id: int, request: pb.SolveRequest, timeout_seconds: float
    ) -> Solved | SolveFailed:
        """Raises AioRpcError."""
        try:
            response = await endpoint.stub.Solve(request, timeout=timeout_seconds)
            if response is None:  # gRPC returns None for bytes that are not such a message
                return SolveFailed(solve_id, "its answer cannot be decoded: it is not a SolveResponse", unreadable=True)
            return Solved(solve_id, decode_solve_results(response.results))
        except ValueError as error:
            return SolveFailed(solve_id, f"its answer cannot be decoded: {error}", unreadable=True)
