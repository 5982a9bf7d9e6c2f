"""Revisions: no answer is based on a state older than min_revision, on half a snapshot, or on a broken stream."""

from typing import Final

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.conformance.builders import bound, cluster, node, nodes, pod_class, single_gang
from muster.conformance.case import Cases, Failed, Unsafe
from muster.conformance.case_run import CaseRun, expect, not_placed, placed
from muster.gangs.facts import Batch
from muster.rpc.watch_codec import encode_batch, encode_revision

CASES: Final = Cases()
_case = CASES.case

_PRECONDITION, _UNAVAILABLE = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE
_HALF_SECONDS: Final = 0.6
"""Deadline of a request that may wait for the other half of a snapshot."""
_X: Final = pod_class(1)


@_case("R01", "A request with a future min_revision waits for that revision and is answered by it")
async def waits_for_revision(run: CaseRun) -> None:
    await run.start(cluster([node("a", 4)], [_X]))
    await run.solve_one(single_gang((_X, 4)))
    next_one = {kind: version + 1 for kind, version in run.revision.items()}
    request = run.request(single_gang((_X, 4)), min_revision=encode_revision(next_one))
    waiting = run.concurrently(run.call(request))
    for _ in range(3):  # answered meanwhile, so the other call has certainly arrived
        await run.solve_one(single_gang((_X, 4)))
    expect(not waiting.done(), "the request was answered before its min_revision arrived")
    run.change(Batch(pods=tuple(bound(_X, "a"))))
    not_placed((await waiting).results[0])


@_case("R02", "A request whose revision does not arrive in time is rejected with FAILED_PRECONDITION, for each kind")
async def missing_revision(run: CaseRun) -> None:
    await run.start(cluster([node("a")], [_X]))
    await run.solve_one(single_gang((_X, 1)))
    for kinds in ({"pods": 10**9}, {"nodes": 10**9}, {**run.revision, "configmaps": 1}):
        request = run.request(single_gang((_X, 1)), min_revision=encode_revision(kinds))
        await run.expect_timely_rejection(request, _PRECONDITION)


@_case("R03", "An answer states the revision that it is based on, at least min_revision")
async def states_revision(run: CaseRun) -> None:
    await run.start(cluster([node("a")], [_X]))
    for _ in range(3):
        run.change(Batch(nodes=(node("a"),)))
        response = await run.call(run.request(single_gang((_X, 1))))
        expect(response.revision.kinds, "the answer does not state its revision")


@_case("R04", "A revision that rises without any change is reached as well")
async def revision_without_change(run: CaseRun) -> None:
    await run.start(cluster([node("a")], [_X]))
    run.change(Batch())
    placed(await run.solve_one(single_gang((_X, 1))), 1)


@_case("R05", "A snapshot takes effect when it is complete, not before")
async def half_a_snapshot(run: CaseRun) -> None:
    await run.start(cluster([node("a", 4)], [_X]))
    placed(await run.solve_one(single_gang((_X, 4))), 4)
    coming = cluster([node("b", 2), node("c", 1)], [_X], [bound(_X, "b", 2)])
    coming.revision = {kind: version + 10 for kind, version in run.revision.items()}
    run.stream.send(
        pb.WatchResponse(snapshot_begin=pb.SnapshotBegin(reason="half a snapshot")),
        pb.WatchResponse(batch=encode_batch(Batch(pod_classes=(_X,), nodes=(node("b", 2),)))),
    )
    request = run.request(single_gang((_X, 2)), min_revision=encode_revision(coming.revision))
    await run.expect_timely_rejection(request, _PRECONDITION, _UNAVAILABLE)
    try:  # answered on the previous state or not at all, never on half a snapshot
        await run.call(run.request(single_gang((_X, 2)), min_revision=encode_revision({})), seconds=_HALF_SECONDS)
    except Unsafe:
        raise
    except Failed:
        pass
    run.stream.start(coming)
    not_placed(await run.solve_one(single_gang((_X, 2))))
    placed(await run.solve_one(single_gang((_X, 1))), 1)


@_case("R06", "A new snapshot on the same stream replaces the previous state")
async def replaced_snapshot(run: CaseRun) -> None:
    await run.start(cluster(nodes("old", 3, 4), [_X]))
    placed(await run.solve_one(single_gang((_X, 12))), 12)
    await run.start(cluster([node("new", 3)], [_X]))
    not_placed(await run.solve_one(single_gang((_X, 4))))
    placed(await run.solve_one(single_gang((_X, 3))), 3)


@_case("R07", "After a broken stream it subscribes again; until the snapshot, newer revisions are not answered")
async def broken_stream(run: CaseRun) -> None:
    await run.start(cluster([node("a", 4)], [_X]))
    placed(await run.solve_one(single_gang((_X, 4))), 4)
    run.stream.disconnect()
    coming = cluster([node("b", 2)], [_X])
    ahead = encode_revision({kind: version + 1 for kind, version in run.revision.items()})
    request = run.request(single_gang((_X, 1)), min_revision=ahead)
    try:
        await run.expect_timely_rejection(request, _UNAVAILABLE, _PRECONDITION)
        await run.start(coming)
    finally:
        run.stream.resume()
    placed(await run.solve_one(single_gang((_X, 2))), 2)
    not_placed(await run.solve_one(single_gang((_X, 3))))


@_case("R08", "An unknown pod class is rejected with FAILED_PRECONDITION")
async def unknown_class(run: CaseRun) -> None:
    await run.start(cluster([node("a")], [_X]))
    unknown = pod_class(0.125, memory=run.revision["pods"])  # a different class in every run
    await run.expect_rejection(run.request(single_gang((unknown, 1))), _PRECONDITION)
    run.change(Batch(pod_classes=(unknown,), nodes=(node("a", memory=10**6),)))
    placed(await run.solve_one(single_gang((unknown, 1))), 1)
