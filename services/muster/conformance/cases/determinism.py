"""Determinism: the same cluster and the same question have the same answer, however the cluster came to be known."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from muster.conformance.building import alone, bound, node, nodes_of, pack, pod_class, spread, tree, world
from muster.conformance.case import Cases
from muster.conformance.trial import Trial, expect
from muster.conformance.world import World
from muster.gangs.facts import Batch
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case

_X, _Y, _Z = pod_class(1), pod_class(2, memory=3), pod_class(1, gpu=1)
_TREE: Final = {"r0": {"a": 4, "b": 4, "c": 6}, "r1": {"d": 8, "e": 3}, "r2": {"f": 5, "g": 5}}


def _world() -> World:
    gpus = [node("h", 3, gpu=2), node("i", 3, gpu=2)]
    pods = [bound(_X, "a"), bound(_Y, "d"), bound(_X, "f", 2)]
    return world([*nodes_of(_TREE), *gpus], [_X, _Y, _Z], pods, [tree("rack", _TREE)])


def _questions() -> list[list[pb.GangGroup]]:
    shaped = [pack("rack"), spread("node")]
    return [
        [alone((_X, 5)), alone((_X, 4), id="second")],
        [alone((_X, 6), constraints=shaped), alone((_Y, 3), id="second", constraints=[pack("rack")])],
        [alone((_X, 3), (_Y, 3), (_Z, 2)), alone((_Z, 2), id="second", minimum=1)],
        [alone((_X, 60), id="too many"), alone((_Y, 4), id="second")],
        [alone((_X, 60), id="partly", partial=True)],
    ]


def _results(responses: Sequence[pb.SolveResponse]) -> list[bytes]:
    """What was answered, without the revision, in the same bytes if it is the same."""
    return [pb.SolveResponse(results=each.results).SerializeToString(deterministic=True) for each in responses]


async def _all(trial: Trial) -> list[bytes]:
    return _results([await trial.call(trial.request(*groups)) for groups in _questions()])


@_case("D01", "The same question, asked again, has the same answer: nothing is kept of a solve")
async def asked_again(trial: Trial) -> None:
    await trial.given(_world())
    first = await _all(trial)
    for _ in range(3):
        expect(await _all(trial) == first, "an answer changed although nothing else did")


@_case("D02", "The order in which nodes, pods and classes come makes no difference (P39)")
async def any_order(trial: Trial) -> None:
    answers = []
    for seed in range(10):
        trial.stage.order = Random(seed)  # noqa: S311 (the same in every run)
        await trial.given(_world())
        answers.append(await _all(trial))
    expect(all(each == answers[0] for each in answers), "an answer changed when only the order of the snapshot did")


@_case("D03", "It makes no difference whether the state came as a snapshot or by deltas")
async def by_deltas(trial: Trial) -> None:
    await trial.given(_world())
    at_once = await _all(trial)
    whole = _world()
    await trial.given(world([node("zz", 99)], [_X], [bound(_X, "zz", 5)]))
    trial.then(Batch(pod_classes=tuple(whole.classes.values()), trees=tuple(whole.trees.values())))
    for machine in reversed(list(whole.nodes.values())):
        trial.then(Batch(nodes=(machine,)))
    for pod in whole.pods.values():
        trial.then(Batch(pods=(pod,)))
    gone = tuple(pod.uid for pod in bound(_X, "zz", 5))
    trial.then(Batch(removed_nodes=("zz",), removed_pods=gone))
    expect(await _all(trial) == at_once, "an answer differs from that on a snapshot of the same state")


@_case("D04", "A node that goes and comes back, and pods that come and go, leave no trace")
async def no_trace(trial: Trial) -> None:
    await trial.given(_world())
    first = await _all(trial)
    back = trial.stage.world.nodes["b"]
    trial.then(Batch(removed_nodes=("b",)))
    trial.then(Batch(nodes=(node("new", 20),), pods=tuple(bound(_Y, "e", 1))))
    await _all(trial)
    trial.then(Batch(nodes=(back,), removed_nodes=("new",), removed_pods=tuple(p.uid for p in bound(_Y, "e", 1))))
    expect(await _all(trial) == first, "an answer changed although the state is as it was")


@_case("D05", "What others ask at the same time makes no difference")
async def others_asking(trial: Trial) -> None:
    await trial.given(_world())
    alone_there = await _all(trial)
    together = await asyncio.gather(*(_all(trial) for _ in range(4)))
    expect(all(each == alone_there for each in together), "an answer changed when others asked at the same time")
