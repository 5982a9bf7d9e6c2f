"""Bad input: invalid requests are rejected with INVALID_ARGUMENT, and the message quotes the invalid value."""

from typing import Final

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.builders import (
    cluster,
    factor,
    gang,
    gang_group,
    node,
    nodes_of,
    nominated,
    pack,
    partition,
    pod_class,
    potential_victim,
    reservation,
    single_gang,
    sizes,
    spread,
    tree,
)
from muster.conformance.case import Cases, Feature
from muster.conformance.case_run import CaseRun, expect, placed
from muster.gangs.facts import LevelConstraint
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case

_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
_X: Final = pod_class(1)


async def _given(run: CaseRun) -> None:
    await run.start(cluster([node("a", 4)], [_X]))


async def _refused(run: CaseRun, *groups: pb.GangGroup, quoting: str = "", **parts: object) -> None:
    said = await run.expect_rejection(run.request(*groups, **parts), _INVALID)
    expect(said and quoting in said, f"the message does not quote {quoting!r}: {said!r}")


@_case("B01", "A group without gangs, a gang without members, a role that wants no member (P36)")
async def empty_groups(run: CaseRun) -> None:
    await _given(run)
    await _refused(run, pb.GangGroup(id="hollow"), quoting="hollow")
    await _refused(run, gang_group(gang(id="empty", minimum=1)), quoting="empty")
    await _refused(run, single_gang((_X, 1), (_X, 0), id="zero"), quoting="zero")


@_case("B02", "A minimum of 0, or above the number of members wanted (P36)")
async def minimum(run: CaseRun) -> None:
    await _given(run)
    await _refused(run, single_gang((_X, 2), id="train", minimum=3), quoting="train")
    await _refused(run, single_gang((_X, 2), id="train", minimum=0), quoting="train")


@_case("B03", "A duplicate id of a group, a gang or a reserved pod")
async def duplicate_ids(run: CaseRun) -> None:
    await _given(run)
    await _refused(run, gang_group(gang((_X, 1), id="a"), id="g"), gang_group(gang((_X, 1), id="b"), id="g"))
    await _refused(run, single_gang((_X, 1), id="same"), gang_group(gang((_X, 1), id="same"), id="h"), quoting="same")
    held = [reservation("a", _X, "pod-7"), reservation("a", _X, "pod-7")]
    await _refused(run, single_gang((_X, 1)), reservations=held, quoting="pod-7")


@_case("B04", "Potential victims for more than one group, or a duplicate id among them")
async def victims_for_two_groups(run: CaseRun) -> None:
    await _given(run)
    groups = single_gang((_X, 1), id="a"), single_gang((_X, 1), id="b")
    await _refused(run, *groups, potential_victims=[potential_victim("low", ("a", _X, 1))])
    await _refused(run, groups[0], potential_victims=[potential_victim("low"), potential_victim("low")], quoting="low")


@_case("B05", "Nominated capacity with a negative amount")
async def negative_amounts(run: CaseRun) -> None:
    await _given(run)
    amounts = [state_pb.ResourceAmount(name="cpu", amount=-5)]
    await _refused(run, single_gang((_X, 1)), nominated=[pb.NominatedCapacity(node="a", amounts=amounts)], quoting="-5")


@_case("B06", "Unknown nodes in reservations and nominated capacity are accepted: they may just have been removed")
async def unknown_nodes(run: CaseRun) -> None:
    await _given(run)
    parts = {"reservations": [reservation("gone", _X, "p")], "nominated": [nominated("gone", 2)]}
    placed(await run.solve_one(single_gang((_X, 4)), **parts), 4)


@_case("B07", "A rejected request leaves no trace")
async def no_trace_of_rejections(run: CaseRun) -> None:
    await _given(run)
    await _refused(run, single_gang((_X, 4), id="fine"), single_gang((_X, 1), id="bad", minimum=2))
    placed(await run.solve_one(single_gang((_X, 4))), 4)


_RACKS: Final = {"r0": {"a": 4, "b": 4}, "r1": {"c": 4}}


async def _contradict(run: CaseRun, *constraints: LevelConstraint, count: int = 6, minimum: int | None = None) -> None:
    await _refused(run, single_gang((_X, count), minimum=minimum, constraints=constraints))


@_case("B08", "An unknown level or tree (P36)", Feature.CONSTRAINTS)
async def unknown_level(run: CaseRun) -> None:
    await run.start(cluster(nodes_of(_RACKS), [_X], trees=[tree("rack", _RACKS)]))
    await _refused(run, single_gang((_X, 2), constraints=[pack("rock")]), quoting="rock")
    await _refused(run, single_gang((_X, 2), tree="oak", constraints=[pack("rack")]), quoting="oak")


@_case("B09", "Contradictory constraints are rejected before any search (P14)", Feature.CONSTRAINTS)
async def contradictory(run: CaseRun) -> None:
    await run.start(cluster(nodes_of(_RACKS), [_X], trees=[tree("rack", _RACKS)]))
    await _contradict(run, sizes("node", 3, 4), factor("node", 5))
    await _contradict(run, pack("rack"), spread("rack"))
    await _contradict(run, pack("rack"), partition("rack", 2))
    await _contradict(run, spread("rack"), partition("rack", 2))
    await _contradict(run, pack("rack"), pack("rack", hard=True))
    await _contradict(run, sizes("node", 4, 3))
    await _contradict(run, sizes("node", 0, 3))
    await _contradict(run, partition("rack", 0))
    await _contradict(run, factor("rack", 0))


@_case("B10", "Hard constraints that no number of members can satisfy", Feature.CONSTRAINTS)
async def unsatisfiable(run: CaseRun) -> None:
    await run.start(cluster(nodes_of(_RACKS), [_X], trees=[tree("rack", _RACKS)]))
    await _contradict(run, factor("node", 4, hard=True), count=6)
    await _contradict(run, sizes("node", 4, 4, hard=True), count=7, minimum=5)
    await _contradict(run, partition("rack", 3, hard=True), count=2)
