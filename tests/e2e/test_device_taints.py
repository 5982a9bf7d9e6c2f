"""Taints of devices: only requests that tolerate them get the devices."""

from typing import Any

import pytest

from builders.e2e.devices import device, device_class, publish, request, results_of, with_claims
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

CARDS = "card.example.com"
TAINT = "card.example.com/broken"
TOLERATED = {"tolerations": [{"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}]}


async def claiming(world: World, workload: Workload, count: int, **more: Any) -> Workload:
    """The workload, whose pods claim cards."""
    cards = await device_class(world, "card", f"device.driver == '{CARDS}'")
    return await with_claims(world, workload, request(cards, count, **more))


async def test_tainted_devices_go_to_requests_that_tolerate_the_taint(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    [node] = await world.nodes(8)
    broken = [device(f"broken-{index}", taint=TAINT) for index in range(2)]
    await publish(world, node, device("good"), *broken, owner=node, driver=CARDS)
    a = await claiming(world, gang("a").of(1), 2)
    await world.create(a)
    await world.waits(a, "wants 2, 1 is free")
    answer = await world.cluster.explain(world.here(a).id)
    [found] = answer.claimed_devices[0].requests
    assert (found.tainted, found.taint) == (2, f"{TAINT}:NoSchedule")
    assert any(f'the request tolerates the taint "{TAINT}:NoSchedule"' in way for way in answer.would_help)
    b = await claiming(world, gang("b").of(1), 3, **TOLERATED)
    await world.create(b)
    await world.bound(b)
    assert sorted(each["device"] for each in await results_of(world, b)) == ["broken-0", "broken-1", "good"]


async def test_a_gang_starts_when_the_taint_is_removed(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    [node] = await world.nodes(8)
    await publish(world, node, device("card", taint=TAINT), owner=node, driver=CARDS)
    a = await claiming(world, gang("a").of(1), 1)
    await world.create(a)
    await world.waits(a, "enough free devices")
    await publish(world, node, device("card"), owner=node, driver=CARDS, generation=2)
    await world.bound(a)
