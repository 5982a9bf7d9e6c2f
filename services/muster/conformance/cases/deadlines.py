"""Deadlines: every call is answered in time and no call blocks others."""

import asyncio
from random import Random
from typing import Final

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.builders import cluster, gang, gang_group, node, nodes, pod_class, single_gang
from muster.conformance.case import Cases
from muster.conformance.case_run import CaseRun, expect, placed

CASES: Final = Cases()
_case = CASES.case

_PRECONDITION: Final = grpc.StatusCode.FAILED_PRECONDITION


@_case("L01", "A gang of 512 on 1,000 nodes is answered within 5 s")
async def large(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 1000, 4), [x]))
    await run.solve_one(single_gang((x, 1)))
    response = await run.call(run.request(single_gang((x, 512))), seconds=5)
    placed(response.results[0], 512)


@_case("L02", "An instance that no search solves in time is answered as not found or infeasible, not with an error")
async def unsolved_instance(run: CaseRun) -> None:
    random = Random(5)  # noqa: S311 (the same in every run)
    classes = [pod_class(random.randint(30, 60), memory=random.randint(300, 600)) for _ in range(40)]
    unique = list({each.id: each for each in classes}.values())
    await run.start(cluster(nodes("n", 14, 128, memory=1280), unique))
    await run.solve_one(single_gang((unique[0], 1)))
    await run.call(run.request(single_gang(*((each, 1) for each in unique))), seconds=3)


@_case("L03", "A batch of a hundred gangs is answered within 5 s")
async def batch(run: CaseRun) -> None:
    x, y = pod_class(1), pod_class(2)
    await run.start(cluster(nodes("n", 200, 8), [x, y]))
    await run.solve_one(single_gang((x, 1)))
    groups = [gang_group(gang((x, 4), (y, 4), id=f"gang-{index}")) for index in range(100)]
    response = await run.call(run.request(*groups), seconds=5)
    expect(len(response.results) == 100, "some groups have no result")


@_case("L04", "A call that waits for a revision is rejected before its deadline, with FAILED_PRECONDITION (P33)")
async def rejected_in_time(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a")], [x]))
    await run.solve_one(single_gang((x, 1)))
    ahead = state_pb.Revision(kinds={kind: version + 1000 for kind, version in run.revision.items()})
    await run.expect_timely_rejection(run.request(single_gang((x, 1)), min_revision=ahead), _PRECONDITION)


@_case("L05", "A call that waits for a revision does not block other calls")
async def no_blocking(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a")], [x]))
    await run.solve_one(single_gang((x, 1)))
    ahead = state_pb.Revision(kinds={kind: version + 1000 for kind, version in run.revision.items()})
    request = run.request(single_gang((x, 1)), min_revision=ahead)
    waiting = run.concurrently(run.expect_rejection(request, _PRECONDITION))
    for _ in range(5):
        await run.solve_one(single_gang((x, 1)))
    expect(not waiting.done(), "small requests were blocked by a call that waits for its revision")


@_case("L06", "A cancelled call does not affect later calls")
async def cancelled_call(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 10, 8), [x]))
    ahead = state_pb.Revision(kinds={kind: version + 1000 for kind, version in run.revision.items()})
    for _ in range(5):
        call = run.concurrently(run.call(run.request(single_gang((x, 8)), min_revision=ahead)))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    placed(await run.solve_one(single_gang((x, 80))), 80)
