"""Schedule cycles as users see them: in `muster explain`, and in the record in etcd."""

import pytest

from builders.e2e.world import Scene
from builders.gangs.workloads import gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_g30_a_cycle_ends_when_all_children_were_tried_and_the_record_keeps_its_number(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(4)
    await scene.create(a)
    await scene.waits(a, "1 cpu")
    id_ = scene.here(a).id
    first = await scene.cluster.explain(id_)
    assert (first.gang.schedule_cycle, first.schedule_cycle_valid, first.attempts) == (2, True, 1)
    assert "schedule cycle 2, 1 try so far" in await scene.cluster.muster("explain", id_)
    await scene.nodes(1)
    await scene.bound(a)
    await scene.satisfied(a)
    await scene.recorded(a)
    then = await scene.cluster.explain(id_)
    permits = [record for record in scene.cluster.records.history[id_] if record.seats]
    assert [permit.schedule_cycle for permit in permits] == [then.gang.schedule_cycle]
    assert then.gang.schedule_cycle >= 2


async def test_g30_a_cycle_stays_invalid_while_children_are_missing_that_total_number_promises(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(6).needing(4).annotated(total_number="6")
    await scene.create(a, only=(0, 1, 2, 3))
    await scene.waits(a, "1 cpu")
    id_ = scene.here(a).id
    first = await scene.cluster.explain(id_)
    assert (first.gang.schedule_cycle, first.schedule_cycle_valid) == (1, False)
    assert "schedule cycle 1, in which a member failed" in await scene.cluster.muster("explain", id_)
    await scene.add_pods(a, 4, 5)
    await scene.tried(a, more_than=first.attempts)
    await scene.nodes(3)
    await scene.bound(a)
    await scene.recorded(a)
    permits = [record for record in scene.cluster.records.history[id_] if record.seats]
    assert permits[0].schedule_cycle > 1


async def test_the_cycle_of_a_gang_outlives_its_coordinator_once_it_was_permitted(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(4)
    await scene.create(a)
    await scene.waits(a, "1 cpu")
    await scene.nodes(1)
    await scene.bound(a)
    await scene.satisfied(a)
    id_ = scene.here(a).id
    before = await scene.cluster.explain(id_)
    await scene.cluster.stack.kill("coordinator")
    await scene.cluster.stack.start(["coordinator"])
    fence = plain("fence")
    await scene.nodes(1)
    await scene.create(fence)
    await scene.bound(fence)
    after = await scene.cluster.explain(id_)
    assert after.gang.schedule_cycle == before.gang.schedule_cycle >= 2
