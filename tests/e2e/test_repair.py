"""Gangs that started and cannot be completed: what their repair policy says is done, and said (I6)."""

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

POLICY = "muster.dev/repair-policy"


async def half_started(scene: Scene, workload: Workload) -> Workload:
    """Bound but for two pods, whose seats another scheduler took while the coordinator was down; no room is left."""
    await scene.nodes(*[4] * 2)
    thief = plain("thief").asking(cpu=2)
    with scene.cluster.faults.hold(BINDS, let_pass=6) as held:
        [placed] = await scene.create(workload)
        await scene.bound(workload, count=6)
        await held.until(1)
        for name in ("coordinator", "binding"):
            await scene.cluster.stack.kill(name)
        held.drop()
    free = next(node for node in scene.per_node(workload) if scene.per_node(workload)[node] == 2)
    scene.cluster.invariants.excuse(placed.id)
    await scene.bind_by_hand(thief, {0: free})
    await scene.cluster.stack.start()
    return thief


def there(scene: Scene, workload: Workload, number: int) -> bool:
    """One of its pods exists."""
    return (scene.here(workload).namespace, workload.pod_name(number)) in scene.cluster.pods


async def test_g22_a_gang_that_cannot_be_completed_is_evicted_and_queued_again_if_it_says_so_i6(
    hasty_scene: Scene,
) -> None:
    scene = hasty_scene
    a = gang("a").of(8).marked({POLICY: "Evict"})
    thief = await half_started(scene, a)
    await scene.phase(a, "repairing")
    await scene.cluster.until(lambda: not scene.bound_pods(a), "the six that were bound are evicted")
    await scene.event(a, "could not be repaired")
    await scene.waits(a, "2 of 8 members")
    await scene.delete(thief)
    await scene.add_pods(a, *(number for number in range(a.size) if not there(scene, a, number)))
    await scene.bound(a)
    await scene.satisfied(a)


async def test_g22_by_default_the_others_run_on_and_the_gang_says_what_is_short_i6_i10(hasty_scene: Scene) -> None:
    scene = hasty_scene
    a = gang("a").of(8)
    thief = await half_started(scene, a)
    await scene.phase(a, "repairing")
    await scene.event(a, "2 of 8 pods lost their node")
    assert len(scene.bound_pods(a)) == 6
    await scene.delete(thief)
    await scene.bound(a)
