"""Gangs with volumes that are provisioned once the node is chosen."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.faults import BINDS, Requests
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

SELECTIONS = Requests("PATCH", "/persistentvolumeclaims/[^/]+")


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def simulated(world: World) -> AsyncIterator[None]:
    world.cluster.api_server.needs_controllers()
    yield


async def volumes_are_with_their_pods(world: World, workload: Workload) -> None:
    """Check that every pod's volume is usable on its node."""
    bound = world.bound_pods(workload)
    nodes = await asyncio.gather(*(world.node_of_volume(workload, number) for number in range(workload.size)))
    assert dict(zip(bound, nodes, strict=True)) == bound


async def test_volumes_are_provisioned_before_the_gang_is_bound(world: World) -> None:
    await world.nodes(2, 2, 2, 2)
    a = gang("a").of(8).with_claims(await world.storage_class(seconds="0.5"))
    with world.cluster.faults.seen(SELECTIONS) as requests, world.cluster.faults.hold(BINDS) as held:
        await world.create(a)
        await held.until(1)
        assert len(requests) == 8, "all claims have a selected node before any pod is bound"
        held.release()
        await world.bound(a)
    await world.satisfied(a)
    await volumes_are_with_their_pods(world, a)


async def test_g37_a_pod_moves_from_a_node_that_cannot_get_its_volume(world: World) -> None:
    full, *others = await world.nodes(1, 1, 1)
    a = gang("a").of(2).with_claims(await world.storage_class(refusedNodes=full))
    await world.create(a)
    await world.event(a, "could not be bound", f"node '{full}' has no free storage")
    await world.bound(a)
    assert sorted(world.bound_pods(a).values()) == sorted(others)
    await volumes_are_with_their_pods(world, a)


async def test_i1_no_gang_of_a_group_is_bound_before_the_volumes_of_another_exist(world: World) -> None:
    refused = await world.nodes(2, 2)
    a, b = (gang(name).of(2).with_group(*(f"{world.name}/{each}" for each in "ab")) for name in "ab")
    b = b.with_claims(await world.storage_class(refusedNodes=",".join(refused)))
    with world.cluster.faults.seen(BINDS) as binds, world.cluster.faults.seen(SELECTIONS) as requests:
        await world.create(a, b)
        await world.event(b, "could not be bound", "has no free storage")
        await world.event(a, "could not be bound", f"the claims of pod {world.name}/b-")
        await world.cluster.stack.kill("coordinator")
        before = len(requests)
        await world.cluster.stack.start()
        await world.cluster.until(lambda: len(requests) >= before + 4, "the next leader tries twice")
        assert not binds
    await world.nodes(2, 2)
    await world.bound(a, b)
    await volumes_are_with_their_pods(world, b)


async def test_processes_are_killed_during_volume_provisioning(world: World) -> None:
    await world.nodes(2, 2)
    a = gang("a").of(4).with_claims(await world.storage_class(seconds="2"))
    with world.cluster.faults.seen(SELECTIONS) as requests:
        await world.create(a)
        await world.cluster.until(lambda: len(requests) == 4, "all claims have a selected node")
        await world.cluster.stack.kill("binding")
        await world.cluster.stack.kill("coordinator")
        await world.cluster.stack.start()
        await world.bound(a)
        assert len(requests) == 4, "no node is selected twice"
    await volumes_are_with_their_pods(world, a)


async def test_a_recreated_pod_is_placed_where_its_volume_is(world: World) -> None:
    await world.nodes(1, 1, 1)
    a = gang("a").of(2).with_claims(await world.storage_class())
    await world.create(a)
    await world.bound(a)
    before = world.bound_pods(a)
    await world.delete_pods(a, 1)
    await world.add_pods(a, 1)
    await world.bound(a)
    assert world.bound_pods(a) == before


async def test_pods_of_a_job_bring_their_own_claims(world: World) -> None:
    await world.nodes(2, 2)
    a = gang("a").of(4).with_scratch(await world.storage_class())
    await world.define(a)
    await world.create_job(a, "train", 4)
    await world.all_members_bound(a, 4)
    namespace = world.here(a).namespace
    pods = [pod for key, pod in world.cluster.pods.items() if key[0] == namespace]
    claims = [await world.named_claim(a, f"{pod['metadata']['name']}-data") for pod in pods]
    assert [claim["status"]["phase"] for claim in claims] == ["Bound"] * 4
    selected = [claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] for claim in claims]
    assert selected == [pod["spec"]["nodeName"] for pod in pods]


async def test_a_gang_is_divided_as_attach_limits_allow(world: World) -> None:
    one, two = await world.nodes(4, 4)
    await world.attach_limits(**{one: 1, two: 2})
    a = gang("a").of(3).with_claims(await world.storage_class())
    await world.create(a)
    await world.bound(a)
    assert sorted(world.bound_pods(a).values()) == sorted([one, two, two])
    b = gang("b").of(1).with_claims(await world.storage_class())
    await world.create(b)
    await world.waits(b, "2 node(s) exceed max volume count of driver")
    await world.attach_limits(**{one: 2})
    await world.bound(b)
    assert list(world.bound_pods(b).values()) == [one]


async def test_a_gang_is_divided_as_storage_capacity_allows(world: World) -> None:
    one, two = await world.nodes(4, 4)
    storage_class = await world.storage_class()
    await world.storage_capacity(storage_class, **{one: "1Gi", two: "2Gi"})
    a = gang("a").of(4).with_claims(storage_class)
    await world.create(a)
    await world.waits(a, "3 of 4 members fit", "2 node(s) did not have enough free storage of storage class")
    await world.storage_capacity(storage_class, **{one: "2Gi"})
    await world.bound(a)
    assert sorted(world.bound_pods(a).values()) == sorted([one, one, two, two])
    await volumes_are_with_their_pods(world, a)
