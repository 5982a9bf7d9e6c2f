"""A gang that fits only an empty cluster starts under any stream of small ones (I8)."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_A_TIME = 12
"""Small gangs that exist at any time: 1.5 times the capacity."""
RUN_SECONDS = (0.6, 1.4)
RUN = "muster.dev/run-seconds"


@contextlib.asynccontextmanager
async def stream(world: World, *, announced: bool) -> AsyncIterator[list[Workload]]:
    """An endless stream of gangs of 4, all with the same duration: when one completes, the next is created.
    `announced`: they declare their duration, so that they may backfill.
    """
    chance = random.Random(47)
    born: list[Workload] = []

    async def one_after_another(lane: int) -> None:
        for number in range(10_000):
            run = f"{chance.uniform(*RUN_SECONDS):.2f}"
            small = gang(f"small-{lane}-{number}").of(4).marked({RUN: run})
            each = world.here(small.running_for(float(run)) if announced else small)
            born.append(each)
            await world.create(each)
            await world.ended(each, seconds=600)

    tasks = [asyncio.create_task(one_after_another(lane)) for lane in range(AT_A_TIME)]
    try:
        yield born
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("announced", [False, True])
async def test_g47_a_whole_cluster_gang_starts_under_an_endless_stream_i8(
    impatient_world: World, announced: bool
) -> None:
    world = impatient_world
    await world.nodes(*[4] * 8)
    large = gang("large").of(32)
    async with stream(world, announced=announced) as born:
        await world.cluster.until(lambda: len(born) > 2 * AT_A_TIME, "small gangs come and go")
        before = len(born)
        await world.create(large)
        await world.bound(large, seconds=60)
        await world.satisfied(large)
    assert len(born) > before, "others ran while it waited"


async def test_only_gangs_that_end_in_time_backfill_reserved_capacity_i8(impatient_world: World) -> None:
    world = impatient_world
    await world.nodes(4)
    now = gang("now").of(3).running_for(600)
    await world.create(now)
    await world.bound(now)
    head = gang("head").of(4)
    await world.create(head)
    await world.wait_for_nomination(head, nodes=1)
    long, short = plain("long"), plain("short").running_for(10)
    await world.create(long)
    await world.waits(long)
    await world.create(short)
    await world.bound(short)
    await world.end_pods(short)
    await world.end_pods(now)
    await world.bound(head)
    assert world.bound_pods(long) == {}
