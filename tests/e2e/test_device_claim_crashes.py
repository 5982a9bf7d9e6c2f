"""Processes are killed at the writes of a gang's claims: it is finished or placed anew, and no device is left over."""

import pytest

from builders.e2e.devices import claims_of, devices_of, gpus, has_a_device_each, with_claims, with_named_claim
from builders.e2e.faults import BINDS, Requests
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWO = Cards(CardKind.GPU, 2)
FINALIZERS = Requests("PATCH", "/resourceclaims/[^/]+")
ALLOCATIONS = Requests("PUT", "/resourceclaims/[^/]+/status")


async def kill(world: World, names: str) -> None:
    for name in names.split():
        await world.cluster.stack.kill(name)


@pytest.mark.parametrize("victims", ["binding", "coordinator", "coordinator binding"])
@pytest.mark.parametrize("carried_out", [False, True])
async def test_killed_at_the_allocation_of_the_second_claim_i5_i6(
    world: World, victims: str, carried_out: bool
) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(2, 2, cards=TWO)
    a = await with_claims(world, gang("a").of(3), gpus(world))
    with world.cluster.faults.hold(ALLOCATIONS, let_pass=1, carried_out=carried_out) as held:
        await world.create(a)
        await held.until(2)
        await kill(world, victims)
        held.drop()
        await world.cluster.stack.start()
    await has_a_device_each(world, a)


async def test_killed_at_the_finalizer_of_a_claim_i6(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(2, 2, cards=TWO)
    a = await with_claims(world, gang("a").of(3), gpus(world))
    with world.cluster.faults.hold(FINALIZERS, let_pass=1) as held:
        await world.create(a)
        await held.until(1)
        await kill(world, "coordinator binding")
        held.drop()
        await world.cluster.stack.start()
    await has_a_device_each(world, a)


async def test_allocations_of_a_placement_that_is_lost_are_given_back_i5(world: World) -> None:
    """All claims are allocated, and no pod is bound, when the nodes of the permit are removed."""
    world.cluster.api_server.needs_controllers()
    first = await world.nodes(4, cards=TWO)
    a = await with_claims(world, gang("a").of(2), gpus(world))
    with world.cluster.faults.hold(BINDS) as held:
        await world.create(a)
        await held.until(2)
        assert len(await devices_of(world, a)) == 2
        await kill(world, "coordinator binding")
        held.drop()
        await world.remove_nodes(*first)
        await world.nodes(4, cards=TWO)
        await world.cluster.stack.start()
    await has_a_device_each(world, a)


@pytest.mark.parametrize("of_group", [False, True], ids=["reserved-for-pods", "reserved-for-a-PodGroup"])
async def test_the_claim_of_a_gang_whose_placement_is_lost_is_allocated_anew_i5_i6(
    world: World, of_group: bool
) -> None:
    """All pods share the claim. It is allocated, and no pod is bound, when the node of the permit is removed."""
    [first] = await world.nodes(4, cards=TWO)
    workload = gang("a").of(3)
    if of_group:
        entry = {"name": "devices", "resourceClaimName": "a"}
        workload = workload.declared_by("native").declaring(resourceClaims=[entry])
    a = await with_named_claim(world, workload, gpus(world, 2))
    with world.cluster.faults.hold(BINDS) as held:
        await world.create(a)
        await held.until(3)
        await kill(world, "coordinator binding")
        held.drop()
        await world.remove_nodes(first)
        [second] = await world.nodes(4, cards=TWO)
        await world.cluster.stack.start()
    await world.bound(a)
    assert set(world.bound_pods(a).values()) == {second}
    [claim] = await claims_of(world, a)
    assert {each["pool"] for each in claim["status"]["allocation"]["devices"]["results"]} == {second}
