"""More pods than there is room for, at once: whoever stands first starts when room comes, and memory stays bounded."""

import asyncio

import psutil
import pytest

from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

GANGS, SIZE = 100, 8
MOST_KIB_PER_POD = 60
"""Of the coordinator's memory. A pod that waits takes 10 to 20."""


def memory_kib(scene: Scene) -> float:
    """Of the coordinator's process now."""
    return psutil.Process(scene.cluster.stack.children["coordinator"].pid).memory_info().rss / 1024


def in_turn(gangs: list[Workload], scene: Scene) -> list[Workload]:
    """Those that have started, as they stand in the queue."""
    started = [each for each in gangs if len(scene.bound_pods(each)) == SIZE]
    known = scene.cluster.gangs
    return sorted(started, key=lambda each: (known[scene.here(each).id].created_seconds, each.name))


async def test_i10_a_flood_waits_within_bounds_is_told_why_and_starts_in_turn(scene: Scene) -> None:
    await scene.nodes(1)
    first = gang("a-first").of(SIZE)
    await scene.create(first)
    await scene.waits(first, "members fit")
    before = memory_kib(scene)
    await scene.cluster.stack.kill("binding")  # what is to be told piles up
    crowd = [gang(f"crowd-{number:03}").of(SIZE) for number in range(GANGS)]
    await asyncio.gather(*(scene.create(each) for each in crowd))
    for each in crowd:
        await scene.waits(each, "members fit", seconds=90)
    assert memory_kib(scene) - before < MOST_KIB_PER_POD * GANGS * SIZE

    await scene.nodes(SIZE)
    await scene.cluster.stack.start(["binding"])
    await scene.bound(first, seconds=60)
    assert not in_turn(crowd, scene)
    for each in (crowd[0], crowd[-1]):
        await scene.unschedulable(each, "fit")
    await scene.nodes(*[SIZE] * 3)
    waiting = sorted(crowd, key=lambda each: (scene.cluster.gangs[scene.here(each).id].created_seconds, each.name))
    await scene.bound(*waiting[:3], seconds=60)
    assert in_turn(crowd, scene) == waiting[:3]
