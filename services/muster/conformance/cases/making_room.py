"""Completeness, continued: who has to go for a gang that has no place otherwise."""

from typing import Final

from muster.conformance.building import alone, bound, node, nodes, pod_class, potential_victim, world
from muster.conformance.case import Cases, Feature
from muster.conformance.trial import Trial, expect, not_placed, placed
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case


def _gone(result: pb.GroupResult) -> dict[str, int]:
    """Pods removed by gang."""
    return {gang.id: sum(pods.count for pods in gang.pods) for gang in result.victims}


@_case("C30", "Nothing is removed for a gang that has a place", Feature.PREEMPTION)
async def has_a_place(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world(nodes("n", 2, 4), [x], [bound(x, "n-0", 4)]))
    result = await trial.ask_one(alone((x, 4)), potential_victims=[potential_victim("low", ("n-0", x, 4), spare=4)])
    placed(result, 4)
    expect(not result.victims, f"{_gone(result)} is removed for nothing")


@_case("C31", "What is removed is of the lowest level that suffices", Feature.PREEMPTION)
async def lowest_level(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4), node("b", 4)], [x], [bound(x, "a", 4), bound(x, "b", 4)]))
    offers = [potential_victim("high", ("a", x, 4), level=1), potential_victim("low", ("b", x, 4), level=0)]
    result = await trial.ask_one(alone((x, 2)), potential_victims=offers)
    placed(result, 2)
    expect(_gone(result) == {"low": 4}, f"{_gone(result)} is removed instead of the gang of the lower level")
    both = await trial.ask_one(alone((x, 6)), potential_victims=offers)
    placed(both, 6)
    expect(_gone(both) == {"low": 4, "high": 4}, f"{_gone(both)} is removed")


@_case("C32", "Spare members go one by one, and no more of them than the place needs", Feature.PREEMPTION)
async def spare_members(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 8)], [x], [bound(x, "a", 8)]))
    offers = [potential_victim("sparing", ("a", x, 4), spare=3), potential_victim("whole", ("a", x, 4))]
    result = await trial.ask_one(alone((x, 3)), potential_victims=offers)
    placed(result, 3)
    expect(_gone(result) == {"sparing": 3}, f"{_gone(result)} is removed; three that can be spared were enough")


@_case("C33", "As few gangs as possible go whole (P38 without racks)", Feature.PREEMPTION)
async def fewest(trial: Trial) -> None:
    x = pod_class(1)
    pods = [bound(x, "a", 4), bound(x, "b", 2), bound(x, "c", 2)]
    await trial.given(world([node("a", 4), node("b", 2), node("c", 2)], [x], pods))
    offers = [
        potential_victim("b", ("b", x, 2)),
        potential_victim("c", ("c", x, 2)),
        potential_victim("a", ("a", x, 4)),
    ]
    result = await trial.ask_one(alone((x, 4)), potential_victims=offers)
    placed(result, 4)
    expect(_gone(result) == {"a": 4}, f"{_gone(result)} is removed; one gang was enough")


@_case("C34", "A gang that has no place even if all of it went has none, and nothing is removed", Feature.PREEMPTION)
async def not_even_then(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4)], [x], [bound(x, "a", 4)]))
    not_placed(await trial.ask_one(alone((x, 5)), potential_victims=[potential_victim("low", ("a", x, 4))]))
