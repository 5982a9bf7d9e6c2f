"""Admin access: monitoring sees devices that others use, and takes none of them."""

import pytest

from builders.e2e.devices import devices_of, gpus, results_of, with_claims
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOUR = Cards(CardKind.GPU, 4)


async def test_a_monitor_has_all_devices_and_takes_none(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=FOUR)
    first = await with_claims(world, gang("first").of(1), gpus(world, 3))
    await world.create(first)
    await world.bound(first)
    namespace = world.namespace("monitoring")
    labels = {"resource.kubernetes.io/admin-access": "true"}
    await world.cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    )
    every = {"deviceClassName": gpus(world)["deviceClassName"], "allocationMode": "All", "adminAccess": True}
    monitor = await with_claims(world, gang("monitor").of(1).in_namespace(namespace), every)
    await world.create(monitor)
    await world.bound(monitor)
    results = await results_of(world, monitor)
    assert sorted(each["device"] for each in results) == [f"gpu-{index}" for index in range(4)]
    assert all(each["adminAccess"] for each in results)
    last = await with_claims(world, gang("last").of(1), gpus(world, 1))
    await world.create(last)
    await world.bound(last)
    taken = [each for workload in (first, last) for each in (await devices_of(world, workload)).values()]
    assert len({device for found in taken for device in found}) == 4
