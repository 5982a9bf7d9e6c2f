"""One case played once: it tells the implementation of a world, asks, and judges what it is answered."""

from typing import Final

import grpc
from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.case import Failed, Unsafe
from muster.conformance.checker.answers import INFEASIBLE, NOT_FOUND, PARTIAL, PLACED, violations
from muster.conformance.stage import Stage
from muster.conformance.world import World
from muster.gangs.facts import Batch
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc

CALL_SECONDS = 10.0
"""What an implementation has for an answer where a case does not say another deadline."""

_SHORT_SECONDS: Final = 0.6
"""Deadline of calls that wait for what does not come."""


class Trial:
    """What a case does its play with. Every answer is checked for what none may have."""

    def __init__(
        self, stage: Stage, stub: "pb_grpc.PlacementServiceAsyncStub", call_seconds: float = CALL_SECONDS
    ) -> None:
        self.stage = stage
        self._stub = stub
        self._call_seconds = call_seconds
        self.answers: list[pb.SolveResponse] = []
        """All that came, in order."""

    async def given(self, world: World) -> None:
        """Begin with this world. Raises NobodySubscribes."""
        await self.stage.subscribed(self._call_seconds)
        self.stage.begin(world)

    def then(self, batch: Batch) -> None:
        """The world changes."""
        self.stage.change(batch)

    @property
    def revision(self) -> dict[str, int]:
        """That of the world now."""
        return dict(self.stage.world.revision)

    async def ask(self, *groups: pb.GangGroup, **parts: object) -> list[pb.GroupResult]:
        """Ask about groups on the world as it is now; further parts of the request by name. Raises Failed."""
        return list((await self.call(self.request(*groups, **parts))).results)

    async def ask_one(self, group: pb.GangGroup, **parts: object) -> pb.GroupResult:
        """Ask about one group. Raises Failed."""
        [result] = await self.ask(group, **parts)
        return result

    def request(self, *groups: pb.GangGroup, **parts: object) -> pb.SolveRequest:
        """The message, asking for the world as it is now if it says nothing else."""
        parts = {"min_revision": state_pb.Revision(kinds=self.revision), **parts}
        return pb.SolveRequest(groups=groups, **parts)  # type: ignore[arg-type]

    async def call(self, request: pb.SolveRequest, seconds: float | None = None) -> pb.SolveResponse:
        """Ask, and look at the answer. Raises Failed, Unsafe."""
        try:
            response: pb.SolveResponse = await self._stub.Solve(request, timeout=seconds or self._call_seconds)
        except aio.AioRpcError as error:
            raise Failed(f"Solve was answered {error.code().name}: {error.details()}") from None
        self.answers.append(response)
        problems = violations(self.stage.world, request, response)
        if problems:
            raise Unsafe("; ".join(problems[:3]))
        return response

    async def refused(self, request: pb.SolveRequest, *codes: grpc.StatusCode, seconds: float | None = None) -> str:
        """Ask what is to be refused with one of these codes; the words of the refusal. Raises Failed."""
        wanted = " or ".join(code.name for code in codes)
        try:
            response: pb.SolveResponse = await self._stub.Solve(request, timeout=seconds or self._call_seconds)
        except aio.AioRpcError as error:
            if error.code() in codes:
                return error.details() or ""
            raise Failed(f"Solve was answered {error.code().name} ({error.details()}) instead of {wanted}") from None
        outcomes = [pb.GroupResult.Outcome.Name(result.outcome) for result in response.results]
        raise Failed(f"Solve was answered with {outcomes} instead of {wanted}")

    async def refused_in_time(self, request: pb.SolveRequest, *codes: grpc.StatusCode) -> None:
        """Ask with a short deadline what is to be refused before it with one of these codes. A refusal that comes too
        late is let pass twice, since machines are slow at times. Raises Failed.
        """
        for last in (False, False, True):
            try:
                await self.refused(request, *codes, seconds=_SHORT_SECONDS)
            except Failed as error:
                if last or grpc.StatusCode.DEADLINE_EXCEEDED.name not in str(error):
                    raise
            else:
                return


# -- what cases say about answers


def expect(holds: object, otherwise: str) -> None:
    """Raises Failed."""
    if not holds:
        raise Failed(otherwise)


def placed(result: pb.GroupResult, count: int | None = None) -> dict[str, int]:
    """It must be placed, so many members of it if said; members by node. Raises Failed."""
    if result.outcome != PLACED:
        raise Failed(f"group {result.id!r} has a place, but was answered {told(result)}")
    by_node = seats(result)
    total = sum(by_node.values())
    expect(count is None or total == count, f"{total} members of group {result.id!r} are placed instead of {count}")
    return by_node


def not_placed(result: pb.GroupResult) -> None:
    """It must not be. Raises Failed."""
    expect(
        result.outcome in (INFEASIBLE, NOT_FOUND), f"group {result.id!r} has no place, but was answered {told(result)}"
    )


def infeasible(result: pb.GroupResult) -> None:
    """It must be proved that it has no place. Raises Failed."""
    expect(
        result.outcome == INFEASIBLE, f"that group {result.id!r} has no place can be proved; answered {told(result)}"
    )


def seats(result: pb.GroupResult, role: int | None = None) -> dict[str, int]:
    """Members by node, of one role or of all."""
    by_node: dict[str, int] = {}
    for assignment in result.assignments:
        if role is None or assignment.role == role:
            by_node[assignment.node] = by_node.get(assignment.node, 0) + assignment.count
    return dict(sorted(by_node.items()))


def told(result: pb.GroupResult) -> str:
    """The answer in a few words."""
    name = (
        pb.GroupResult.Outcome.Name(result.outcome)
        if result.outcome in (PLACED, INFEASIBLE, NOT_FOUND, PARTIAL)
        else "?"
    )
    said = f" ({result.explanation.summary})" if result.explanation.summary else ""
    return f"{name}{said}{f' {seats(result)}' if result.assignments else ''}"
