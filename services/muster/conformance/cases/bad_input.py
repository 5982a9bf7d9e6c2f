"""Bad input: a question that makes no sense is refused with INVALID_ARGUMENT, and in words that quote what is wrong."""

from typing import Final

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.building import (
    alone,
    factor,
    gang,
    node,
    nodes_of,
    nominated,
    pack,
    partition,
    pod_class,
    potential_victim,
    reservation,
    sizes,
    spread,
    together,
    tree,
    world,
)
from muster.conformance.case import Cases, Feature
from muster.conformance.trial import Trial, expect, placed
from muster.gangs.facts import LevelConstraint
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case

_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
_X: Final = pod_class(1)


async def _given(trial: Trial) -> None:
    await trial.given(world([node("a", 4)], [_X]))


async def _refused(trial: Trial, *groups: pb.GangGroup, quoting: str = "", **parts: object) -> None:
    said = await trial.refused(trial.request(*groups, **parts), _INVALID)
    expect(said and quoting in said, f"the refusal does not quote {quoting!r}: {said!r}")


@_case("B01", "A group without gangs, a gang without members, a role that wants nobody (P36)")
async def nobody(trial: Trial) -> None:
    await _given(trial)
    await _refused(trial, pb.GangGroup(id="hollow"), quoting="hollow")
    await _refused(trial, together(gang(id="empty", minimum=1)), quoting="empty")
    await _refused(trial, alone((_X, 1), (_X, 0), id="zero"), quoting="zero")


@_case("B02", "A minimum of 0, or above the number wanted (P36)")
async def minimum(trial: Trial) -> None:
    await _given(trial)
    await _refused(trial, alone((_X, 2), id="train", minimum=3), quoting="train")
    await _refused(trial, alone((_X, 2), id="train", minimum=0), quoting="train")


@_case("B03", "A group, a gang or a reserved pod that is named twice")
async def twice(trial: Trial) -> None:
    await _given(trial)
    await _refused(trial, together(gang((_X, 1), id="a"), id="g"), together(gang((_X, 1), id="b"), id="g"))
    await _refused(trial, alone((_X, 1), id="same"), together(gang((_X, 1), id="same"), id="h"), quoting="same")
    held = [reservation("a", _X, "pod-7"), reservation("a", _X, "pod-7")]
    await _refused(trial, alone((_X, 1)), reservations=held, quoting="pod-7")


@_case("B04", "Potential victims for more than one group, or named twice")
async def two_groups(trial: Trial) -> None:
    await _given(trial)
    groups = alone((_X, 1), id="a"), alone((_X, 1), id="b")
    await _refused(trial, *groups, potential_victims=[potential_victim("low", ("a", _X, 1))])
    await _refused(
        trial, groups[0], potential_victims=[potential_victim("low"), potential_victim("low")], quoting="low"
    )


@_case("B05", "Less than nothing nominated")
async def less_than_nothing(trial: Trial) -> None:
    await _given(trial)
    amounts = [state_pb.ResourceAmount(name="cpu", amount=-5)]
    await _refused(trial, alone((_X, 1)), nominated=[pb.NominatedCapacity(node="a", amounts=amounts)], quoting="-5")


@_case("B06", "Nodes that do not exist are no mistake in reservations and room nominated: they have just gone")
async def nodes_that_went(trial: Trial) -> None:
    await _given(trial)
    parts = {"reservations": [reservation("gone", _X, "p")], "nominated": [nominated("gone", 2)]}
    placed(await trial.ask_one(alone((_X, 4)), **parts), 4)


@_case("B07", "After a refusal everything is as before")
async def as_before(trial: Trial) -> None:
    await _given(trial)
    await _refused(trial, alone((_X, 4), id="fine"), alone((_X, 1), id="bad", minimum=2))
    placed(await trial.ask_one(alone((_X, 4))), 4)


_RACKS: Final = {"r0": {"a": 4, "b": 4}, "r1": {"c": 4}}


async def _contradict(trial: Trial, *constraints: LevelConstraint, count: int = 6, minimum: int | None = None) -> None:
    await _refused(trial, alone((_X, count), minimum=minimum, constraints=constraints))


@_case("B08", "A level or a tree that does not exist (P36)", Feature.CONSTRAINTS)
async def unknown_level(trial: Trial) -> None:
    await trial.given(world(nodes_of(_RACKS), [_X], trees=[tree("rack", _RACKS)]))
    await _refused(trial, alone((_X, 2), constraints=[pack("rock")]), quoting="rock")
    await _refused(trial, alone((_X, 2), tree="oak", constraints=[pack("rack")]), quoting="oak")


@_case("B09", "Constraints that contradict each other, before any search (P14)", Feature.CONSTRAINTS)
async def contradictory(trial: Trial) -> None:
    await trial.given(world(nodes_of(_RACKS), [_X], trees=[tree("rack", _RACKS)]))
    await _contradict(trial, sizes("node", 3, 4), factor("node", 5))
    await _contradict(trial, pack("rack"), spread("rack"))
    await _contradict(trial, pack("rack"), partition("rack", 2))
    await _contradict(trial, spread("rack"), partition("rack", 2))
    await _contradict(trial, pack("rack"), pack("rack", hard=True))
    await _contradict(trial, sizes("node", 4, 3))
    await _contradict(trial, sizes("node", 0, 3))
    await _contradict(trial, partition("rack", 0))
    await _contradict(trial, factor("rack", 0))


@_case("B10", "Hard constraints that no number of members can meet", Feature.CONSTRAINTS)
async def never_met(trial: Trial) -> None:
    await trial.given(world(nodes_of(_RACKS), [_X], trees=[tree("rack", _RACKS)]))
    await _contradict(trial, factor("node", 4, hard=True), count=6)
    await _contradict(trial, sizes("node", 4, 4, hard=True), count=7, minimum=5)
    await _contradict(trial, partition("rack", 3, hard=True), count=2)
