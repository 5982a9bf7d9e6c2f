"""Topology constraints in trees that ConfigMaps define; they hold, and trees may change."""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from builders.e2e.cluster import node_of
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAPS = "/api/v1/namespaces/default/configmaps"
Racks = dict[str, list[str]]
"""Nodes by rack."""
SetTree = Callable[[World, Racks], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session")
async def set_tree(world: World) -> AsyncIterator[SetTree]:
    """Create or change the tree with the name of the world."""
    made: list[str] = []

    async def set_tree(world: World, racks: Racks) -> None:
        tree = msgspec.json.encode({rack: {node: {} for node in nodes} for rack, nodes in racks.items()}).decode()
        if made:
            await world.cluster.merge(f"{MAPS}/{world.name}", {"data": {"tree": tree}})
            return
        made.append(world.name)
        metadata = {"name": world.name, "namespace": "default", "labels": {"sakkara.topology": ""}}
        data = {"name": world.name, "tree": tree}
        await world.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    yield set_tree
    for name in made:
        await world.cluster.call("DELETE", f"{MAPS}/{name}")


def asking(world: World, size: int, topology: str) -> Workload:
    return gang("a").of(size).asking(cpu=1).with_topology(topology, world.name)


def racks_of(world: World, workload: Workload, racks: Racks) -> dict[str, int]:
    """Members by rack."""
    homes = {node: rack for rack, nodes in racks.items() for node in nodes}
    found: dict[str, int] = {}
    for node in world.bound_pods(workload).values():
        found[homes[node]] = found.get(homes[node], 0) + 1
    return found


async def test_p06_a_hard_pack_waits_until_it_fits_into_one_rack(world: World, set_tree: SetTree) -> None:
    a, b, c, d = await world.nodes(2, 2, 2, 2)
    await set_tree(world, {"r0": [a, b], "r1": [c], "r2": [d]})
    five = asking(world, 5, "rack: hard pack")
    await world.create(five)
    await world.waits(five)
    later = {"r0": [a, b, c], "r1": [], "r2": [d]}
    await set_tree(world, later)
    await world.bound(five)
    assert racks_of(world, five, later) == {"r0": 5}


async def test_p07_a_hard_partition_uses_the_requested_racks(world: World, set_tree: SetTree) -> None:
    a, b, c = await world.nodes(8, 8, 8)
    racks = {"r0": [a], "r1": [b], "r2": [c]}
    await set_tree(world, racks)
    eight = asking(world, 8, "rack: hard partition(2); node: pack")
    await world.create(eight)
    await world.bound(eight)
    assert sorted(racks_of(world, eight, racks).values()) == [4, 4]


async def test_a_gang_waits_for_its_tree(world: World, set_tree: SetTree) -> None:
    a, b = await world.nodes(4, 4)
    four = asking(world, 4, "rack: hard pack")
    await world.create(four)
    await world.waits(four, f'"{world.name}"')
    await set_tree(world, {"r0": [a], "r1": [b]})
    await world.bound(four)
    assert len(set(world.bound_pods(four).values())) == 1


async def test_p35_an_invalid_tree_keeps_its_last_valid_version(world: World, set_tree: SetTree) -> None:
    a, b, c = await world.nodes(2, 2, 4)
    good = {"r0": [a, b], "r1": [c]}
    await set_tree(world, good)
    first = asking(world, 4, "rack: hard spread").named("first")
    await world.create(first)
    await world.bound(first)
    await set_tree(world, {"r0": [a, b], "r1": [c, a]})
    second = asking(world, 4, "rack: hard spread").named("second")
    await world.create(second)
    await world.bound(second)
    assert racks_of(world, second, good) == {"r0": 2, "r1": 2}


async def test_without_a_valid_tree_only_hard_constraints_wait(world: World, set_tree: SetTree) -> None:
    a, b = await world.nodes(8, 8)
    await set_tree(world, {"r0": [a], "r1": [a]})
    hard, soft = asking(world, 2, "rack: hard pack").named("hard"), asking(world, 2, "rack: pack").named("soft")
    await world.create(hard, soft)
    await world.waits(hard, "cannot be read", f'"{a}" is in the tree twice')
    await world.bound(soft)
    await set_tree(world, {"r0": [b], "r1": [b]})
    await world.waits(hard, f'"{b}" is in the tree twice')
    await set_tree(world, {"r0": [a], "r1": [b]})
    await world.bound(hard)


@pytest.mark.parametrize(
    ("topology", "saying"),
    [
        ("rack: hard bunch", '"hard bunch" on level "rack"'),
        ("node: range(3,4), factor(5)", "no multiple of 5 is from 3 to 4"),
        ("rak: pack", '"rak: pack"'),
        ("rack: hard partition(9)", '"rack: hard partition(9)"'),
    ],
)
async def test_p14_p36_invalid_constraints_stay_pending_with_the_reason(
    world: World, set_tree: SetTree, topology: str, saying: str
) -> None:
    a, b = await world.nodes(4, 4)
    await set_tree(world, {"r0": [a], "r1": [b]})
    four = asking(world, 4, topology)
    await world.create(four)
    await world.waits(four, saying)
    await world.event(four, saying)


async def test_p37_ranks_follow_the_distance_to_the_master(world: World, set_tree: SetTree) -> None:
    a, b, c = await world.nodes(2, 2, 4)
    await set_tree(world, {"r0": [a, b], "r1": [c]})
    eight = asking(world, 8, "rack: pack").named("master")
    await world.create(eight)
    await world.bound(eight)
    near = {a: 0, b: 0, c: 1}
    ranked: list[dict[str, Any]] = sorted(
        (pod for (namespace, _), pod in world.cluster.pods.items() if namespace == world.here(eight).namespace),
        key=lambda pod: int(pod["metadata"]["annotations"]["muster.dev/rank"]),
    )
    assert [int(pod["metadata"]["annotations"]["muster.dev/rank"]) for pod in ranked] == list(range(8))
    assert ranked[0]["metadata"]["name"] == "master-0"
    nodes = [node_of(pod) for pod in ranked]
    home = near[nodes[0]]
    distances = [(node != nodes[0]) + (near[node] != home) for node in nodes]
    assert distances == sorted(distances)
    assert sum(one != other for one, other in pairwise(nodes)) == 2


async def test_koordinator_network_topology_spec_packs_by_layer(world: World, set_tree: SetTree) -> None:
    a, b, c = await world.nodes(2, 2, 3)
    await set_tree(world, {"r0": [a], "r1": [b, c]})
    strategies = [
        {"layer": "SpineLayer", "strategy": "PreferGather"},
        {"layer": "rack", "strategy": "MustGather"},
    ]
    spec = msgspec.json.encode({"gatherStrategy": strategies}).decode()
    marks = {"gang.scheduling.koordinator.sh/network-topology-spec": spec, "muster.dev/topology-tree": world.name}
    six, five = (gang(name).of(size).asking(cpu=1).marked(marks) for name, size in (("six", 6), ("five", 5)))
    await world.create(six)
    await world.waits(six, '"rack: hard pack"')
    await world.create(five)
    await world.bound(five)
    assert set(world.bound_pods(five).values()) == {b, c}
