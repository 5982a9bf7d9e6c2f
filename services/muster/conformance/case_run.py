"""One run of a case: shows a cluster to the implementation, sends solve requests and checks the answers."""

import asyncio
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.case import Expected, Failed, Unsafe
from muster.conformance.checker.responses import INFEASIBLE, NOT_FOUND, PARTIAL, PLACED, violations
from muster.conformance.cluster import Cluster
from muster.conformance.cluster_stream import ClusterStream
from muster.conformance.failed_call import Call
from muster.gangs.facts import Batch
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc

CALL_SECONDS = 10.0
"""Deadline of a call unless the case sets another one."""

_T = TypeVar("_T")

_SHORT_SECONDS: Final = 0.6
"""Deadline of calls that wait for something that never arrives."""


class CaseRun:
    """The operations of a case. Every answer is checked for safety, whatever the case is about.

    Async context manager: concurrent calls that have not ended with the case are cancelled, so that they do not run in
    the next one.
    """

    def __init__(
        self, stream: ClusterStream, stub: "pb_grpc.PlacementServiceAsyncStub", call_seconds: float = CALL_SECONDS
    ) -> None:
        self.stream = stream
        self._stub = stub
        self._call_seconds = call_seconds
        self.answers: list[pb.SolveResponse] = []
        """All answers, in order."""
        self.last: Call | None = None
        """The call that was answered last."""
        self._concurrent: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._concurrent:
            task.cancel()
        await asyncio.gather(*self._concurrent, return_exceptions=True)

    def concurrently(self, call: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a call that runs while the case goes on, at the latest until its end."""
        task = asyncio.create_task(call)
        self._concurrent.append(task)
        return task

    async def start(self, cluster: Cluster) -> None:
        """Send a snapshot of a new cluster. Raises NoSubscriber."""
        await self.stream.subscribed(self._call_seconds)
        self.stream.start(cluster)

    async def restore(self, messages: Sequence[state_pb.WatchResponse]) -> None:
        """Send the messages of an earlier stream. Raises NoSubscriber."""
        await self.stream.subscribed(self._call_seconds)
        self.stream.restore(messages)

    def change(self, batch: Batch) -> None:
        """Change the cluster and send the delta."""
        self.stream.change(batch)

    @property
    def revision(self) -> dict[str, int]:
        """The current revision of the cluster."""
        return dict(self.stream.cluster.revision)

    async def solve(self, *groups: pb.GangGroup, **fields: object) -> list[pb.GroupResult]:
        """Solve groups on the current cluster; `fields` are further fields of the request. Raises Failed."""
        return list((await self.call(self.request(*groups, **fields))).results)

    async def solve_one(self, group: pb.GangGroup, **fields: object) -> pb.GroupResult:
        """Solve one group. Raises Failed."""
        [result] = await self.solve(group, **fields)
        return result

    def request(self, *groups: pb.GangGroup, **fields: object) -> pb.SolveRequest:
        """A request for the current revision unless `fields` says otherwise."""
        fields = {"min_revision": state_pb.Revision(kinds=self.revision), **fields}
        return pb.SolveRequest(groups=groups, **fields)  # type: ignore[arg-type]

    async def call(self, request: pb.SolveRequest, seconds: float | None = None) -> pb.SolveResponse:
        """Send a request and check the answer. Raises Failed, Unsafe."""
        streamed = tuple(self.stream.sent)
        try:
            response: pb.SolveResponse = await self._stub.Solve(request, timeout=seconds or self._call_seconds)
        except aio.AioRpcError as error:
            said = f"{error.code().name}: {error.details()}"
            self.last = Call(streamed, request, None, said)
            raise Failed(f"Solve failed with {said}") from None
        call = self.last = Call(streamed, request, response)
        self.answers.append(response)
        problems = violations(self.stream.cluster, request, response)
        if problems:
            raise Unsafe("; ".join(problems[:3]), call=call)
        return response

    async def expect_rejection(
        self, request: pb.SolveRequest, *codes: grpc.StatusCode, seconds: float | None = None
    ) -> str:
        """Send a request that must be rejected with one of these codes; returns the message. Raises Failed."""
        expected = " or ".join(code.name for code in codes)
        try:
            response: pb.SolveResponse = await self._stub.Solve(request, timeout=seconds or self._call_seconds)
        except aio.AioRpcError as error:
            if error.code() in codes:
                return error.details() or ""
            raise Failed(f"Solve failed with {error.code().name} ({error.details()}) instead of {expected}") from None
        outcomes = [pb.GroupResult.Outcome.Name(result.outcome) for result in response.results]
        raise Failed(f"Solve answered {outcomes} instead of failing with {expected}")

    async def expect_timely_rejection(self, request: pb.SolveRequest, *codes: grpc.StatusCode) -> None:
        """Send a request that must be rejected with one of these codes before a short deadline.

        Two late rejections are tolerated, since test machines stall at times. Raises Failed.
        """
        for last in (False, False, True):
            try:
                await self.expect_rejection(request, *codes, seconds=_SHORT_SECONDS)
            except Failed as error:
                if last or grpc.StatusCode.DEADLINE_EXCEEDED.name not in str(error):
                    raise
            else:
                return


def expect(holds: object, otherwise: str) -> None:
    """Raises Failed."""
    if not holds:
        raise Failed(otherwise)


def placed(result: pb.GroupResult, count: int | None = None) -> dict[str, int]:
    """Expect the group to be placed, with `count` members if given; returns members by node. Raises Failed."""
    expect_result(result, Expected(placed=True, members=count))
    return seats(result)


def not_placed(result: pb.GroupResult) -> None:
    """Expect the group not to be placed. Raises Failed."""
    expect_result(result, Expected(placed=False))


def infeasible(result: pb.GroupResult) -> None:
    """Expect the group to be proved infeasible. Raises Failed."""
    expect_result(result, Expected(placed=False, proved=True))


def expect_result(result: pb.GroupResult, expected: Expected) -> None:
    """Expect this result. Raises Failed."""
    said, total = describe(result), sum(seats(result).values())
    if expected.placed and result.outcome != PLACED:
        raise Failed(f"group {result.id!r} fits, but the answer is {said}", expected)
    if expected.placed and expected.members not in (None, total):
        message = f"{total} members of group {result.id!r} are placed instead of {expected.members}"
        raise Failed(message, expected)
    if expected.proved and result.outcome != INFEASIBLE:
        raise Failed(f"group {result.id!r} can be proved infeasible, but the answer is {said}", expected)
    if not expected.placed and result.outcome not in (INFEASIBLE, NOT_FOUND):
        raise Failed(f"group {result.id!r} does not fit, but the answer is {said}", expected)


def not_claimed_infeasible(result: pb.GroupResult) -> None:
    """Expect that the group is not claimed to be proved infeasible. Raises Failed."""
    expect(
        result.outcome != INFEASIBLE,
        f"group {result.id!r} fits, but the answer is {describe(result)}: the coordinator would not try it again",
    )


def seats(result: pb.GroupResult, role: int | None = None) -> dict[str, int]:
    """Members by node, of one role or of all."""
    by_node: dict[str, int] = {}
    for assignment in result.assignments:
        if role is None or assignment.role == role:
            by_node[assignment.node] = by_node.get(assignment.node, 0) + assignment.count
    return dict(sorted(by_node.items()))


def describe(result: pb.GroupResult) -> str:
    """Outcome, summary and seats in one line."""
    name = (
        pb.GroupResult.Outcome.Name(result.outcome)
        if result.outcome in (PLACED, INFEASIBLE, NOT_FOUND, PARTIAL)
        else "?"
    )
    summary = f" ({result.explanation.summary})" if result.explanation.summary else ""
    return f"{name}{summary}{f' {seats(result)}' if result.assignments else ''}"
