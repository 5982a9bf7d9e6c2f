"""Revisions: no answer on a state older than asked for, on half a snapshot, or on one that is not followed any more."""

import asyncio
from typing import Final

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.conformance.building import alone, bound, node, nodes, pod_class, world
from muster.conformance.case import Cases, Failed, Unsafe
from muster.conformance.trial import Trial, expect, not_placed, placed
from muster.gangs.facts import Batch
from muster.rpc.watch_codec import encode_batch, encode_revision

CASES: Final = Cases()
_case = CASES.case

_PRECONDITION, _UNAVAILABLE = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE
_HALF_SECONDS: Final = 0.6
"""How long a question is left to wait for the other half of a snapshot."""
_X: Final = pod_class(1)


@_case("R01", "A question about a revision that has not come yet waits for it, and is answered by it")
async def waits(trial: Trial) -> None:
    await trial.given(world([node("a", 4)], [_X]))
    await trial.ask_one(alone((_X, 4)))
    next_one = {kind: version + 1 for kind, version in trial.revision.items()}
    request = trial.request(alone((_X, 4)), min_revision=encode_revision(next_one))
    waiting = asyncio.create_task(trial.call(request))
    for _ in range(3):  # answered meanwhile: the other call has been there for a while
        await trial.ask_one(alone((_X, 4)))
    expect(not waiting.done(), "it was answered before the revision that it asked for had come")
    trial.then(Batch(pods=tuple(bound(_X, "a"))))
    not_placed((await waiting).results[0])


@_case("R02", "A revision that does not come in time is refused with FAILED_PRECONDITION, for each kind")
async def does_not_come(trial: Trial) -> None:
    await trial.given(world([node("a")], [_X]))
    await trial.ask_one(alone((_X, 1)))
    for kinds in ({"pods": 10**9}, {"nodes": 10**9}, {**trial.revision, "configmaps": 1}):
        request = trial.request(alone((_X, 1)), min_revision=encode_revision(kinds))
        await trial.refused_in_time(request, _PRECONDITION)


@_case("R03", "An answer says which state it is based on, at least that which was asked for")
async def told(trial: Trial) -> None:
    await trial.given(world([node("a")], [_X]))
    for _ in range(3):
        trial.then(Batch(nodes=(node("a"),)))
        response = await trial.call(trial.request(alone((_X, 1))))
        expect(response.revision.kinds, "the answer does not say which state it is based on")


@_case("R04", "A revision that rises without a change is reached as well")
async def rises(trial: Trial) -> None:
    await trial.given(world([node("a")], [_X]))
    trial.then(Batch())
    placed(await trial.ask_one(alone((_X, 1))), 1)


@_case("R05", "A snapshot counts when it is complete, not before")
async def half_a_snapshot(trial: Trial) -> None:
    await trial.given(world([node("a", 4)], [_X]))
    placed(await trial.ask_one(alone((_X, 4))), 4)
    coming = world([node("b", 2), node("c", 1)], [_X], [bound(_X, "b", 2)])
    coming.revision = {kind: version + 10 for kind, version in trial.revision.items()}
    trial.stage.send(
        pb.WatchResponse(snapshot_begin=pb.SnapshotBegin(reason="half of it")),
        pb.WatchResponse(batch=encode_batch(Batch(pod_classes=(_X,), nodes=(node("b", 2),)))),
    )
    request = trial.request(alone((_X, 2)), min_revision=encode_revision(coming.revision))
    await trial.refused_in_time(request, _PRECONDITION, _UNAVAILABLE)
    try:  # that is on the state before, or it waits for the rest; never on the half
        await trial.call(trial.request(alone((_X, 2)), min_revision=encode_revision({})), seconds=_HALF_SECONDS)
    except Unsafe:
        raise
    except Failed:
        pass
    trial.stage.begin(coming)
    not_placed(await trial.ask_one(alone((_X, 2))))
    placed(await trial.ask_one(alone((_X, 1))), 1)


@_case("R06", "A snapshot on the same stream replaces what was there before it")
async def replaced(trial: Trial) -> None:
    await trial.given(world(nodes("old", 3, 4), [_X]))
    placed(await trial.ask_one(alone((_X, 12))), 12)
    await trial.given(world([node("new", 3)], [_X]))
    not_placed(await trial.ask_one(alone((_X, 4))))
    placed(await trial.ask_one(alone((_X, 3))), 3)


@_case("R07", "When the stream is cut it subscribes again; until a snapshot is there, nothing newer is answered")
async def cut(trial: Trial) -> None:
    await trial.given(world([node("a", 4)], [_X]))
    placed(await trial.ask_one(alone((_X, 4))), 4)
    trial.stage.cut()
    coming = world([node("b", 2)], [_X])
    ahead = encode_revision({kind: version + 1 for kind, version in trial.revision.items()})
    request = trial.request(alone((_X, 1)), min_revision=ahead)
    try:
        await trial.refused_in_time(request, _UNAVAILABLE, _PRECONDITION)
        await trial.given(coming)
    finally:
        trial.stage.speak()
    placed(await trial.ask_one(alone((_X, 2))), 2)
    not_placed(await trial.ask_one(alone((_X, 3))))


@_case("R08", "A class that no pod of this revision brought is refused with FAILED_PRECONDITION")
async def unknown_class(trial: Trial) -> None:
    await trial.given(world([node("a")], [_X]))
    unheard = pod_class(0.125, memory=trial.revision["pods"])  # another one in every play
    await trial.refused(trial.request(alone((unheard, 1))), _PRECONDITION)
    trial.then(Batch(pod_classes=(unheard,), nodes=(node("a", memory=10**6),)))
    placed(await trial.ask_one(alone((unheard, 1))), 1)
