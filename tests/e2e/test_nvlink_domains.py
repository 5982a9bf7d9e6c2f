"""NVLink domains: gangs in one clique of nodes, with a channel of a compute domain for each node."""

import asyncio
from typing import Any

import pytest

from builders.e2e.devices import device, device_class, gpus, publish, request, with_claims
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from muster.localcluster.kubelets.devices.cards import CLIQUE_LABEL, CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

TWO = Cards(CardKind.NVLINK, 2)
CHANNELS = "channel.example.com"


async def domain(world: World, clique: str) -> list[str]:
    """Four nodes of an NVLink domain, with two GPUs and one channel each."""
    labels: dict[str, Any] = {CLIQUE_LABEL: f"{world.name}.{clique}"}
    nodes = await world.nodes(8, 8, 8, 8, cards=TWO, **labels)
    channel = device("channel-0", type="channel")
    await asyncio.gather(*(publish(world, node, channel, owner=node, driver=CHANNELS, generation=1) for node in nodes))
    return nodes


async def with_channels(world: World, workload: Workload, count: int) -> Workload:
    """The workload, whose pods claim GPUs and a channel each, and start in one clique."""
    channels = await device_class(world, "channel", f"device.driver == '{CHANNELS}'")
    one_clique = workload.declaring(schedulingConstraints={"topology": [{"key": CLIQUE_LABEL}]})
    return await with_claims(world, one_clique, gpus(world, count), request(channels))


def native(name: str, size: int) -> Workload:
    return gang(name).of(size).declared_by("native")


async def test_a_gang_has_every_node_of_one_nvlink_domain(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    first, second = await domain(world, "a"), await domain(world, "b")
    single = await with_channels(world, native("single", 1), 2)
    await world.create(single)
    await world.bound(single)
    [used] = world.per_node(single)
    other = second if used in first else first
    four = await with_channels(world, native("four", 4), 2)
    await world.create(four)
    await world.bound(four)
    assert world.per_node(four) == dict.fromkeys(other, 1)


async def test_a_gang_that_is_larger_than_each_nvlink_domain_waits(world: World) -> None:
    """Also if there are GPUs enough: a node has one channel."""
    world.cluster.api_server.needs_controllers()
    await domain(world, "a")
    await domain(world, "b")
    five = await with_channels(world, native("five", 5), 1)
    await world.create(five)
    await world.waits(five, "members fit")
