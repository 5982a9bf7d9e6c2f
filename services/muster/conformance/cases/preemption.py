"""Completeness: which pods are preempted for a gang that does not fit otherwise."""

from typing import Final

from muster.conformance.builders import bound, cluster, node, nodes, pod_class, potential_victim, single_gang
from muster.conformance.case import Cases, Feature
from muster.conformance.case_run import CaseRun, expect, not_placed, placed
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case


def _victims(result: pb.GroupResult) -> dict[str, int]:
    """Number of victims by gang."""
    return {gang.id: sum(pods.count for pods in gang.pods) for gang in result.victims}


@_case("C30", "A gang that fits without preemption has no victims", Feature.PREEMPTION)
async def fits_without_preemption(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 2, 4), [x], [bound(x, "n-0", 4)]))
    result = await run.solve_one(
        single_gang((x, 4)), potential_victims=[potential_victim("low", ("n-0", x, 4), spare=4)]
    )
    placed(result, 4)
    expect(not result.victims, f"{_victims(result)} are preempted without need")


@_case("C31", "Victims are of the lowest preemption level that suffices", Feature.PREEMPTION)
async def lowest_level(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 4)], [x], [bound(x, "a", 4), bound(x, "b", 4)]))
    offers = [potential_victim("high", ("a", x, 4), level=1), potential_victim("low", ("b", x, 4), level=0)]
    result = await run.solve_one(single_gang((x, 2)), potential_victims=offers)
    placed(result, 2)
    expect(_victims(result) == {"low": 4}, f"{_victims(result)} are preempted instead of the gang of the lower level")
    both = await run.solve_one(single_gang((x, 6)), potential_victims=offers)
    placed(both, 6)
    expect(_victims(both) == {"low": 4, "high": 4}, f"{_victims(both)} are preempted")


@_case("C32", "Spare pods are preempted one by one, and no more of them than needed", Feature.PREEMPTION)
async def spare_pods(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 8)], [x], [bound(x, "a", 8)]))
    offers = [potential_victim("sparing", ("a", x, 4), spare=3), potential_victim("whole", ("a", x, 4))]
    result = await run.solve_one(single_gang((x, 3)), potential_victims=offers)
    placed(result, 3)
    expect(_victims(result) == {"sparing": 3}, f"{_victims(result)} are preempted, but three spare pods suffice")


@_case("C33", "As few gangs as possible are preempted whole (P38 without racks)", Feature.PREEMPTION)
async def fewest_gangs(run: CaseRun) -> None:
    x = pod_class(1)
    pods = [bound(x, "a", 4), bound(x, "b", 2), bound(x, "c", 2)]
    await run.start(cluster([node("a", 4), node("b", 2), node("c", 2)], [x], pods))
    offers = [
        potential_victim("b", ("b", x, 2)),
        potential_victim("c", ("c", x, 2)),
        potential_victim("a", ("a", x, 4)),
    ]
    result = await run.solve_one(single_gang((x, 4)), potential_victims=offers)
    placed(result, 4)
    expect(_victims(result) == {"a": 4}, f"{_victims(result)} are preempted, but one gang suffices")


@_case("C34", "A gang that does not fit even without all potential victims has no victims", Feature.PREEMPTION)
async def infeasible_without_all_victims(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4)], [x], [bound(x, "a", 4)]))
    not_placed(await run.solve_one(single_gang((x, 5)), potential_victims=[potential_victim("low", ("a", x, 4))]))
