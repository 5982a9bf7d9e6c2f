"""Gangs with volumes that exist already, such as local disks: chosen for the whole gang with its permit."""

import asyncio

import pytest

from builders.e2e.faults import BINDS, Requests
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESERVATIONS = Requests("PATCH", "/persistentvolumes/[^/]+")


async def volumes_are_with_their_pods(world: World, *workloads: Workload) -> set[str]:
    """Check that every pod has a volume of its own, on its node. Returns the volumes."""
    volumes: list[str] = []
    for workload in workloads:
        bound = world.bound_pods(workload)
        nodes = await asyncio.gather(*(world.node_of_volume(workload, number) for number in range(workload.size)))
        assert dict(zip(bound, nodes, strict=True)) == bound
        volumes += await asyncio.gather(*(world.volume_of(workload, number) for number in range(workload.size)))
    assert len(set(volumes)) == len(volumes)
    return set(volumes)


async def test_i3_each_member_has_a_volume_of_its_own(world: World) -> None:
    nodes = await world.nodes(4, 4, 4, 4)
    local = await world.static_class()
    volumes = await world.local_volumes(local, *nodes)
    a = gang("a").of(4).with_claims(local)
    with world.cluster.faults.seen(RESERVATIONS) as requests, world.cluster.faults.hold(BINDS) as held:
        await world.create(a)
        await held.until(1)
        assert len(requests) == 4, "all volumes are reserved before any pod is bound"
        held.release()
        await world.bound(a)
    assert sorted(world.bound_pods(a).values()) == sorted(nodes)
    assert await volumes_are_with_their_pods(world, a) == set(volumes)
    b = gang("b").of(2).with_claims(local)
    await world.create(b)
    await world.waits(b, "have no free volume of storage class", "of at least 10Gi")
    await world.local_volumes(local, nodes[0], nodes[0])
    await world.bound(b)
    assert set(world.bound_pods(b).values()) == {nodes[0]}


async def test_i1_of_two_gangs_that_contend_for_volumes_one_starts_whole(world: World) -> None:
    nodes = await world.nodes(4, 4, 4)
    local = await world.static_class()
    await world.local_volumes(local, *nodes, nodes[0], nodes[1])
    a, b = (gang(name).of(3).with_claims(local) for name in "ab")
    await asyncio.gather(world.create(a), world.create(b))
    first = await world.one_bound(a, b)
    other = b if first.name == a.name else a
    await world.waits(other, "2 of 3 members fit", "short of 1 volume of storage class")
    await volumes_are_with_their_pods(world, first)
    await world.local_volumes(local, nodes[2])
    await world.bound(other)
    await volumes_are_with_their_pods(world, first, other)


async def test_a_volume_that_others_take_after_the_permit_is_replaced(world: World) -> None:
    nodes = await world.nodes(1, 1, 1)
    local = await world.static_class()
    volumes = await world.local_volumes(local, *nodes)
    a = gang("a").of(2).with_claims(local)
    with world.cluster.faults.hold(RESERVATIONS) as held:
        await world.create(a)
        await held.until(2)
        chosen = [path.rpartition("/")[2] for path in held.paths]
        taken = {"spec": {"claimRef": {"namespace": "others", "name": "theirs", "uid": "none"}}}
        await world.cluster.merge(f"/api/v1/persistentvolumes/{chosen[0]}", taken)
        held.release()
    await world.event(a, "could not be bound", f'"{chosen[0]}"', "was taken by claim others/theirs")
    await world.bound(a)
    assert await volumes_are_with_their_pods(world, a) == set(volumes) - {chosen[0]}


@pytest.mark.parametrize("passed", [0, 2, 4])
async def test_i6_processes_are_killed_while_volumes_are_reserved(world: World, passed: int) -> None:
    nodes = await world.nodes(2, 2)
    local = await world.static_class()
    await world.local_volumes(local, *nodes, *nodes, *nodes)
    a = gang("a").of(4).with_claims(local)
    with world.cluster.faults.hold(RESERVATIONS, let_pass=passed) as held:
        with world.cluster.faults.hold(BINDS) as binds:
            await world.create(a)
            await (binds.until(1) if passed == 4 else held.until(4 - passed))
            await world.cluster.stack.kill("binding")
            await world.cluster.stack.kill("coordinator")
            binds.drop()
        held.drop()
        await world.cluster.stack.start()
        await world.bound(a)
    used = await volumes_are_with_their_pods(world, a)
    assert set(await world.reserved_volumes(local)) == used, "no other volume is reserved"


async def test_volumes_of_different_sizes_suit_all_members(world: World) -> None:
    [node] = await world.nodes(8)
    local = await world.static_class()
    small, large = [
        *await world.local_volumes(local, node, size="1Gi"),
        *await world.local_volumes(local, node, size="20Gi"),
    ]
    a = gang("a").of(1).with_claims(local)
    await world.create(a)
    await world.bound(a)
    assert await world.volume_of(a, 0) == small, "the smallest one that is large enough"
    b = gang("b").of(1).with_claims(local)
    await world.create(b)
    await world.bound(b)
    assert await world.volume_of(b, 0) == large
