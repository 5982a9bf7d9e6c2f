"""Waiting gangs that hold what each other needs: the lowest in queue order gives way, within seconds, and says so."""

import pytest

from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")


def loose(name: str) -> Workload:
    """A NonStrict gang that would wait for ever."""
    return gang(name).annotated(mode="NonStrict", waiting_time="3600s")


async def test_g08_two_gangs_that_hold_what_each_other_needs_do_not_wait_for_ever(scene: Scene) -> None:
    await scene.nodes(2)
    low, high = loose("low").of(5), loose("high").of(5).with_priority(10)
    await scene.create(low)
    await scene.holds(low, 2)
    await scene.create(high)
    await scene.waits(high, "fit")
    await scene.nodes(3)
    await scene.bound(high)
    assert scene.bound_pods(low) == {}
    await scene.event(low, "high")
    await scene.delete(high)
    await scene.bound(low)


async def test_g08_of_three_gangs_that_hold_what_each_other_needs_one_starts_and_then_another(scene: Scene) -> None:
    gangs = [loose(f"g{number}").of(4).with_priority(number).harming_nobody() for number in range(3)]
    for each in gangs:  # two seats come for each; who is higher in the queue takes them
        await scene.create(each)
        await scene.nodes(2)
    while gangs:
        started = await scene.one_bound(*gangs)
        gangs.remove(started)
        await scene.delete(started)
