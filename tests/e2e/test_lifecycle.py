"""Gangs after their start: recreated, finished and gated members, and reused names."""

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from muster.gangs.facts import MatchPolicy

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_g16_a_member_recreated_after_the_start_binds_alone(world: World) -> None:
    await world.nodes(5)
    a = gang("a").of(5)
    await world.create(a)
    await world.bound(a)
    await world.delete_pods(a, 4)
    await world.add_pods(a, 4)
    await world.bound(a)


async def test_g17_later_members_wait_until_waiting_and_running_reach_the_minimum(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4).with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
    await world.create(a)
    await world.bound(a)
    await world.delete_pods(a, 1, 2, 3)
    await world.add_pods(a, 1)
    await world.event(a, "1 later pod is pending: 2 of 4 members exist")
    assert len(world.bound_pods(a)) == 1
    await world.add_pods(a, 2, 3)
    await world.bound(a)


async def test_g18_later_members_wait_until_they_reach_the_minimum_alone(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4).needing(2).with_match_policy(MatchPolicy.ONLY_WAITING)
    await world.create(a, only=(0, 1))
    await world.bound(a, count=2)
    await world.add_pods(a, 2)
    await world.event(a, "1 later pod is pending: 1 of 2 members exist")
    assert len(world.bound_pods(a)) == 2
    await world.add_pods(a, 3)
    await world.bound(a)


async def test_g19_bound_members_without_a_record_count_toward_the_minimum(world: World) -> None:
    [node] = await world.nodes(4)
    a = gang("a").of(5)
    await world.cluster.stack.stop_one("coordinator")
    await world.bind_by_hand(a, dict.fromkeys(range(3), node))
    await world.add_pods(a, 3, 4)
    await world.cluster.stack.start(["coordinator"])
    await world.phase(a, "queued")
    assert len(world.bound_pods(a)) == 3
    await world.nodes(1)
    await world.bound(a)


async def test_g35_a_recreated_gang_starts_from_scratch(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(3).declared_by("coscheduling")
    await world.create(a)
    await world.bound(a)
    await world.delete(a)
    larger = gang("a").of(4).declared_by("coscheduling")
    await world.create(larger)
    waiting = await world.waits(larger, "1 cpu")
    assert not waiting.HasField("start_seconds")
    await world.nodes(1)
    await world.bound(larger)


@pytest.mark.parametrize(
    "a",
    [
        gang("a").of(3).gated("example.com/quota"),
        gang("a").of(3).declared_by("kueue").gated("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"),
    ],
    ids=["quota", "kueue"],
)
async def test_g48_gated_pods_do_not_count(world: World, a: Workload) -> None:
    await world.nodes(4)
    await world.create(a)
    await world.waits(a, "0 of 3 members")
    await world.ungate(a, 0, 1)
    await world.waits(a, "2 of 3 members can be scheduled (1 gated)")
    await world.ungate(a, 2)
    await world.bound(a)


async def test_g49_finished_members_hold_no_capacity(world: World) -> None:
    await world.nodes(4)
    a, b = gang("a").of(4), gang("b").of(3)
    await world.create(a)
    await world.bound(a)
    await world.create(b)
    await world.waits(b)
    await world.end_pods(a, 0, 1, 2)
    await world.bound(b)
    assert len(world.bound_pods(a)) == 4


async def test_pods_deleted_from_a_pending_gang_leave_it_incomplete(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(3)
    await world.create(a)
    await world.waits(a, "cpu")
    await world.delete_pods(a, 2)
    await world.waits(a, "2 of 3 members")
    await world.nodes(1)
    await world.add_pods(a, 2)
    await world.bound(a)


async def test_a_deleted_gang_leaves_no_record_i5(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(3)
    await world.create(a)
    await world.bound(a)
    id_ = world.here(a).id
    await world.cluster.until(lambda: id_ in world.cluster.records.present, "the record is there")
    await world.delete(a)
    await world.cluster.until(lambda: id_ not in world.cluster.records.present, "the record is gone")
