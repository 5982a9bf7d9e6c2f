"""Strict gangs start whole or not at all: rows of the gang scenarios, with every service as a process."""

import pytest

from builders.e2e.solve_relay import places
from builders.e2e.world import World
from builders.gangs.gang import Dialect
from builders.gangs.manifests import gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("dialect", ["annotations", "koordinator", "coscheduling", "lightweight", "native"])
async def test_a_gang_of_any_dialect_starts_whole(world: World, dialect: Dialect) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(8).declared_by(dialect)
    await world.create(a)
    await world.bound(a)
    await world.event(a, kind="Normal")


async def test_g01_a_gang_with_one_member_too_many_binds_nothing_i1_i10(world: World) -> None:
    await world.nodes(4)
    big, small = gang("big").of(5), plain("small")
    await world.create(big)
    await world.waits(big, "1 cpu")
    await world.unschedulable(big, "1 cpu")
    await world.create(small)
    await world.bound(small)
    assert world.bound_pods(big) == {}


async def test_g02_a_new_node_starts_the_gang(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(5)
    await world.create(a)
    await world.waits(a)
    await world.nodes(1)
    await world.bound(a)


async def test_g03_a_gang_waits_for_its_minimum_of_members(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(3)
    await world.create(a, only=(0, 1))
    await world.waits(a, "2 of 3 members")
    await world.add_pods(a, 2)
    await world.bound(a)


async def test_g04_members_above_the_minimum_start_if_they_fit(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4).needing(3).annotated(total_number="4")
    await world.create(a)
    await world.bound(a)


async def test_g05_a_member_above_the_minimum_waits_alone_and_binds_alone(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(4).needing(3).annotated(total_number="4")
    await world.create(a)
    await world.bound(a, count=3)
    assert len(world.bound_pods(a)) == 3
    await world.nodes(1)
    await world.bound(a)


async def test_g06_of_two_gangs_that_fit_one_at_a_time_the_older_starts_first(world: World) -> None:
    await world.nodes(10)
    a, b = gang("a").of(6), gang("b").of(6)
    await world.create(a)
    await world.bound(a)
    await world.create(b)
    await world.waits(b)
    await world.delete(a)
    await world.bound(b)


async def test_g07_the_higher_priority_goes_first(world: World) -> None:
    await world.nodes(10)
    a, b = gang("a").of(6).with_priority(0), gang("b").of(6).with_priority(10)
    await world.cluster.stack.stop_one("coordinator")
    await world.create(a, b)
    await world.cluster.stack.start(["coordinator"])
    await world.bound(b)
    await world.waits(a)


async def test_g44_i9_an_infeasible_gang_of_higher_priority_evicts_nothing(world: World) -> None:
    await world.nodes(4, 4)
    running = gang("running").of(8).with_priority(0)
    await world.create(running)
    await world.bound(running)
    seats = world.bound_pods(running)
    urgent = gang("urgent").of(12).with_priority(1000)
    await world.create(urgent)
    await world.waits(urgent, "0 of 12 members fit")
    await world.event(urgent, "0 of 12 members fit")
    assert world.bound_pods(running) == seats
    assert not [name for name, pod in world.cluster.pods.items() if "deletionTimestamp" in pod["metadata"]]


async def test_g12_a_group_over_two_namespaces_starts_only_together(world: World) -> None:
    await world.nodes(10)
    space_a, space_b = world.namespace("a"), world.namespace("b")
    group = (f"{space_a}/left", f"{space_b}/right")
    left = gang("left").of(3).in_namespace(space_a).with_group(*group)
    right = gang("right").of(3).in_namespace(space_b).with_group(*group)
    await world.create(left)
    await world.create(right, only=(0, 1))
    await world.waits(left, "right")
    await world.waits(right, "2 of 3 members")
    await world.add_pods(right, 2)
    await world.bound(left, right)


async def test_g14_a_group_that_does_not_fit_as_a_whole_binds_nothing(world: World) -> None:
    await world.nodes(5)
    group = (f"{world.name}/left", f"{world.name}/right")
    left, right = gang("left").of(3).with_group(*group), gang("right").of(3).with_group(*group)
    await world.create(left, right)
    await world.waits(left)
    await world.waits(right)
    await world.nodes(1)
    await world.bound(left, right)


async def test_g15_a_malformed_gang_blocks_its_group_and_is_named(world: World) -> None:
    await world.nodes(10)
    group = tuple(f"{world.name}/{name}" for name in "abc")
    a, c = (gang(name).of(2).with_group(*group) for name in "ac")
    b = gang("b").of(2).needing("many").with_group(*group)
    await world.create(a, b, c)
    await world.waits(b, '"many"')
    for partner in (a, c):
        await world.waits(partner, f"{world.name}/b", '"many"')


async def test_g23_pods_before_their_podgroup(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(3).declared_by("coscheduling")
    await world.add_pods(a)
    await world.waits(a, "PodGroup")
    await world.define(a)
    await world.bound(a)


async def test_g24_the_podgroup_before_its_pods_created_one_by_one(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(3).declared_by("koordinator")
    await world.define(a)
    for number in range(3):
        assert world.bound_pods(a) == {}
        await world.add_pods(a, number)
        if number < 2:
            await world.waits(a, f"{number + 1} of 3 members")
    await world.bound(a)


async def test_g30_a_member_that_fits_nowhere_blocks_the_gang_and_is_named(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4).pod_on_nodes(3, disk="ssd")
    await world.create(a)
    await world.phase(a, "QUEUED")  # all members are observed
    waiting = await world.waits(a)
    answer = await world.cluster.explain(waiting.id)
    reported = " ".join([waiting.reason, answer.explanation.summary, *answer.would_help])
    assert "disk" in reported
    assert "a-3" in reported
    assert answer.gang.schedule_cycle > 1 or not answer.schedule_cycle_valid
    await world.nodes(1, disk="ssd")
    await world.bound(a)


async def test_g31_a_lowered_minimum_starts_what_is_there(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(5).declared_by("coscheduling")
    await world.create(a, only=(0, 1, 2))
    await world.waits(a, "3 of 5 members")
    world.cluster.invariants.expect(world.here(a).id, 3, [])
    await world.edit_minimum(a, 3)
    await world.bound(a, count=3)


async def test_g33_the_podgroup_is_deleted_while_its_pods_wait(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(3).declared_by("coscheduling")
    await world.create(a)
    await world.waits(a, "cpu")
    await world.undefine(a)
    await world.waits(a, "PodGroup")
    await world.nodes(4)
    assert world.bound_pods(a) == {}
    await world.define(a)
    await world.bound(a)


async def test_g36_a_node_cordoned_before_the_permit_is_not_used(world: World) -> None:
    [node] = await world.nodes(3)
    a, fence = gang("a").of(3), gang("fence").of(1).needing(2)
    with world.cluster.solves.holding(places) as held:
        await world.create(a)
        await held.wait()
        await world.cordon(node)
        await world.create(fence)
        await world.waits(fence, "1 of 2 members")  # earlier reports are known too
    await world.waits(a, "unschedulable")
    [other] = await world.nodes(3)
    await world.bound(a)
    assert set(world.bound_pods(a).values()) == {other}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_g40_large_and_small_members_find_their_nodes_in_any_order(world: World, order: tuple[int, int]) -> None:
    await world.nodes(4, 8)
    a = gang("a").of(2).asking_each({"cpu": 7}, {"cpu": 3})
    for number in order:
        await world.add_pods(a, number)
    await world.bound(a)


async def test_g41_as_many_gangs_start_as_fit_and_the_rest_follow_in_order(world: World) -> None:
    gangs, room = 100, 40
    await world.nodes(*[16] * (room // 2))
    all_gangs = [gang(f"g{number:03}").of(8).with_priority(100 - number) for number in range(gangs)]
    await world.cluster.stack.stop_one("coordinator")
    await world.create(*all_gangs)
    await world.cluster.stack.start(["coordinator"])
    await world.bound(*all_gangs[:room])
    for late in all_gangs[room:]:
        await world.waits(late)
    for number in range(3):
        await world.delete(all_gangs[number])
        await world.bound(all_gangs[room + number])
    assert sum(bool(world.bound_pods(late)) for late in all_gangs[room:]) == 3


@pytest.mark.timeout(300)  # a real API server needs longer to create and delete this many
async def test_g42_a_gang_of_5000_pods_has_one_record_and_is_explained(world: World) -> None:
    size = 5000
    await world.nodes(*[100] * 50)
    a = gang("a").of(size).declared_by("coscheduling")
    await world.create(a)
    await world.bound(a, seconds=90)
    await world.recorded(a)
    id_ = world.here(a).id
    answer = await world.cluster.explain(id_)
    assert answer.gang.bound == size
    permits = [record for record in world.cluster.records.history[id_] if record.seats]
    assert sum(len(seat.pods) for seat in permits[0].seats) == size
    await world.satisfied(a)


async def test_a_coscheduling_group_waits_until_min_resources_are_free(world: World) -> None:
    await world.nodes(4)
    least = {"minResources": {"example.com/licence": "1"}}
    two = gang("two").of(2).asking(cpu=1).declared_by("coscheduling").declaring(**least)
    await world.create(two)
    await world.waits(two, "example.com/licence")
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{world.here(two).namespace}/podgroups/{two.name}"
    await world.cluster.merge(path, {"spec": {"minResources": {"example.com/licence": None, "cpu": "2"}}})
    await world.bound(two)
