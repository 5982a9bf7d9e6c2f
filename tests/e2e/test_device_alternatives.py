"""Requests with alternatives (firstAvailable): the first one that a node can allocate is used."""

import pytest

from builders.e2e.devices import first_of, gpus, results_of, with_claims
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.localcluster.kubelets.devices.cards import DRIVER, CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('100Gi')) >= 0"


async def test_the_preferred_devices_are_used_while_they_last(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=Cards(CardKind.NVLINK, 1))
    wanted = first_of(gpus(world, 1, LARGE), gpus(world, 2))
    a, b = [await with_claims(world, gang(name).of(1), wanted) for name in ("a", "b")]
    await world.create(a)
    await world.bound(a)
    assert [each["request"] for each in await results_of(world, a)] == ["r0/s0"]
    await world.create(b)
    await world.waits(b, "devices")
    await world.nodes(8, cards=Cards(CardKind.GPU, 2))
    await world.bound(b)
    assert [each["request"] for each in await results_of(world, b)].count("r0/s1") == 2


async def test_members_of_a_gang_use_different_alternatives(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=Cards(CardKind.NVLINK, 1))
    await world.nodes(8, cards=Cards(CardKind.GPU, 2))
    a = await with_claims(world, gang("a").of(2), first_of(gpus(world, 1, LARGE), gpus(world, 2)))
    await world.create(a)
    await world.bound(a)
    assert sorted(each["request"] for each in await results_of(world, a)) == ["r0/s0", "r0/s1", "r0/s1"]
