"""Strict gangs start whole or not at all: rows of the gang scenarios, with every service as its own process."""

import pytest

from builders.e2e.solve_relay import places
from builders.e2e.world import Scene
from builders.gangs.workloads import Dialect, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("dialect", ["annotations", "koordinator", "coscheduling", "lightweight", "native"])
async def test_a_gang_of_any_dialect_starts_whole(scene: Scene, dialect: Dialect) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(8).declared_by(dialect)
    await scene.create(a)
    await scene.bound(a)
    await scene.event(a, kind="Normal")


async def test_g01_a_gang_that_lacks_room_for_one_binds_nothing_and_holds_nothing_i1_i10(scene: Scene) -> None:
    await scene.nodes(4)
    big, small = gang("big").of(5), plain("small")
    await scene.create(big)
    await scene.waits(big, "1 cpu")
    await scene.unschedulable(big, "1 cpu")
    await scene.create(small)
    await scene.bound(small)
    assert scene.bound_pods(big) == {}


async def test_g02_a_node_comes_and_the_gang_starts(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(5)
    await scene.create(a)
    await scene.waits(a)
    await scene.nodes(1)
    await scene.bound(a)


async def test_g03_a_gang_waits_for_its_minimum_of_members(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(3)
    await scene.create(a, only=(0, 1))
    await scene.waits(a, "2 of 3 members")
    await scene.add_pods(a, 2)
    await scene.bound(a)


async def test_g04_members_above_the_minimum_start_too_when_there_is_room(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4).needing(3).annotated(total_number="4")
    await scene.create(a)
    await scene.bound(a)


async def test_g05_a_member_above_the_minimum_waits_alone_and_binds_alone(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(4).needing(3).annotated(total_number="4")
    await scene.create(a)
    await scene.bound(a, count=3)
    assert len(scene.bound_pods(a)) == 3
    await scene.nodes(1)
    await scene.bound(a)


async def test_g06_the_older_of_two_gangs_that_do_not_fit_together_starts_and_the_other_follows(scene: Scene) -> None:
    await scene.nodes(10)
    a, b = gang("a").of(6), gang("b").of(6)
    await scene.create(a)
    await scene.bound(a)
    await scene.create(b)
    await scene.waits(b)
    await scene.delete(a)
    await scene.bound(b)


async def test_g07_the_higher_priority_goes_first(scene: Scene) -> None:
    await scene.nodes(10)
    a, b = gang("a").of(6).with_priority(0), gang("b").of(6).with_priority(10)
    await scene.cluster.stack.stop_one("coordinator")
    await scene.create(a, b)
    await scene.cluster.stack.start(["coordinator"])
    await scene.bound(b)
    await scene.waits(a)


async def test_g44_i9_a_gang_of_higher_priority_that_never_fits_harms_nobody(scene: Scene) -> None:
    await scene.nodes(4, 4)
    running = gang("running").of(8).with_priority(0)
    await scene.create(running)
    await scene.bound(running)
    seats = scene.bound_pods(running)
    urgent = gang("urgent").of(12).with_priority(1000)
    await scene.create(urgent)
    await scene.waits(urgent, "0 of 12 members fit")
    await scene.event(urgent, "0 of 12 members fit")
    assert scene.bound_pods(running) == seats
    assert not [name for name, pod in scene.cluster.pods.items() if "deletionTimestamp" in pod["metadata"]]


async def test_g12_a_group_over_two_namespaces_starts_only_together(scene: Scene) -> None:
    await scene.nodes(10)
    space_a, space_b = scene.namespace("a"), scene.namespace("b")
    group = (f"{space_a}/left", f"{space_b}/right")
    left = gang("left").of(3).in_namespace(space_a).with_group(*group)
    right = gang("right").of(3).in_namespace(space_b).with_group(*group)
    await scene.create(left)
    await scene.create(right, only=(0, 1))
    await scene.waits(left, "right")
    await scene.waits(right, "2 of 3 members")
    await scene.add_pods(right, 2)
    await scene.bound(left, right)


async def test_g14_a_group_that_does_not_fit_as_a_whole_binds_nothing(scene: Scene) -> None:
    await scene.nodes(5)
    group = (f"{scene.name}/left", f"{scene.name}/right")
    left, right = gang("left").of(3).with_group(*group), gang("right").of(3).with_group(*group)
    await scene.create(left, right)
    await scene.waits(left)
    await scene.waits(right)
    await scene.nodes(1)
    await scene.bound(left, right)


async def test_g15_one_malformed_gang_holds_its_whole_group_and_is_named(scene: Scene) -> None:
    await scene.nodes(10)
    group = tuple(f"{scene.name}/{name}" for name in "abc")
    a, c = (gang(name).of(2).with_group(*group) for name in "ac")
    b = gang("b").of(2).needing("many").with_group(*group)
    await scene.create(a, b, c)
    await scene.waits(b, '"many"')
    for partner in (a, c):
        await scene.waits(partner, f"{scene.name}/b", '"many"')


async def test_g23_pods_before_their_podgroup(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(3).declared_by("coscheduling")
    await scene.add_pods(a)
    await scene.waits(a, "PodGroup")
    await scene.define(a)
    await scene.bound(a)


async def test_g24_the_podgroup_before_its_pods_which_come_one_by_one(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(3).declared_by("koordinator")
    await scene.define(a)
    for number in range(3):
        assert scene.bound_pods(a) == {}
        await scene.add_pods(a, number)
        if number < 2:
            await scene.waits(a, f"{number + 1} of 3 members")
    await scene.bound(a)


async def test_g30_one_member_that_fits_nowhere_keeps_all_from_starting_and_is_named(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4).pod_on_nodes(3, disk="ssd")
    await scene.create(a)
    waiting = await scene.waits(a)
    answer = await scene.cluster.explain(waiting.id)
    told = " ".join([waiting.reason, answer.explanation.summary, *answer.would_help])
    assert "disk" in told
    assert "a-3" in told
    assert answer.gang.schedule_cycle > 1 or not answer.schedule_cycle_valid
    await scene.nodes(1, disk="ssd")
    await scene.bound(a)


async def test_g31_a_lowered_minimum_starts_what_is_there(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(5).declared_by("coscheduling")
    await scene.create(a, only=(0, 1, 2))
    await scene.waits(a, "3 of 5 members")
    scene.cluster.invariants.expect(scene.here(a).id, 3, [])
    await scene.edit_minimum(a, 3)
    await scene.bound(a, count=3)


async def test_g33_the_podgroup_is_deleted_while_its_pods_wait(scene: Scene) -> None:
    await scene.nodes(2)
    a = gang("a").of(3).declared_by("coscheduling")
    await scene.create(a)
    await scene.waits(a, "cpu")
    await scene.undefine(a)
    await scene.waits(a, "PodGroup")
    await scene.nodes(4)
    assert scene.bound_pods(a) == {}
    await scene.define(a)
    await scene.bound(a)


async def test_g36_a_node_closed_between_placements_answer_and_the_permit_is_not_used(scene: Scene) -> None:
    [node] = await scene.nodes(3)
    a, fence = gang("a").of(3), gang("fence").of(1).needing(2)
    with scene.cluster.solves.holding(places) as held:
        await scene.create(a)
        await held.wait()
        await scene.cordon(node)
        await scene.create(fence)
        await scene.waits(fence, "1 of 2 members")  # what was told before it is known too
    await scene.waits(a, "unschedulable")
    [other] = await scene.nodes(3)
    await scene.bound(a)
    assert set(scene.bound_pods(a).values()) == {other}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_g40_large_and_small_members_find_their_nodes_in_any_order(scene: Scene, order: tuple[int, int]) -> None:
    await scene.nodes(4, 8)
    a = gang("a").of(2).asking_each({"cpu": 7}, {"cpu": 3})
    for number in order:
        await scene.add_pods(a, number)
    await scene.bound(a)


async def test_g41_of_many_gangs_exactly_as_many_start_as_fit_and_the_rest_follow_in_order(scene: Scene) -> None:
    gangs, room = 100, 40
    await scene.nodes(*[16] * (room // 2))
    all_gangs = [gang(f"g{number:03}").of(8).with_priority(100 - number) for number in range(gangs)]
    await scene.cluster.stack.stop_one("coordinator")
    await scene.create(*all_gangs)
    await scene.cluster.stack.start(["coordinator"])
    await scene.bound(*all_gangs[:room])
    for late in all_gangs[room:]:
        await scene.waits(late)
    for number in range(3):
        await scene.delete(all_gangs[number])
        await scene.bound(all_gangs[room + number])
    assert sum(bool(scene.bound_pods(late)) for late in all_gangs[room:]) == 3


@pytest.mark.timeout(300)  # a real API server takes its time to make and delete so many
async def test_a_gang_of_5000_pods_has_one_record_and_is_explained_at_once_g42(scene: Scene) -> None:
    size = 5000
    await scene.nodes(*[100] * 50)
    a = gang("a").of(size).declared_by("coscheduling")
    await scene.create(a)
    await scene.bound(a, seconds=90)
    await scene.recorded(a)
    id_ = scene.here(a).id
    answer = await scene.cluster.explain(id_)
    assert answer.gang.bound == size
    permits = [record for record in scene.cluster.records.history[id_] if record.seats]
    assert sum(len(seat.pods) for seat in permits[0].seats) == size
    await scene.satisfied(a)


async def test_a_coscheduling_group_is_not_tried_before_its_least_resources_are_free(scene: Scene) -> None:
    await scene.nodes(4)
    least = {"minResources": {"example.com/licence": "1"}}
    two = gang("two").of(2).asking(cpu=1).declared_by("coscheduling").declaring(**least)
    await scene.create(two)
    await scene.waits(two, "example.com/licence")
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{scene.here(two).namespace}/podgroups/{two.name}"
    await scene.cluster.merge(path, {"spec": {"minResources": {"example.com/licence": None, "cpu": "2"}}})
    await scene.bound(two)
