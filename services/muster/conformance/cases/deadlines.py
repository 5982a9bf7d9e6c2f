"""Deadlines: every call is answered in its time, and nobody is kept waiting by others."""

import asyncio
from random import Random
from typing import Final

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.building import alone, gang, node, nodes, pod_class, together, world
from muster.conformance.case import Cases
from muster.conformance.trial import Trial, expect, placed

CASES: Final = Cases()
_case = CASES.case

_PRECONDITION: Final = grpc.StatusCode.FAILED_PRECONDITION


@_case("L01", "A gang of 512 on 1,000 nodes is answered within 5 s")
async def large(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world(nodes("n", 1000, 4), [x]))
    await trial.ask_one(alone((x, 1)))
    response = await trial.call(trial.request(alone((x, 512))), seconds=5)
    placed(response.results[0], 512)


@_case("L02", "A puzzle that nobody solves is answered in its time, as not found or infeasible, not with an error")
async def puzzle(trial: Trial) -> None:
    random = Random(5)  # noqa: S311 (the same in every run)
    classes = [pod_class(random.randint(30, 60), memory=random.randint(300, 600)) for _ in range(40)]
    unique = list({each.id: each for each in classes}.values())
    await trial.given(world(nodes("n", 14, 128, memory=1280), unique))
    await trial.ask_one(alone((unique[0], 1)))
    await trial.call(trial.request(alone(*((each, 1) for each in unique))), seconds=3)


@_case("L03", "A hundred gangs in one batch are answered within 5 s")
async def batch(trial: Trial) -> None:
    x, y = pod_class(1), pod_class(2)
    await trial.given(world(nodes("n", 200, 8), [x, y]))
    await trial.ask_one(alone((x, 1)))
    groups = [together(gang((x, 4), (y, 4), id=f"gang-{index}")) for index in range(100)]
    response = await trial.call(trial.request(*groups), seconds=5)
    expect(len(response.results) == 100, "not all groups have an answer")


@_case("L04", "A call that waits for a revision is refused before its deadline, with FAILED_PRECONDITION (P33)")
async def refused_in_time(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a")], [x]))
    await trial.ask_one(alone((x, 1)))
    ahead = state_pb.Revision(kinds={kind: version + 1000 for kind, version in trial.revision.items()})
    await trial.refused_in_time(trial.request(alone((x, 1)), min_revision=ahead), _PRECONDITION)


@_case("L05", "A call that waits for a revision holds up no other")
async def nobody_waits(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a")], [x]))
    await trial.ask_one(alone((x, 1)))
    ahead = state_pb.Revision(kinds={kind: version + 1000 for kind, version in trial.revision.items()})
    request = trial.request(alone((x, 1)), min_revision=ahead)
    waiting = asyncio.create_task(trial.refused(request, _PRECONDITION))
    for _ in range(5):
        await trial.ask_one(alone((x, 1)))
    others_first = not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    expect(others_first, "small questions were answered only after a call that waited for its revision to its deadline")


@_case("L06", "A call that its caller gives up harms no later one")
async def given_up(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world(nodes("n", 10, 8), [x]))
    ahead = state_pb.Revision(kinds={kind: version + 1000 for kind, version in trial.revision.items()})
    for _ in range(5):
        call = asyncio.create_task(trial.call(trial.request(alone((x, 8)), min_revision=ahead)))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    placed(await trial.ask_one(alone((x, 80))), 80)
