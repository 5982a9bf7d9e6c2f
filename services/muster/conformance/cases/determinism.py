"""Determinism: the same request on the same cluster gets the same answer, whatever happened before."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from muster.conformance.builders import bound, cluster, node, nodes_of, pack, pod_class, single_gang, spread, tree
from muster.conformance.case import Cases
from muster.conformance.case_run import CaseRun, expect
from muster.conformance.cluster import Cluster
from muster.gangs.facts import Batch
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case

_X, _Y, _Z = pod_class(1), pod_class(2, memory=3), pod_class(1, gpu=1)
_TREE: Final = {"r0": {"a": 4, "b": 4, "c": 6}, "r1": {"d": 8, "e": 3}, "r2": {"f": 5, "g": 5}}


def _world() -> Cluster:
    gpus = [node("h", 3, gpu=2), node("i", 3, gpu=2)]
    pods = [bound(_X, "a"), bound(_Y, "d"), bound(_X, "f", 2)]
    return cluster([*nodes_of(_TREE), *gpus], [_X, _Y, _Z], pods, [tree("rack", _TREE)])


def _batches() -> list[list[pb.GangGroup]]:
    shaped = [pack("rack"), spread("node")]
    return [
        [single_gang((_X, 5)), single_gang((_X, 4), id="second")],
        [single_gang((_X, 6), constraints=shaped), single_gang((_Y, 3), id="second", constraints=[pack("rack")])],
        [single_gang((_X, 3), (_Y, 3), (_Z, 2)), single_gang((_Z, 2), id="second", minimum=1)],
        [single_gang((_X, 60), id="too many"), single_gang((_Y, 4), id="second")],
        [single_gang((_X, 60), id="partly", partial=True)],
    ]


def _results(responses: Sequence[pb.SolveResponse]) -> list[bytes]:
    """The answers without their revisions, serialised deterministically."""
    return [pb.SolveResponse(results=each.results).SerializeToString(deterministic=True) for each in responses]


async def _all(run: CaseRun) -> list[bytes]:
    return _results([await run.call(run.request(*groups)) for groups in _batches()])


@_case("D01", "A repeated request gets the same answer: a solve leaves no state behind")
async def repeated_request(run: CaseRun) -> None:
    await run.start(_world())
    first = await _all(run)
    for _ in range(3):
        expect(await _all(run) == first, "an answer changed although the cluster and the request did not")


@_case("D02", "The order of nodes, pods and classes in a snapshot does not change answers (P39)")
async def any_order(run: CaseRun) -> None:
    answers = []
    for seed in range(10):
        run.stream.order = Random(seed)  # noqa: S311 (the same in every run)
        await run.start(_world())
        answers.append(await _all(run))
    expect(all(each == answers[0] for each in answers), "an answer depends on the order of the snapshot")


@_case("D03", "A state reached by deltas gets the same answers as a snapshot of it")
async def by_deltas(run: CaseRun) -> None:
    await run.start(_world())
    at_once = await _all(run)
    whole = _world()
    await run.start(cluster([node("zz", 99)], [_X], [bound(_X, "zz", 5)]))
    run.change(Batch(pod_classes=tuple(whole.classes.values()), trees=tuple(whole.trees.values())))
    for machine in reversed(list(whole.nodes.values())):
        run.change(Batch(nodes=(machine,)))
    for pod in whole.pods.values():
        run.change(Batch(pods=(pod,)))
    removed = tuple(pod.uid for pod in bound(_X, "zz", 5))
    run.change(Batch(removed_nodes=("zz",), removed_pods=removed))
    expect(await _all(run) == at_once, "an answer differs from the one for a snapshot of the same state")


@_case("D04", "Nodes and pods that are removed again leave no trace in answers")
async def no_trace(run: CaseRun) -> None:
    await run.start(_world())
    first = await _all(run)
    back = run.stream.cluster.nodes["b"]
    run.change(Batch(removed_nodes=("b",)))
    run.change(Batch(nodes=(node("new", 20),), pods=tuple(bound(_Y, "e", 1))))
    await _all(run)
    run.change(Batch(nodes=(back,), removed_nodes=("new",), removed_pods=tuple(p.uid for p in bound(_Y, "e", 1))))
    expect(await _all(run) == first, "an answer changed although the state is the same again")


@_case("D05", "Concurrent requests do not change each other's answers")
async def concurrent_requests(run: CaseRun) -> None:
    await run.start(_world())
    sequential = await _all(run)
    concurrent = await asyncio.gather(*(run.concurrently(_all(run)) for _ in range(4)))
    expect(all(each == sequential for each in concurrent), "an answer depends on concurrent requests")
