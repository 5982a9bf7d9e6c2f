"""The coordinator's placement client: every response or failure becomes a result with a message."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio
from msgspec.structs import replace

from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.replicas import Replicas
from muster.coordinator.solver import MANY_VICTIMS, Solver
from muster.gangs.solve import PodsOnNode, PotentialVictim, Role, SolveGang, SolveGroup, SolveOutcome
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.channel import MESSAGE_BYTES

QUESTION = Solve(7, {}, (), (SolveGroup("g", (SolveGang("g", 1, (Role("x", 1),)),)),))

Answer = Callable[[], Awaitable[bytes]]


requests: list[pb.SolveRequest] = []


@asynccontextmanager
async def solver(answer: Answer, timeout_seconds: float = 10) -> AsyncIterator[Solver]:
    """A client of a placement that sends these bytes, and keeps the request."""

    async def solve(request: bytes, _context: Any) -> bytes:
        requests.append(pb.SolveRequest.FromString(request))
        return await answer()

    server = aio.server(options=(("grpc.max_send_message_length", -1),))
    handler: Any = grpc.unary_unary_rpc_method_handler(solve)  # bytes in, bytes out
    service = grpc.method_handlers_generic_handler("muster.placement.v1.PlacementService", {"Solve": handler})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    replicas = Replicas.at(f"127.0.0.1:{port}")
    try:
        yield Solver(replicas, timeout_seconds)
    finally:
        await replicas.close()
        await server.stop(None)


def sending(content: bytes) -> Answer:
    async def answer() -> bytes:
        return content

    return answer


async def silence() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xff\xff\xff not a message", "cannot be decoded: it is not a SolveResponse"),
        (bytes(MESSAGE_BYTES + 1), "larger than max"),
        (pb.SolveResponse(results=[pb.GroupResult(id="g")]).SerializeToString() + b"\x0a\x05\x10", "cannot be decoded"),
    ],
    ids=["garbage", "too large", "cut off"],
)
async def test_an_undecodable_response_is_a_failure_with_a_reason(content: bytes, words: str) -> None:
    async with solver(sending(content)) as client:
        answer = await client.solve(QUESTION, {})
    assert isinstance(answer, SolveFailed)
    assert answer.solve_id == 7
    assert words in answer.message


async def test_an_outcome_of_a_later_version_is_a_failure() -> None:
    later = pb.SolveResponse(results=[pb.GroupResult(id="g", outcome=pb.GroupResult.Outcome.ValueType(99))])
    async with solver(sending(later.SerializeToString())) as client:
        answer = await client.solve(QUESTION, {})
    assert isinstance(answer, SolveFailed)
    assert answer.message.startswith("its answer cannot be decoded: 99")


async def test_a_missing_response_ends_with_the_deadline() -> None:
    async with solver(silence, timeout_seconds=0.2) as client:
        answer = await client.solve(QUESTION, {})
    assert isinstance(answer, SolveFailed)
    assert answer.message == "it did not answer in time"


async def test_a_valid_response_after_failures_is_accepted() -> None:
    good = pb.SolveResponse(results=[pb.GroupResult(id="g", outcome=pb.GroupResult.OUTCOME_NOT_FOUND)])
    answers = [b"\xff\xff\xff", good.SerializeToString()]

    async def next_answer() -> bytes:
        return answers.pop(0)

    async with solver(next_answer) as client:
        assert isinstance(await client.solve(QUESTION, {}), SolveFailed)
        answer = await client.solve(QUESTION, {})
    assert isinstance(answer, Solved)
    assert [(result.id, result.outcome) for result in answer.results] == [("g", SolveOutcome.NOT_FOUND)]


@pytest.mark.parametrize("victims", [MANY_VICTIMS, MANY_VICTIMS + 1], ids=["encoded at once", "encoded in a thread"])
async def test_a_request_contains_all_potential_victims(victims: int) -> None:
    listed = [PotentialVictim(f"v{number}", 0, 0, (PodsOnNode("n", "x", 1),)) for number in range(victims)]
    requests.clear()
    async with solver(sending(b"")) as client:
        assert isinstance(await client.solve(replace(QUESTION, potential_victims=tuple(listed)), {}), Solved)
    [request] = requests
    assert [each.id for each in request.potential_victims] == [each.id for each in listed]
