"""Infeasible gangs cost nothing while no event could help them: counted in solve requests, not in time."""

import asyncio
import itertools

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNRELATED_EVENTS = 200
QUIET_IN_A_ROW = 40


async def pending_gangs(world: World, count: int, priority: int) -> list[Workload]:
    """Create this many infeasible gangs of several shapes, tried by a coordinator that starts with all of them."""
    gangs = [
        gang(f"g{number:03}").of(2 + number % 2).asking(cpu=4 + number % 5).with_priority(priority)
        for number in range(count)
    ]
    await world.cluster.stack.stop_one("coordinator")
    await world.create(*gangs)
    await world.cluster.stack.start(["coordinator"])
    for each in gangs:
        await world.waits(each, "members fit")
    return gangs


def small(name: str, priority: int) -> Workload:
    """A pod that fits and would not be a victim for the pending gangs."""
    return plain(name).asking(cpu="1m").with_priority(priority)


async def asked_for(world: World, fence: Workload, since: int) -> list[set[str]]:
    """Solve requests since then, up to the one for this pod, which is created now."""
    await world.create(fence)
    await world.bound(fence)
    await world.satisfied(fence)
    return [{group.id for group in request.groups} for request in world.cluster.solves.asked[since:]]


async def settled(world: World, priority: int) -> None:
    """Wait until placement is asked only for new pods, several times in a row."""
    in_a_row = 0
    async with asyncio.timeout(90):
        for number in itertools.count():
            fence = small(f"settled-{number}", priority)
            asked = await asked_for(world, fence, len(world.cluster.solves.asked))
            in_a_row = in_a_row + 1 if asked == [{world.here(fence).id}] else 0
            if in_a_row == QUIET_IN_A_ROW:
                return


@pytest.mark.parametrize(("pending", "priority"), [(500, 0), (60, 1000)])
async def test_g50_infeasible_gangs_are_retried_only_after_a_helpful_event_i9(
    world: World, pending: int, priority: int
) -> None:
    """Wait until gangs of higher priority have tried preemption once, in vain."""
    await world.nodes(3, pods=1000)
    running = gang("running").of(1).with_priority(0)
    await world.create(running)
    await world.bound(running)
    solves, since = world.cluster.solves, len(world.cluster.solves.asked)
    gangs = await pending_gangs(world, pending, priority)
    first_round = [
        group.id for request in solves.asked[since:] if not request.potential_victims for group in request.groups
    ]
    assert len(first_round) == len(set(first_round)), "none is tried twice"

    await settled(world, priority)
    since = len(solves.asked)
    for number in range(UNRELATED_EVENTS):
        await world.touch_status(running, 0, f"step {number}")
    fence = small("fence", priority)
    assert await asked_for(world, fence, since) == [{world.here(fence).id}]

    since = len(solves.asked)
    await world.nodes(8)
    started = await world.one_bound(*gangs)
    assert world.here(started).id in {group.id for request in solves.asked[since:] for group in request.groups}
    assert world.bound_pods(running)
