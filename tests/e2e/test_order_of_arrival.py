"""Any order of creation, with edits, deletions and recreations in between: the current declaration counts."""

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.world import World
from builders.gangs.gang import Dialect
from builders.gangs.manifests import gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_minimum_raised_while_pending_takes_effect(world: World) -> None:
    await world.nodes(2)
    a, fence = gang("a").of(4).needing(3).declared_by("koordinator"), plain("fence").asking(cpu=3)
    await world.create(a, only=(0, 1, 2))
    await world.waits(a, "1 cpu")
    world.cluster.invariants.expect(world.here(a).id, 4, [])
    await world.edit_minimum(a, 4)
    await world.waits(a, "3 of 4 members")
    await world.create(fence)
    await world.waits(fence)
    await world.nodes(3)
    await world.bound(fence)
    assert world.bound_pods(a) == {}, "three would fit by the old minimum"
    await world.nodes(2)
    await world.add_pods(a, 3)
    await world.bound(a)


async def test_g31_a_minimum_lowered_while_pending_takes_effect(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(5).declared_by("koordinator")
    await world.create(a)
    await world.waits(a, "2 cpu")
    world.cluster.invariants.expect(world.here(a).id, 3, [])
    await world.edit_minimum(a, 3)
    await world.bound(a, count=3)
    await world.nodes(2)
    await world.bound(a)


async def test_g32_a_minimum_raised_during_a_solve_takes_effect(world: World) -> None:
    await world.nodes(5)
    a = gang("a").of(5).needing(3).declared_by("koordinator")
    with world.cluster.frozen("placement"):
        await world.create(a, only=(0, 1, 2))
        await world.phase(a, "solving")
        world.cluster.invariants.expect(world.here(a).id, 5, [])
        await world.edit_minimum(a, 5)
        await world.minimum(a, 5)
    await world.waits(a, "3 of 5 members")
    await world.add_pods(a, 3, 4)
    await world.bound(a)


@pytest.mark.parametrize("dialect", ["annotations", "koordinator", "coscheduling", "lightweight"])
async def test_g23_g24_pods_and_definition_interleave_in_every_dialect(world: World, dialect: Dialect) -> None:
    await world.nodes(4)
    a = gang("a").of(3).declared_by(dialect)
    await world.add_pods(a, 2)
    await world.waits(a)
    await world.define(a)
    await world.waits(a, "1 of 3 members")
    await world.add_pods(a, 0)
    await world.waits(a, "2 of 3 members")
    await world.add_pods(a, 1)
    await world.bound(a)


async def test_pods_of_several_controllers_are_one_gang(world: World) -> None:
    """A launcher and its workers, each a Job with generated pod names."""
    world.cluster.api_server.needs_controllers()
    await world.nodes(4)
    a = await world.define(gang("a").needing(4).declared_by("coscheduling").of(0))

    def bound() -> int:
        return sum(1 for (space, _), pod in world.cluster.pods.items() if space == a.namespace and on_a_node(pod))

    def on_a_node(pod: dict[str, object]) -> bool:
        return bool(pod["spec"].get("nodeName"))  # type: ignore[attr-defined]

    await world.create_job(a, "workers", 3)
    await world.waits(a, "3 of 4 members")
    assert bound() == 0
    await world.create_job(a, "launcher", 1)
    await world.cluster.until(lambda: bound() == 4, "the pods of both jobs are bound")
    await world.satisfied(a)


async def test_g49_members_finished_before_the_start_do_not_count(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4).needing(3)
    await world.create(a, only=(0, 1))
    await world.waits(a, "2 of 3 members")
    await world.end_pods(a, 0)
    await world.add_pods(a, 2)
    await world.waits(a, "2 of 3 members", "1 ended")
    await world.add_pods(a, 3)
    await world.bound(a, count=3)
    assert a.pod_name(0) not in world.bound_pods(a)


async def test_terminating_members_do_not_count(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4).needing(3)
    await world.create(a, only=(0, 1))
    await world.waits(a, "2 of 3 members")
    async with world.dying(a, 0):
        await world.waits(a, "1 of 3 members", "1 being deleted")
        await world.add_pods(a, 2)
        await world.waits(a, "2 of 3 members", "1 being deleted")
        await world.add_pods(a, 3)
        await world.bound(a, count=3)


async def test_terminating_members_hold_capacity_until_they_end_i3(world: World) -> None:
    await world.nodes(3)
    a, b = gang("a").of(3), gang("b").of(3)
    await world.create(a)
    await world.bound(a)
    async with world.dying(a, 0, 1, 2):
        await world.create(b)
        await world.waits(b, "0 of 3 members fit")
    await world.bound(b)


async def test_g35_a_gang_recreated_while_pending_starts_at_cycle_1(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(3)
    await world.create(a)
    await world.waits(a, "1 cpu")
    old = await world.cluster.explain(world.here(a).id)
    assert old.gang.schedule_cycle >= 2  # the pods may have arrived before a node
    await world.delete(a)
    smaller = gang("a").of(3).needing(2)
    await world.create(smaller, only=(0,))
    await world.waits(smaller, "1 of 2 members")
    new = await world.cluster.explain(world.here(smaller).id)
    assert (new.gang.schedule_cycle, new.attempts) == (1, 0)
    await world.add_pods(smaller, 1)
    await world.bound(smaller, count=2)


@pytest.mark.parametrize("dialect", ["annotations", "coscheduling"])
async def test_g35_a_permit_does_not_apply_to_a_recreated_gang(world: World, dialect: Dialect) -> None:
    await world.nodes(3)
    old, new = gang("a").of(3).declared_by(dialect), gang("a").of(4).declared_by(dialect)
    with world.cluster.faults.hold(BINDS) as held:
        await world.create(old)
        await held.until(1)
        await world.delete(old)
        await world.create(new)
        held.release()
    await world.waits(new, "1 cpu")
    await world.nodes(1)
    await world.bound(new)
