"""What cannot fit costs nothing while nothing helps: counted at placement's door, not by the clock."""

import asyncio
import itertools

import pytest

from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNRELATED_EVENTS = 200
QUIET_IN_A_ROW = 40


async def pending_gangs(scene: Scene, count: int, priority: int) -> list[Workload]:
    """So many gangs that cannot fit, of several shapes, tried by a coordinator that found them all there."""
    gangs = [
        gang(f"g{number:03}").of(2 + number % 2).asking(cpu=4 + number % 5).with_priority(priority)
        for number in range(count)
    ]
    await scene.cluster.stack.stop_one("coordinator")
    await scene.create(*gangs)
    await scene.cluster.stack.start(["coordinator"])
    for each in gangs:
        await scene.waits(each, "members fit")
    return gangs


def small(name: str, priority: int) -> Workload:
    """A pod that has room, and could not be evicted for those that wait."""
    return plain(name).asking(cpu="1m").with_priority(priority)


async def asked_for(scene: Scene, fence: Workload, since: int) -> list[set[str]]:
    """What placement was asked for since then, call by call, up to this pod, which is created now."""
    await scene.create(fence)
    await scene.bound(fence)
    await scene.satisfied(fence)
    return [{group.id for group in request.groups} for request in scene.cluster.solves.asked[since:]]


async def settled(scene: Scene, priority: int) -> None:
    """Wait until placement is asked for nobody but those who come now, many times in a row."""
    in_a_row = 0
    async with asyncio.timeout(90):
        for number in itertools.count():
            fence = small(f"settled-{number}", priority)
            asked = await asked_for(scene, fence, len(scene.cluster.solves.asked))
            in_a_row = in_a_row + 1 if asked == [{scene.here(fence).id}] else 0
            if in_a_row == QUIET_IN_A_ROW:
                return


@pytest.mark.parametrize(("pending", "priority"), [(500, 0), (60, 1000)])
async def test_g50_gangs_that_cannot_fit_are_tried_once_and_then_only_when_something_helps_i9(
    scene: Scene, pending: int, priority: int
) -> None:
    """Those of higher priority have looked once, in vain, for somebody to evict."""
    await scene.nodes(3, pods=1000)
    running = gang("running").of(1).with_priority(0)
    await scene.create(running)
    await scene.bound(running)
    solves, since = scene.cluster.solves, len(scene.cluster.solves.asked)
    gangs = await pending_gangs(scene, pending, priority)
    first_round = [
        group.id for request in solves.asked[since:] if not request.potential_victims for group in request.groups
    ]
    assert len(first_round) == len(set(first_round)), "none is tried twice"

    await settled(scene, priority)
    since = len(solves.asked)
    for number in range(UNRELATED_EVENTS):
        await scene.touch_status(running, 0, f"step {number}")
    fence = small("fence", priority)
    assert await asked_for(scene, fence, since) == [{scene.here(fence).id}]

    since = len(solves.asked)
    await scene.nodes(8)
    started = await scene.one_bound(*gangs)
    assert scene.here(started).id in {group.id for request in solves.asked[since:] for group in request.groups}
    assert scene.bound_pods(running)
