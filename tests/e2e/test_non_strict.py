"""NonStrict gangs: what they hold while they wait and what ends the wait, as the API and `muster explain` tell it."""

from typing import Any

import pytest

from builders.e2e.cluster import JSON
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

TIMEOUT = "gang.scheduling.koordinator.sh/timeout"
LONG = "600s"


def loose(name: str, *, waiting_time: str = LONG) -> Workload:
    """A NonStrict gang."""
    return gang(name).annotated(mode="NonStrict", waiting_time=waiting_time)


def timed_out(scene: Scene, workload: Workload) -> list[str]:
    """Names of its pods that carry the mark."""
    workload = scene.here(workload)
    marked = [pod for (namespace, _), pod in scene.cluster.pods.items() if namespace == workload.namespace]
    names = {workload.pod_name(number) for number in range(workload.size)}
    return sorted(name for pod in marked if _annotations(pod).get(TIMEOUT) == "true" and (name := _name(pod)) in names)


async def all_marked(scene: Scene, workload: Workload) -> None:
    """Wait until every pod of it carries the mark."""
    what = f"all pods of {workload.name} are marked"
    await scene.cluster.until(lambda: len(timed_out(scene, workload)) == workload.size, what)


def _annotations(pod: JSON) -> dict[str, Any]:
    return pod["metadata"].get("annotations") or {}


def _name(pod: JSON) -> str:
    return str(pod["metadata"]["name"])


async def test_g08_gangs_created_interleaved_start_one_after_another(scene: Scene) -> None:
    await scene.nodes(5)
    gangs = [loose(name).of(5) for name in "abc"]
    for number in range(5):
        for each in gangs:
            await scene.add_pods(each, number)
    while gangs:
        started = await scene.one_bound(*gangs)
        gangs.remove(started)
        assert not any(scene.bound_pods(each) for each in gangs)
        await scene.delete(started)


async def test_g09_what_waited_too_long_gives_all_back_and_is_marked_and_not_tried_again_i5(scene: Scene) -> None:
    await scene.nodes(4)
    a, late, fence = loose("a", waiting_time="3s").of(5), plain("late").asking(cpu=4), plain("fence").asking(cpu=5)
    await scene.create(a)
    await scene.holds(a, 4)
    await scene.create(late)
    await scene.waits(late, "cpu")
    await scene.phase(a, "timed_out")
    await all_marked(scene, a)
    await scene.event(a, "timed out after 3 s", "4 of 5 members", "1 were missing")
    await scene.unschedulable(a, "timed out and are not scheduled")
    await scene.bound(late)
    before = await scene.cluster.explain(scene.here(a).id)
    assert "is timed-out" in await scene.cluster.muster("explain", before.gang.id)
    await scene.create(fence)
    await scene.waits(fence)
    await scene.nodes(5, 5)
    await scene.bound(fence)
    assert (await scene.cluster.explain(before.gang.id)).attempts == before.attempts
    assert scene.bound_pods(a) == {}


async def test_g09_pods_whose_mark_the_user_takes_off_are_tried_again(scene: Scene) -> None:
    await scene.nodes(4)
    a = loose("a", waiting_time="1s").of(5)
    await scene.create(a)
    await all_marked(scene, a)
    await scene.nodes(1)
    await scene.unmark(a, TIMEOUT)
    await scene.bound(a)
    assert timed_out(scene, a) == []


async def test_g09_an_edited_declaration_takes_the_marks_off(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(5).declared_by("koordinator").annotated(mode="NonStrict", waiting_time="1s")
    await scene.create(a)
    await all_marked(scene, a)
    scene.cluster.invariants.expect(scene.here(a).id, 4, [])
    await scene.edit_minimum(a, 4)
    await scene.bound(a, count=4)
    await scene.cluster.until(lambda: timed_out(scene, a) == [], "no pod is marked")
    await scene.nodes(1)
    await scene.bound(a)


async def test_g09_g35_a_gang_made_anew_under_the_name_of_one_that_timed_out_is_tried(scene: Scene) -> None:
    await scene.nodes(4)
    a = loose("a", waiting_time="1s").of(5)
    await scene.create(a)
    await all_marked(scene, a)
    await scene.delete(a)
    smaller = loose("a", waiting_time="1s").of(4)
    await scene.create(smaller)
    await scene.bound(smaller)


async def test_g09_that_it_timed_out_outlives_the_coordinator(scene: Scene) -> None:
    await scene.nodes(4)
    a, fence = loose("a", waiting_time="1s").of(5), plain("fence")
    await scene.create(a)
    await all_marked(scene, a)
    await scene.cluster.stack.kill("coordinator")
    await scene.nodes(1)
    await scene.cluster.stack.start(["coordinator"])
    await scene.create(fence)
    await scene.bound(fence)
    await scene.phase(a, "timed_out")
    assert scene.bound_pods(a) == {}


async def test_g10_the_last_seat_comes_in_time_and_nothing_is_marked(scene: Scene) -> None:
    await scene.nodes(4)
    a = loose("a").of(5)
    await scene.create(a)
    waiting = await scene.holds(a, 4)
    assert waiting.gang.reserved == 4
    assert waiting.waits_until_unix_millis > 0
    assert "holds reservations for 4 of 5 members" in waiting.gang.reason
    assert "4 reserved" in await scene.cluster.muster("explain", waiting.gang.id)
    assert waiting.gang.id not in scene.cluster.records.history or not any(
        record.seats for record in scene.cluster.records.history[waiting.gang.id]
    )
    await scene.nodes(1)
    await scene.bound(a)
    assert timed_out(scene, a) == []


async def test_g33_the_podgroup_is_deleted_while_its_pods_hold_seats_i5(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(5).declared_by("koordinator").annotated(mode="NonStrict", waiting_time=LONG)
    others = [plain(f"p{number}") for number in range(4)]
    await scene.create(a)
    await scene.holds(a, 4)
    await scene.undefine(a)
    await scene.waits(a, "PodGroup", "does not exist")
    await scene.create(*others)
    await scene.bound(*others)
    await scene.unschedulable(a, "PodGroup", "does not exist")
    await scene.nodes(5)
    await scene.define(a)
    await scene.bound(a)


async def test_g34_the_seat_of_a_deleted_pod_is_free_at_once_i5(scene: Scene) -> None:
    await scene.nodes(4)
    a, other = loose("a").of(5), plain("other")
    await scene.create(a)
    answer = await scene.holds(a, 4)
    pod = next(member.pod for member in answer.members if member.reserved_node)
    await scene.delete_pods(a, int(pod.rpartition("-")[2]))
    await scene.waits(a, "4 of 5 members")
    await scene.create(other)
    await scene.bound(other)
    assert scene.bound_pods(a) == {}


async def test_g39_a_pod_of_another_scheduler_on_a_reserved_seat_moves_the_reservation_i3(scene: Scene) -> None:
    [node] = await scene.nodes(4)
    a, intruder = loose("a").of(5), plain("intruder").asking(cpu=2)
    await scene.create(a)
    await scene.holds(a, 4)
    await scene.bind_by_hand(intruder, {0: node})
    await scene.holds(a, 2)
    await scene.nodes(3)
    await scene.bound(a)


async def test_a_mode_edited_while_the_gang_waits_counts(scene: Scene) -> None:
    await scene.nodes(4)
    a, small = loose("a").of(5), plain("small")
    await scene.create(a)
    await scene.holds(a, 4)
    await scene.annotate(a, mode="Strict")
    await scene.create(small)
    await scene.bound(small)
    await scene.waits(a, "members fit")
    await scene.annotate(a, mode="NonStrict")
    await scene.holds(a, 3)
    await scene.nodes(2)
    await scene.bound(a)


async def test_a_minimum_lowered_while_the_gang_holds_enough_starts_it_g31(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(5).declared_by("koordinator").annotated(mode="NonStrict", waiting_time=LONG)
    await scene.create(a)
    await scene.holds(a, 4)
    scene.cluster.invariants.expect(scene.here(a).id, 4, [])
    await scene.edit_minimum(a, 4)
    await scene.bound(a, count=4)
    await scene.nodes(1)
    await scene.bound(a)


async def test_a_group_of_waiting_gangs_starts_when_all_have_their_minimum_i1(scene: Scene) -> None:
    await scene.nodes(5)
    space_a, space_b = scene.namespace("a"), scene.namespace("b")
    group = (f"{space_a}/left", f"{space_b}/right")
    left = loose("left").of(3).in_namespace(space_a).with_group(*group)
    right = loose("right").of(3).in_namespace(space_b).with_group(*group)
    await scene.create(left, right)
    await scene.phase(left, "waiting")
    await scene.phase(right, "waiting")
    assert scene.bound_pods(left) == scene.bound_pods(right) == {}
    await scene.nodes(1)
    await scene.bound(left, right)


async def test_one_gang_that_waits_too_long_times_out_its_whole_group(scene: Scene) -> None:
    await scene.nodes(5)
    group = (f"{scene.name}/left", f"{scene.name}/right")
    left = loose("left", waiting_time="1s").of(3).with_group(*group)
    right = loose("right").of(3).with_group(*group)
    late = plain("late").asking(cpu=5)
    await scene.create(left, right)
    for each in (left, right):
        await scene.phase(each, "timed_out")
        await all_marked(scene, each)
        await scene.event(each, "timed out after 1 s")
    await scene.create(late)
    await scene.bound(late)


async def test_a_gang_that_holds_seats_is_found_by_the_next_coordinator_i2_i5(scene: Scene) -> None:
    await scene.nodes(4)
    a, b = loose("a").of(5), plain("b")
    await scene.create(a)
    await scene.holds(a, 4)
    await scene.cluster.stack.kill("coordinator")
    await scene.cluster.stack.start(["coordinator"])
    await scene.holds(a, 4)
    await scene.create(b)
    await scene.waits(b, "cpu")
    await scene.nodes(2)
    await scene.bound(a, b)
