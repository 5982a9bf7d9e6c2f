"""Client of placement: sends Solve effects as calls and returns their answers as events of the core."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

import grpc
from grpc import aio
from msgspec.structs import replace

from muster.coordinator.answer_fields import checked
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.placement_features import ClassOf, describe_placement, unsupported
from muster.coordinator.replicas import TIMEOUT_AVOID_SECONDS, Endpoint, Replicas
from muster.gangs.solve import SolveRequest
from muster.rpc.errors import in_words
from muster.rpc.solve_codec import decode_solve_results, encode_solve_request

DECLARED_SECONDS: Final = 60.0
"""How long what an implementation declares is taken to hold."""
MANY_VICTIMS: Final = 1000
"""Requests with more potential victims are encoded in a thread: 20,000 take 0.1 s (I12)."""


class Solver:
    """Sends each batch to one replica; if that is unreachable, to another.

    Groups that need a feature that the implementation does not declare are not sent: their results say so.
    """

    def __init__(self, replicas: Replicas, timeout_seconds: float, class_of: ClassOf = lambda _kind: None) -> None:
        """`class_of`: the pod class of a kind of pods."""
        self._replicas, self._class_of = replicas, class_of
        self._timeout_seconds = timeout_seconds

    async def solve(self, effect: Solve, traceparents: Mapping[str, str]) -> Solved | SolveFailed:
        """Solves a batch; failures of the call are answers, too. `traceparents`: parent spans by group id."""
        solve_request = SolveRequest(
            effect.min_revision, effect.reservations, effect.groups, effect.nominated, effect.potential_victims
        )
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout_seconds
        unreachable: list[Endpoint] = []
        while True:
            async with self._replicas.acquire(excluded=unreachable) as endpoint:
                try:
                    await self._ask_features(endpoint, clock())
                    return await self._call(
                        endpoint, effect.solve_id, solve_request, traceparents, max(0.001, deadline - clock())
                    )
                except aio.AioRpcError as error:
                    unreachable.append(endpoint)
                    is_unreachable = error.code() is grpc.StatusCode.UNAVAILABLE
                    if is_unreachable:
                        endpoint.asked_until = 0.0  # another version may answer next
                        self._replicas.avoid(endpoint)
                    elif error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        self._replicas.avoid(endpoint, TIMEOUT_AVOID_SECONDS)
                    if not is_unreachable or len(unreachable) == self._replicas.endpoints or clock() >= deadline:
                        is_invalid = error.code() is grpc.StatusCode.INVALID_ARGUMENT
                        return SolveFailed(effect.solve_id, in_words(error), is_invalid, away=is_unreachable)

    @staticmethod
    async def _ask_features(endpoint: Endpoint, now: float) -> None:
        """Ask what the implementation declares, unless that is known. Raises AioRpcError."""
        if now >= endpoint.asked_until:
            endpoint.declared = await describe_placement(endpoint.stub)
            endpoint.asked_until = now + DECLARED_SECONDS

    async def _call(
        self,
        endpoint: Endpoint,
        solve_id: int,
        request: SolveRequest,
        traceparents: Mapping[str, str],
        timeout_seconds: float,
    ) -> Solved | SolveFailed:
        """Raises AioRpcError."""
        declared, own = endpoint.declared, []
        if declared is not None and (own := unsupported(declared, request.groups, self._class_of)):
            left_out = {result.id for result in own}
            request = replace(request, groups=tuple(each for each in request.groups if each.id not in left_out))
            if not request.groups:
                return Solved(solve_id, tuple(own))
        encode = partial(encode_solve_request, request, traceparents)
        message = await asyncio.to_thread(encode) if len(request.potential_victims) > MANY_VICTIMS else encode()
        try:
            response = await endpoint.stub.Solve(message, timeout=timeout_seconds)
            if response is None:  # gRPC returns None for bytes that are not such a message
                return SolveFailed(solve_id, "its answer cannot be decoded: it is not a SolveResponse", unreadable=True)
            results = checked(request, decode_solve_results(response.results), response.revision.kinds)
            return Solved(solve_id, (*results, *own))
        except ValueError as error:
            return SolveFailed(solve_id, f"its answer cannot be decoded: {error}", unreadable=True)
