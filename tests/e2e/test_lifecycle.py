"""What becomes of gangs after they started: members that come again, end, or are gated, and names used anew."""

import pytest

from builders.e2e.world import Scene
from builders.gangs.workloads import gang

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_g16_a_member_created_anew_after_the_start_binds_alone(scene: Scene) -> None:
    await scene.nodes(5)
    a = gang("a").of(5)
    await scene.create(a)
    await scene.bound(a)
    await scene.delete_pods(a, 4)
    await scene.add_pods(a, 4)
    await scene.bound(a)


async def test_g17_later_members_wait_until_waiting_and_running_reach_the_minimum(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4).annotated(match_policy="waiting-and-running")
    await scene.create(a)
    await scene.bound(a)
    await scene.delete_pods(a, 1, 2, 3)
    await scene.add_pods(a, 1)
    await scene.event(a, "1 later pod is pending: 2 of 4 members exist")
    assert len(scene.bound_pods(a)) == 1
    await scene.add_pods(a, 2, 3)
    await scene.bound(a)


async def test_g18_later_members_wait_until_they_alone_reach_the_minimum(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4).needing(2).annotated(match_policy="only-waiting")
    await scene.create(a)
    await scene.bound(a)
    await scene.delete_pods(a, 2, 3)
    await scene.add_pods(a, 2)
    await scene.event(a, "1 later pod is pending: 1 of 2 members exist")
    assert len(scene.bound_pods(a)) == 2
    await scene.add_pods(a, 3)
    await scene.bound(a)


async def test_g19_bound_members_without_a_record_count_as_a_start(scene: Scene) -> None:
    [node] = await scene.nodes(4)
    a = gang("a").of(5)
    await scene.cluster.stack.stop_one("coordinator")
    await scene.bind_by_hand(a, dict.fromkeys(range(3), node))
    await scene.add_pods(a, 3, 4)
    await scene.cluster.stack.start(["coordinator"])
    await scene.bound(a, count=4)
    await scene.nodes(1)
    await scene.bound(a)


async def test_g35_a_gang_of_the_same_name_begins_anew(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(3).declared_by("coscheduling")
    await scene.create(a)
    await scene.bound(a)
    await scene.delete(a)
    larger = gang("a").of(4).declared_by("coscheduling")
    await scene.create(larger)
    waiting = await scene.waits(larger, "1 cpu")
    assert not waiting.HasField("start_seconds")
    await scene.nodes(1)
    await scene.bound(larger)


async def test_g48_gated_pods_are_not_there_yet(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(3).gated("example.com/quota")
    await scene.create(a)
    await scene.waits(a, "0 of 3 members")
    await scene.ungate(a, 0, 1)
    await scene.waits(a, "2 of 3 members")
    await scene.ungate(a, 2)
    await scene.bound(a)


async def test_g49_members_that_ended_hold_no_room(scene: Scene) -> None:
    await scene.nodes(4)
    a, b = gang("a").of(4), gang("b").of(3)
    await scene.create(a)
    await scene.bound(a)
    await scene.create(b)
    await scene.waits(b)
    await scene.end_pods(a, 0, 1, 2)
    await scene.bound(b)
    assert len(scene.bound_pods(a)) == 4


async def test_pods_deleted_while_their_gang_waits_leave_it_incomplete(scene: Scene) -> None:
    await scene.nodes(2)
    a = gang("a").of(3)
    await scene.create(a)
    await scene.waits(a, "cpu")
    await scene.delete_pods(a, 2)
    await scene.waits(a, "2 of 3 members")
    await scene.nodes(1)
    await scene.add_pods(a, 2)
    await scene.bound(a)


async def test_a_gang_that_is_deleted_leaves_no_record_i5(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(3)
    await scene.create(a)
    await scene.bound(a)
    id_ = scene.here(a).id
    await scene.cluster.until(lambda: id_ in scene.cluster.records.present, "the record is there")
    await scene.delete(a)
    await scene.cluster.until(lambda: id_ not in scene.cluster.records.present, "the record is gone")
