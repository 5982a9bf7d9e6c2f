"""What cannot fit costs nothing while nothing helps: counted at placement's door, not by the clock."""

import pytest

from builders.scene import Scene
from builders.workloads import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

PENDING = 500
UNRELATED_EVENTS = 200


async def pending_gangs(scene: Scene) -> list[Workload]:
    """So many gangs that cannot fit, each tried in one round, by a coordinator that found them all there."""
    gangs = [gang(f"g{number:03}").of(2).asking(cpu=2).with_priority(1000 - number) for number in range(PENDING)]
    await scene.cluster.stack.stop_one("coordinator")
    await scene.create(*gangs)
    await scene.cluster.stack.start(["coordinator"])
    for each in gangs:
        await scene.waits(each, "members fit")
    return gangs


async def asked_for(scene: Scene, fence: str, since: int) -> list[set[str]]:
    """What placement was asked for since then, call by call, up to a plain pod of that name that is created now."""
    pod = plain(fence)
    await scene.create(pod)
    await scene.bound(pod)
    await scene.satisfied(pod)
    return [{group.id for group in request.groups} for request in scene.cluster.solves.asked[since:]]


async def test_g50_gangs_that_cannot_fit_are_tried_once_and_then_only_when_something_helps(scene: Scene) -> None:
    await scene.nodes(3)
    running = gang("running").of(1)
    await scene.create(running)
    await scene.bound(running)
    solves, since = scene.cluster.solves, len(scene.cluster.solves.asked)
    gangs = await pending_gangs(scene)
    first_round = [group.id for request in solves.asked[since:] for group in request.groups]
    assert sorted(first_round) == sorted(scene.here(each).id for each in gangs), "each is tried exactly once"

    since = len(solves.asked)
    for number in range(UNRELATED_EVENTS):
        await scene.touch_status(running, 0, f"step {number}")
    fence = plain("fence")
    assert await asked_for(scene, "fence", since) == [{scene.here(fence).id}]

    since = len(solves.asked)
    await scene.nodes(4)
    await scene.bound(gangs[0])
    await scene.waits(gangs[1], "members fit")
    assert scene.here(gangs[0]).id in {group.id for request in solves.asked[since:] for group in request.groups}
