"""Constraints of claims: devices with equal, or distinct, values of an attribute."""

import pytest

from builders.e2e.devices import devices_of, gpus, with_claims
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOUR = Cards(CardKind.GPU, 4)
SAME_ROOT = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]


async def test_each_member_gets_devices_behind_one_pcie_root(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, 8, cards=FOUR)
    a = await with_claims(world, gang("a").of(4), gpus(world, 2), constraints=SAME_ROOT)
    await world.create(a)
    await world.bound(a)
    pairs = [sorted(each.rpartition("/")[2] for each in found) for found in (await devices_of(world, a)).values()]
    assert sorted(pairs) == [["gpu-0", "gpu-1"]] * 2 + [["gpu-2", "gpu-3"]] * 2


async def test_a_gang_waits_while_the_free_devices_are_behind_different_roots(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=FOUR)
    single = await with_claims(world, gang("single").of(1), gpus(world, 1))
    await world.create(single)
    await world.bound(single)
    pairs = await with_claims(world, gang("pairs").of(1), gpus(world, 3), constraints=SAME_ROOT)
    await world.create(pairs)
    await world.waits(pairs, "no node has devices for them")
    two = await with_claims(world, gang("two").of(2), gpus(world, 2), constraints=SAME_ROOT)
    await world.create(two)
    await world.waits(two, "1 of 2 members fit")
    await world.delete(single)
    await world.bound(two)
