"""Started gangs that cannot be completed: their repair policy is applied and reported (I6)."""

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain
from muster.gangs.facts import RepairPolicy

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def half_started(world: World, workload: Workload) -> Workload:
    """A gang bound except for two pods, whose seats another scheduler took while the coordinator was down; no
    capacity is left.
    """
    await world.nodes(*[4] * 2)
    thief = plain("thief").of(2)
    with world.cluster.faults.hold(BINDS, let_pass=6) as held:
        [placed] = await world.create(workload)
        await world.bound(workload, count=6)
        await held.until(1)
        for name in ("coordinator", "binding"):
            await world.cluster.stack.kill(name)
        held.drop()
    free = [node for node, count in world.per_node(workload).items() for _ in range(4 - count)]
    world.cluster.invariants.excuse(placed.id)
    await world.bind_by_hand(thief, dict(enumerate(free)))
    await world.cluster.stack.start()
    return thief


def pod_exists(world: World, workload: Workload, number: int) -> bool:
    """One of its pods exists."""
    return (world.here(workload).namespace, workload.pod_name(number)) in world.cluster.pods


async def test_g22_repair_policy_evict_requeues_an_incomplete_gang_i6(
    impatient_world: World,
) -> None:
    world = impatient_world
    a = gang("a").of(8).with_repair_policy(RepairPolicy.EVICT)
    thief = await half_started(world, a)
    await world.phase(a, "repairing")
    await world.cluster.until(lambda: not world.bound_pods(a), "the six that were bound are evicted")
    await world.event(a, "could not be repaired")
    await world.waits(a, "2 of 8 members")
    await world.delete(thief)
    await world.add_pods(a, *(number for number in range(a.size) if not pod_exists(world, a, number)))
    await world.bound(a)
    await world.satisfied(a)


async def test_g22_by_default_the_rest_keeps_running_with_a_reason_i6_i10(world: World) -> None:
    a = gang("a").of(8)
    thief = await half_started(world, a)
    await world.phase(a, "repairing")
    await world.event(a, "2 of 8 pods lost their node")
    assert len(world.bound_pods(a)) == 6
    await world.delete(thief)
    await world.bound(a)
