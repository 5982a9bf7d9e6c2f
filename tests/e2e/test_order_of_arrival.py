"""Whatever comes first, and whatever is edited, deleted or made anew meanwhile: what is declared now counts."""

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.world import Scene
from builders.gangs.workloads import Dialect, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_minimum_raised_while_the_gang_waits_for_room_counts(scene: Scene) -> None:
    await scene.nodes(2)
    a, fence = gang("a").of(4).needing(3).declared_by("koordinator"), plain("fence").asking(cpu=3)
    await scene.create(a, only=(0, 1, 2))
    await scene.waits(a, "1 cpu")
    scene.cluster.invariants.expect(scene.here(a).id, 4, [])
    await scene.edit_minimum(a, 4)
    await scene.waits(a, "3 of 4 members")
    await scene.create(fence)
    await scene.waits(fence)
    await scene.nodes(3)
    await scene.bound(fence)
    assert scene.bound_pods(a) == {}, "three would fit by the old minimum"
    await scene.nodes(2)
    await scene.add_pods(a, 3)
    await scene.bound(a)


async def test_a_minimum_lowered_while_the_gang_waits_for_room_counts_g31(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(5).declared_by("koordinator")
    await scene.create(a)
    await scene.waits(a, "2 cpu")
    scene.cluster.invariants.expect(scene.here(a).id, 3, [])
    await scene.edit_minimum(a, 3)
    await scene.bound(a, count=3)
    await scene.nodes(2)
    await scene.bound(a)


async def test_g32_a_minimum_raised_while_the_gang_is_being_placed_counts(scene: Scene) -> None:
    await scene.nodes(5)
    a = gang("a").of(5).needing(3).declared_by("koordinator")
    with scene.cluster.frozen("placement"):
        await scene.create(a, only=(0, 1, 2))
        await scene.phase(a, "solving")
        scene.cluster.invariants.expect(scene.here(a).id, 5, [])
        await scene.edit_minimum(a, 5)
        await scene.minimum(a, 5)
    await scene.waits(a, "3 of 5 members")
    await scene.add_pods(a, 3, 4)
    await scene.bound(a)


@pytest.mark.parametrize("dialect", ["annotations", "koordinator", "coscheduling", "lightweight"])
async def test_pods_and_definition_interleaved_in_every_dialect_g23_g24(scene: Scene, dialect: Dialect) -> None:
    await scene.nodes(4)
    a = gang("a").of(3).declared_by(dialect)
    await scene.add_pods(a, 2)
    await scene.waits(a)
    await scene.define(a)
    await scene.waits(a, "1 of 3 members")
    await scene.add_pods(a, 0)
    await scene.waits(a, "2 of 3 members")
    await scene.add_pods(a, 1)
    await scene.bound(a)


async def test_pods_of_several_controllers_are_one_gang(scene: Scene) -> None:
    """A launcher and its workers, each a Job with pods of names that nobody chose."""
    scene.cluster.api_server.needs_controllers()
    await scene.nodes(4)
    a = await scene.define(gang("a").needing(4).declared_by("coscheduling").of(0))

    def bound() -> int:
        return sum(1 for (space, _), pod in scene.cluster.pods.items() if space == a.namespace and on_a_node(pod))

    def on_a_node(pod: dict[str, object]) -> bool:
        return bool(pod["spec"].get("nodeName"))  # type: ignore[attr-defined]

    await scene.create_job(a, "workers", 3)
    await scene.waits(a, "3 of 4 members")
    assert bound() == 0
    await scene.create_job(a, "launcher", 1)
    await scene.cluster.until(lambda: bound() == 4, "the pods of both jobs are bound")
    await scene.satisfied(a)


async def test_members_that_ended_before_the_start_do_not_count_g49(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4).needing(3)
    await scene.create(a, only=(0, 1))
    await scene.waits(a, "2 of 3 members")
    await scene.end_pods(a, 0)
    await scene.add_pods(a, 2)
    await scene.waits(a, "2 of 3 members", "1 ended")
    await scene.add_pods(a, 3)
    await scene.bound(a, count=3)
    assert a.pod_name(0) not in scene.bound_pods(a)


async def test_members_that_are_being_deleted_do_not_count(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4).needing(3)
    await scene.create(a, only=(0, 1))
    await scene.waits(a, "2 of 3 members")
    async with scene.dying(a, 0):
        await scene.waits(a, "1 of 3 members", "1 being deleted")
        await scene.add_pods(a, 2)
        await scene.waits(a, "2 of 3 members", "1 being deleted")
        await scene.add_pods(a, 3)
        await scene.bound(a, count=3)


async def test_bound_members_that_are_being_deleted_hold_their_room_until_they_are_gone_i3(scene: Scene) -> None:
    await scene.nodes(3)
    a, b = gang("a").of(3), gang("b").of(3)
    await scene.create(a)
    await scene.bound(a)
    async with scene.dying(a, 0, 1, 2):
        await scene.create(b)
        await scene.waits(b, "0 of 3 members fit")
    await scene.bound(b)


async def test_g35_a_gang_made_anew_while_it_waits_begins_with_its_first_cycle(scene: Scene) -> None:
    await scene.nodes(2)
    a = gang("a").of(3)
    await scene.create(a)
    await scene.waits(a, "1 cpu")
    old = await scene.cluster.explain(scene.here(a).id)
    assert old.gang.schedule_cycle == 2
    await scene.delete(a)
    smaller = gang("a").of(3).needing(2)
    await scene.create(smaller, only=(0,))
    await scene.waits(smaller, "1 of 2 members")
    new = await scene.cluster.explain(scene.here(smaller).id)
    assert (new.gang.schedule_cycle, new.attempts) == (1, 0)
    await scene.add_pods(smaller, 1)
    await scene.bound(smaller, count=2)


@pytest.mark.parametrize("dialect", ["annotations", "coscheduling"])
async def test_g35_a_permit_says_nothing_about_a_gang_made_anew_with_pods_of_the_same_names(
    scene: Scene, dialect: Dialect
) -> None:
    await scene.nodes(3)
    old, new = gang("a").of(3).declared_by(dialect), gang("a").of(4).declared_by(dialect)
    with scene.cluster.faults.hold(BINDS) as held:
        await scene.create(old)
        await held.until(1)
        await scene.delete(old)
        await scene.create(new)
        held.release()
    await scene.waits(new, "1 cpu")
    await scene.nodes(1)
    await scene.bound(new)
