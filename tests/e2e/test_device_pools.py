"""Pools of devices that several nodes can use: a pool with a node selector, and one for all nodes."""

from typing import Any

import pytest

from builders.e2e.devices import claims_of, device, device_class, publish, request, results_of, with_claims
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

FABRIC = "fabric.example.com"
RACK = "muster.dev/test-rack"


async def claiming(world: World, workload: Workload) -> Workload:
    """The workload, whose pods claim one endpoint each."""
    endpoints = await device_class(world, "endpoint", f"device.driver == '{FABRIC}'")
    return await with_claims(world, workload, request(endpoints))


async def test_devices_of_a_rack_are_used_on_its_nodes_only_and_once(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    value = f"{world.name}-r1"
    labels: dict[str, Any] = {RACK: value}
    [a, b] = await world.nodes(8, 8, **labels)
    await world.nodes(8)
    requirement = {"key": RACK, "operator": "In", "values": [value]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    endpoints = [device(f"endpoint-{index}") for index in range(3)]
    await publish(world, f"{world.name}-rack", *endpoints, owner=a, driver=FABRIC, nodeSelector=selector)
    first = await claiming(world, gang("first").of(2))
    await world.create(first)
    await world.bound(first)
    assert world.per_node(first).keys() <= {a, b}
    assert len({each["device"] for each in await results_of(world, first)}) == 2
    for claim in await claims_of(world, first):
        [term] = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        assert term["matchExpressions"] == [requirement]
    second = await claiming(world, gang("second").of(2))
    await world.create(second)
    await world.waits(second)
    await world.delete(first)
    await world.bound(second)
