"""Schedule cycles in `muster explain` and in the record in etcd."""

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_g30_a_cycle_ends_when_all_members_were_tried(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(4)
    await world.create(a)
    await world.waits(a, "1 cpu")
    id_ = world.here(a).id
    first = await world.cluster.explain(id_)
    # the pods may arrive before the node, so that there is an attempt without it; each attempt ends a cycle
    assert first.schedule_cycle_valid
    assert first.gang.schedule_cycle == first.attempts + 1 >= 2
    line = f"schedule cycle {first.gang.schedule_cycle}, {first.attempts} attempt"
    assert line in await world.cluster.muster("explain", id_)
    await world.nodes(1)
    await world.bound(a)
    await world.satisfied(a)
    await world.recorded(a)
    then = await world.cluster.explain(id_)
    permits = [record for record in world.cluster.records.history[id_] if record.seats]
    assert [permit.schedule_cycle for permit in permits] == [then.gang.schedule_cycle]
    assert then.gang.schedule_cycle >= 2


async def test_g30_a_cycle_stays_invalid_while_members_of_total_are_missing(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(6).needing(4).annotated(total_number="6")
    await world.create(a, only=(0, 1, 2, 3))
    await world.waits(a, "1 cpu")
    id_ = world.here(a).id
    first = await world.cluster.explain(id_)
    assert (first.gang.schedule_cycle, first.schedule_cycle_valid) == (1, False)
    assert "schedule cycle 1, in which a member failed" in await world.cluster.muster("explain", id_)
    await world.add_pods(a, 4, 5)
    await world.tried(a, more_than=first.attempts)
    await world.nodes(3)
    await world.bound(a)
    await world.recorded(a)
    permits = [record for record in world.cluster.records.history[id_] if record.seats]
    assert permits[0].schedule_cycle > 1


async def test_the_cycle_number_of_a_permitted_gang_survives_a_restart(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(4)
    await world.create(a)
    await world.waits(a, "1 cpu")
    await world.nodes(1)
    await world.bound(a)
    await world.satisfied(a)
    id_ = world.here(a).id
    before = await world.cluster.explain(id_)
    await world.cluster.stack.kill("coordinator")
    await world.cluster.stack.start(["coordinator"])
    fence = plain("fence")
    await world.nodes(1)
    await world.create(fence)
    await world.bound(fence)
    after = await world.cluster.explain(id_)
    assert after.gang.schedule_cycle == before.gang.schedule_cycle >= 2
