"""NonStrict gangs: what they hold while they wait and what ends the wait."""

from typing import Any

import pytest

from builders.e2e.cluster import JSON
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

TIMEOUT = "gang.scheduling.koordinator.sh/timeout"
LONG = 600


def loose(name: str, *, waiting_time: float = LONG) -> Workload:
    """A NonStrict gang."""
    return gang(name).non_strict(waiting_time)


def timed_out(world: World, workload: Workload) -> list[str]:
    """Names of its pods with the timeout mark."""
    workload = world.here(workload)
    marked = [pod for (namespace, _), pod in world.cluster.pods.items() if namespace == workload.namespace]
    names = {workload.pod_name(number) for number in range(workload.size)}
    return sorted(name for pod in marked if _annotations(pod).get(TIMEOUT) == "true" and (name := _name(pod)) in names)


async def all_marked(world: World, workload: Workload) -> None:
    """Wait until all its pods have the timeout mark."""
    what = f"all pods of {workload.name} are marked"
    await world.cluster.until(lambda: len(timed_out(world, workload)) == workload.size, what)


def _annotations(pod: JSON) -> dict[str, Any]:
    return pod["metadata"].get("annotations") or {}


def _name(pod: JSON) -> str:
    return str(pod["metadata"]["name"])


async def test_g08_gangs_created_interleaved_start_one_after_another(world: World) -> None:
    await world.nodes(5)
    gangs = [loose(name).of(5) for name in "abc"]
    for number in range(5):
        for each in gangs:
            await world.add_pods(each, number)
    while gangs:
        started = await world.one_bound(*gangs)
        gangs.remove(started)
        assert not any(world.bound_pods(each) for each in gangs)
        await world.delete(started)


async def test_g09_a_timed_out_gang_releases_everything_and_is_marked_i5(world: World) -> None:
    await world.nodes(4)
    a, late, fence = loose("a", waiting_time=3).of(5), plain("late").asking(cpu=4), plain("fence").asking(cpu=5)
    await world.create(a)
    await world.holds(a, 4)
    await world.create(late)
    await world.waits(late, "cpu")
    await world.phase(a, "timed_out")
    await all_marked(world, a)
    await world.event(a, "timed out after 3 s", "4 of 5 members", "1 were missing")
    await world.unschedulable(a, "timed out and are not scheduled")
    await world.bound(late)
    before = await world.cluster.explain(world.here(a).id)
    assert "is timed-out" in await world.cluster.muster("explain", before.gang.id)
    await world.create(fence)
    await world.waits(fence)
    await world.nodes(5, 5)
    await world.bound(fence)
    assert (await world.cluster.explain(before.gang.id)).attempts == before.attempts
    assert world.bound_pods(a) == {}


async def test_g09_removing_the_timeout_mark_retries_the_gang(world: World) -> None:
    await world.nodes(4)
    a = loose("a", waiting_time=1).of(5)
    await world.create(a)
    await all_marked(world, a)
    await world.nodes(1)
    await world.unmark(a, TIMEOUT)
    await world.bound(a)
    assert timed_out(world, a) == []


async def test_g09_editing_the_declaration_removes_the_timeout_marks(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(5).declared_by("koordinator").non_strict(1)
    await world.create(a)
    await all_marked(world, a)
    world.cluster.invariants.expect(world.here(a).id, 4, [])
    await world.edit_minimum(a, 4)
    await world.bound(a, count=4)
    await world.cluster.until(lambda: timed_out(world, a) == [], "no pod is marked")
    await world.nodes(1)
    await world.bound(a)


async def test_g09_g35_a_gang_recreated_after_a_timeout_is_tried(world: World) -> None:
    await world.nodes(4)
    a = loose("a", waiting_time=1).of(5)
    await world.create(a)
    await all_marked(world, a)
    await world.delete(a)
    smaller = loose("a", waiting_time=1).of(4)
    await world.create(smaller)
    await world.bound(smaller)


async def test_g09_a_timeout_survives_a_coordinator_restart(world: World) -> None:
    await world.nodes(4)
    a, fence = loose("a", waiting_time=1).of(5), plain("fence")
    await world.create(a)
    await all_marked(world, a)
    await world.cluster.stack.kill("coordinator")
    await world.nodes(1)
    await world.cluster.stack.start(["coordinator"])
    await world.create(fence)
    await world.bound(fence)
    await world.phase(a, "timed_out")
    assert world.bound_pods(a) == {}


async def test_g10_capacity_freed_before_the_timeout_starts_the_gang(world: World) -> None:
    await world.nodes(4)
    a = loose("a").of(5)
    await world.create(a)
    waiting = await world.holds(a, 4)
    assert waiting.gang.reserved == 4
    assert waiting.waits_until_unix_millis > 0
    assert "holds reservations for 4 of 5 members" in waiting.gang.reason
    assert "4 reserved" in await world.cluster.muster("explain", waiting.gang.id)
    assert waiting.gang.id not in world.cluster.records.history or not any(
        record.seats for record in world.cluster.records.history[waiting.gang.id]
    )
    await world.nodes(1)
    await world.bound(a)
    assert timed_out(world, a) == []


async def test_g33_deleting_the_podgroup_releases_the_reservations_i5(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(5).declared_by("koordinator").non_strict(LONG)
    others = [plain(f"p{number}") for number in range(4)]
    await world.create(a)
    await world.holds(a, 4)
    await world.undefine(a)
    await world.waits(a, "PodGroup", "does not exist")
    await world.create(*others)
    await world.bound(*others)
    await world.unschedulable(a, "PodGroup", "does not exist")
    await world.nodes(5)
    await world.define(a)
    await world.bound(a)


async def test_g34_deleting_a_pod_releases_its_reservation_i5(world: World) -> None:
    await world.nodes(4)
    a, other = loose("a").of(5), plain("other")
    await world.create(a)
    answer = await world.holds(a, 4)
    pod = next(member.pod for member in answer.members if member.reserved_node)
    await world.delete_pods(a, int(pod.rpartition("-")[2]))
    await world.waits(a, "4 of 5 members")
    await world.create(other)
    await world.bound(other)
    assert world.bound_pods(a) == {}


async def test_g39_a_pod_of_another_scheduler_on_a_reserved_seat_moves_the_reservation_i3(world: World) -> None:
    [node] = await world.nodes(4)
    a, intruder = loose("a").of(5), plain("intruder").asking(cpu=2)
    await world.create(a)
    await world.holds(a, 4)
    await world.bind_by_hand(intruder, {0: node})
    await world.holds(a, 2)
    await world.nodes(3)
    await world.bound(a)


async def test_a_mode_edited_during_the_wait_takes_effect(world: World) -> None:
    await world.nodes(4)
    a, small = loose("a").of(5), plain("small")
    await world.create(a)
    await world.holds(a, 4)
    await world.annotate(a, mode="Strict")
    await world.create(small)
    await world.bound(small)
    await world.waits(a, "members fit")
    await world.annotate(a, mode="NonStrict")
    await world.holds(a, 3)
    await world.nodes(2)
    await world.bound(a)


async def test_g31_lowering_the_minimum_to_what_is_held_starts_the_gang(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(5).declared_by("koordinator").non_strict(LONG)
    await world.create(a)
    await world.holds(a, 4)
    world.cluster.invariants.expect(world.here(a).id, 4, [])
    await world.edit_minimum(a, 4)
    await world.bound(a, count=4)
    await world.nodes(1)
    await world.bound(a)


async def test_a_nonstrict_group_starts_when_all_gangs_have_their_minimum_i1(world: World) -> None:
    await world.nodes(5)
    space_a, space_b = world.namespace("a"), world.namespace("b")
    group = (f"{space_a}/left", f"{space_b}/right")
    left = loose("left").of(3).in_namespace(space_a).with_group(*group)
    right = loose("right").of(3).in_namespace(space_b).with_group(*group)
    await world.create(left, right)
    await world.phase(left, "waiting")
    await world.phase(right, "waiting")
    assert world.bound_pods(left) == world.bound_pods(right) == {}
    await world.nodes(1)
    await world.bound(left, right)


async def test_a_timed_out_gang_times_out_its_whole_group(world: World) -> None:
    await world.nodes(5)
    group = (f"{world.name}/left", f"{world.name}/right")
    left = loose("left", waiting_time=1).of(3).with_group(*group)
    right = loose("right").of(3).with_group(*group)
    late = plain("late").asking(cpu=5)
    await world.create(left, right)
    for each in (left, right):
        await world.phase(each, "timed_out")
        await all_marked(world, each)
        await world.event(each, "timed out after 1 s")
    await world.create(late)
    await world.bound(late)


async def test_reservations_survive_a_change_of_leaders_i2_i5(world: World) -> None:
    await world.nodes(4)
    a, b = loose("a").of(5), plain("b")
    await world.create(a)
    await world.holds(a, 4)
    await world.cluster.stack.kill("coordinator")
    await world.cluster.stack.start(["coordinator"])
    await world.holds(a, 4)
    await world.create(b)
    await world.waits(b, "cpu")
    await world.nodes(2)
    await world.bound(a, b)
