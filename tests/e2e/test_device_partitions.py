"""Partitions of GPUs that share counters (MIG): no card is divided into more than it has."""

import pytest

from builders.e2e.devices import device_class, devices_of, gpus, request, with_claims
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from muster.localcluster.kubelets.devices.cards import DRIVER, CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

ONE = Cards(CardKind.MIG, 1)


async def partitioned(world: World, workload: Workload, profile: str) -> Workload:
    """The workload, whose pods claim a partition each."""
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"
    name = await device_class(world, "mig", expression)
    wanted = request(name, 1, f"device.attributes['{DRIVER}'].profile == '{profile}'")
    return await with_claims(world, workload, wanted)


async def test_gangs_that_need_a_whole_card_of_partitions_start_one_after_the_other(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=ONE)
    a, b = [await partitioned(world, gang(name).of(2), "3g.40gb") for name in ("a", "b")]
    await world.create(a, b)
    started = await world.one_bound(a, b)
    other = b if started.name == a.name else a
    await world.waits(other, "devices")
    taken = [each for devices in (await devices_of(world, started)).values() for each in devices]
    assert sorted(each.rpartition("-")[2] for each in taken) == ["0", "4"]
    await world.nodes(8, cards=ONE)
    await world.bound(other)
    assert len(world.per_node(a, b)) == 2


async def test_gangs_with_small_partitions_share_a_card(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=ONE)
    a = await partitioned(world, gang("a").of(2), "1g.10gb")
    b = await partitioned(world, gang("b").of(2), "2g.20gb")
    await world.create(a)
    await world.bound(a)
    await world.create(b)
    await world.bound(b)
    devices = [each for workload in (a, b) for found in (await devices_of(world, workload)).values() for each in found]
    assert len(set(devices)) == 4


async def test_a_whole_card_waits_for_the_last_of_its_partitions(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=ONE)
    small = await partitioned(world, gang("small").of(1), "1g.10gb")
    await world.create(small)
    await world.bound(small)
    whole = await with_claims(world, gang("whole").of(1), gpus(world, 1))
    await world.create(whole)
    await world.waits(whole, "devices")
    await world.delete(small)
    await world.bound(whole)
