"""The device webhook: the API server rejects allocations of devices that another ResourceClaim has, whoever writes."""

from typing import Any

import pytest

from builders.e2e.device_allocations import followed_allocations
from builders.e2e.devices import claims_of, gpus, with_claims
from builders.e2e.faults import Requests
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALLOCATIONS = Requests("PUT", "/resourceclaims/[^/]+/status")
TWO = Cards(CardKind.GPU, 2)


async def other_claim(world: World, like: Any, name: str) -> Any:
    """A claim of somebody else with the same requests."""
    metadata = {"name": name, "namespace": world.name}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": like["spec"]}
    await world.cluster.apply(claim)
    return await world.cluster.call("GET", path_of(world, name))


def path_of(world: World, name: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{world.name}/resourceclaims/{name}"


async def allocate(world: World, claim: Any, allocation: Any) -> tuple[int, str]:
    """Write an allocation as a scheduler does; returns the HTTP status and the message."""
    body = {**claim, "status": {"allocation": allocation}}
    path = f"{path_of(world, claim['metadata']['name'])}/status"
    reply = await world.cluster.try_call("PUT", path, body)
    return reply.status, reply.body.decode()


async def test_a_device_that_a_gang_has_cannot_be_allocated_again_i3(guarded_world: World) -> None:
    world = guarded_world
    await world.nodes(8, cards=TWO)
    a = await with_claims(world, gang("a").of(1), gpus(world))
    await world.create(a)
    await world.bound(a)
    [taken] = await claims_of(world, a)
    theirs = await other_claim(world, taken, "theirs")
    status, message = await allocate(world, theirs, taken["status"]["allocation"])
    assert status == 403
    assert "devices.muster.dev" in message
    assert f'is allocated to ResourceClaim \\"{world.name}/' in message
    async with followed_allocations(world) as allocations:
        assert len(allocations.devices) == 1
        await world.end_pods(a)
        await world.cluster.until(lambda: not allocations.devices, "the claim of the pod that ended is deallocated")
    status, message = await allocate(world, theirs, taken["status"]["allocation"])
    assert status == 200, message


async def test_gangs_wait_for_devices_while_no_lifecycle_answers(guarded_world: World) -> None:
    world = guarded_world
    await world.nodes(8, cards=TWO)
    a = await with_claims(world, gang("a").of(2), gpus(world))
    await world.cluster.stack.kill("lifecycle")
    with world.cluster.faults.hold(ALLOCATIONS) as held:
        await world.create(a)
        await held.until(2)
    with world.cluster.faults.hold(ALLOCATIONS) as held:
        await held.until(1)  # the first ones failed
        assert world.bound_pods(a) == {}
    await world.cluster.stack.start()
    await world.bound(a)
