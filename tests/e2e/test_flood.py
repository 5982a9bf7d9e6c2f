"""20,000 pending pods at once: the head of the queue starts when capacity is free, and memory stays bounded."""

import asyncio

import psutil
import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

GANGS, SIZE = 100, 8
MOST_KIB_PER_POD = 60
"""Limit of the coordinator's memory per pending pod; measured: 10 to 20."""


def memory_kib(world: World) -> float:
    """Current memory of the coordinator's process."""
    return psutil.Process(world.cluster.stack.children["coordinator"].pid).memory_info().rss / 1024


def in_turn(gangs: list[Workload], world: World) -> list[Workload]:
    """Started pods in queue order."""
    started = [each for each in gangs if len(world.bound_pods(each)) == SIZE]
    known = world.cluster.gangs
    return sorted(started, key=lambda each: (known[world.here(each).id].created_seconds, each.name))


async def test_i10_20000_pending_pods_have_reasons_and_start_in_order(world: World) -> None:
    await world.nodes(1)
    first = gang("a-first").of(SIZE)
    await world.create(first)
    await world.waits(first, "members fit")
    before = memory_kib(world)
    await world.cluster.stack.kill("binding")  # reports queue up
    crowd = [gang(f"crowd-{number:03}").of(SIZE) for number in range(GANGS)]
    await asyncio.gather(*(world.create(each) for each in crowd))
    for each in crowd:
        await world.waits(each, "members fit", seconds=90)
    assert memory_kib(world) - before < MOST_KIB_PER_POD * GANGS * SIZE

    await world.nodes(SIZE)
    await world.cluster.stack.start(["binding"])
    await world.bound(first, seconds=60)
    assert not in_turn(crowd, world)
    for each in (crowd[0], crowd[-1]):
        await world.unschedulable(each, "fit")
    await world.nodes(*[SIZE] * 3)
    waiting = sorted(crowd, key=lambda each: (world.cluster.gangs[world.here(each).id].created_seconds, each.name))
    await world.bound(*waiting[:3], seconds=60)
    assert in_turn(crowd, world) == waiting[:3]
