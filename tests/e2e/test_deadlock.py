"""Deadlocks of NonStrict gangs: the lowest in queue order releases its reservations within seconds and reports it."""

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")


def loose(name: str) -> Workload:
    """A NonStrict gang without a timeout within the test."""
    return gang(name).non_strict(3600)


async def test_g08_two_gangs_that_hold_each_others_capacity_do_not_deadlock(world: World) -> None:
    await world.nodes(2)
    low, high = loose("low").of(5), loose("high").of(5).with_priority(10)
    await world.create(low)
    await world.holds(low, 2)
    await world.create(high)
    await world.waits(high, "fit")
    await world.nodes(3)
    await world.bound(high)
    assert world.bound_pods(low) == {}
    await world.event(low, "high")
    await world.delete(high)
    await world.bound(low)


async def test_g08_three_gangs_that_hold_each_others_capacity_start_in_turn(world: World) -> None:
    gangs = [loose(f"g{number}").of(4).with_priority(number).never_preempting() for number in range(3)]
    for each in gangs:  # two seats become free for each; the higher in the queue takes them
        await world.create(each)
        await world.nodes(2)
    while gangs:
        started = await world.one_bound(*gangs)
        gangs.remove(started)
        await world.delete(started)
