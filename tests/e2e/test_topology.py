"""Gangs ask to be near or apart, in trees that ConfigMaps define; what they ask holds, and trees may change."""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from builders.e2e.cluster import node_of
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAPS = "/api/v1/namespaces/default/configmaps"
Racks = dict[str, list[str]]
"""Nodes by rack."""
SetTree = Callable[[Scene, Racks], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session")
async def set_tree(scene: Scene) -> AsyncIterator[SetTree]:
    """Creates or changes the tree that is named like the scene."""
    made: list[str] = []

    async def set_tree(scene: Scene, racks: Racks) -> None:
        tree = msgspec.json.encode({rack: {node: {} for node in nodes} for rack, nodes in racks.items()}).decode()
        if made:
            await scene.cluster.merge(f"{MAPS}/{scene.name}", {"data": {"tree": tree}})
            return
        made.append(scene.name)
        metadata = {"name": scene.name, "namespace": "default", "labels": {"sakkara.topology": ""}}
        data = {"name": scene.name, "tree": tree}
        await scene.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    yield set_tree
    for name in made:
        await scene.cluster.call("DELETE", f"{MAPS}/{name}")


def asking(scene: Scene, size: int, topology: str) -> Workload:
    marks = {"muster.dev/topology": topology, "muster.dev/topology-tree": scene.name}
    return gang("a").of(size).asking(cpu=1).marked(marks)


def racks_of(scene: Scene, workload: Workload, racks: Racks) -> dict[str, int]:
    """Members by rack."""
    homes = {node: rack for rack, nodes in racks.items() for node in nodes}
    found: dict[str, int] = {}
    for node in scene.bound_pods(workload).values():
        found[homes[node]] = found.get(homes[node], 0) + 1
    return found


async def test_p06_a_hard_pack_waits_until_one_rack_has_room(scene: Scene, set_tree: SetTree) -> None:
    a, b, c, d = await scene.nodes(2, 2, 2, 2)
    await set_tree(scene, {"r0": [a, b], "r1": [c], "r2": [d]})
    five = asking(scene, 5, "rack: hard pack")
    await scene.create(five)
    await scene.waits(five)
    later = {"r0": [a, b, c], "r1": [], "r2": [d]}
    await set_tree(scene, later)
    await scene.bound(five)
    assert racks_of(scene, five, later) == {"r0": 5}


async def test_p07_a_hard_partition_takes_so_many_racks(scene: Scene, set_tree: SetTree) -> None:
    a, b, c = await scene.nodes(8, 8, 8)
    racks = {"r0": [a], "r1": [b], "r2": [c]}
    await set_tree(scene, racks)
    eight = asking(scene, 8, "rack: hard partition(2); node: pack")
    await scene.create(eight)
    await scene.bound(eight)
    assert sorted(racks_of(scene, eight, racks).values()) == [4, 4]


async def test_a_gang_waits_for_its_tree(scene: Scene, set_tree: SetTree) -> None:
    a, b = await scene.nodes(4, 4)
    four = asking(scene, 4, "rack: hard pack")
    await scene.create(four)
    await scene.waits(four, f'"{scene.name}"')
    await set_tree(scene, {"r0": [a], "r1": [b]})
    await scene.bound(four)
    assert len(set(scene.bound_pods(four).values())) == 1


async def test_p35_a_tree_that_is_refused_stays_as_it_was_last(scene: Scene, set_tree: SetTree) -> None:
    a, b, c = await scene.nodes(2, 2, 4)
    good = {"r0": [a, b], "r1": [c]}
    await set_tree(scene, good)
    first = asking(scene, 4, "rack: hard spread").named("first")
    await scene.create(first)
    await scene.bound(first)
    await set_tree(scene, {"r0": [a, b], "r1": [c, a]})
    second = asking(scene, 4, "rack: hard spread").named("second")
    await scene.create(second)
    await scene.bound(second)
    assert racks_of(scene, second, good) == {"r0": 2, "r1": 2}


async def test_where_no_tree_could_be_read_yet_only_hard_constraints_wait(scene: Scene, set_tree: SetTree) -> None:
    a, b = await scene.nodes(8, 8)
    await set_tree(scene, {"r0": [a], "r1": [a]})
    hard, soft = asking(scene, 2, "rack: hard pack").named("hard"), asking(scene, 2, "rack: pack").named("soft")
    await scene.create(hard, soft)
    await scene.waits(hard, "cannot be read", f'"{a}" is in the tree twice')
    await scene.bound(soft)
    await set_tree(scene, {"r0": [b], "r1": [b]})
    await scene.waits(hard, f'"{b}" is in the tree twice')
    await set_tree(scene, {"r0": [a], "r1": [b]})
    await scene.bound(hard)


@pytest.mark.parametrize(
    ("topology", "saying"),
    [
        ("rack: hard bunch", '"hard bunch" on level "rack"'),
        ("node: range(3,4), factor(5)", "no multiple of 5 is from 3 to 4"),
        ("rak: pack", '"rak: pack"'),
        ("rack: hard partition(9)", '"rack: hard partition(9)"'),
    ],
)
async def test_p14_p36_what_cannot_be_asked_for_waits_with_the_reason(
    scene: Scene, set_tree: SetTree, topology: str, saying: str
) -> None:
    a, b = await scene.nodes(4, 4)
    await set_tree(scene, {"r0": [a], "r1": [b]})
    four = asking(scene, 4, topology)
    await scene.create(four)
    await scene.waits(four, saying)
    await scene.event(four, saying)


async def test_p37_ranks_say_who_is_near_the_master(scene: Scene, set_tree: SetTree) -> None:
    a, b, c = await scene.nodes(2, 2, 4)
    await set_tree(scene, {"r0": [a, b], "r1": [c]})
    eight = asking(scene, 8, "rack: pack").named("master")
    await scene.create(eight)
    await scene.bound(eight)
    near = {a: 0, b: 0, c: 1}
    ranked: list[dict[str, Any]] = sorted(
        (pod for (namespace, _), pod in scene.cluster.pods.items() if namespace == scene.here(eight).namespace),
        key=lambda pod: int(pod["metadata"]["annotations"]["muster.dev/rank"]),
    )
    assert [int(pod["metadata"]["annotations"]["muster.dev/rank"]) for pod in ranked] == list(range(8))
    assert ranked[0]["metadata"]["name"] == "master-0"
    nodes = [node_of(pod) for pod in ranked]
    home = near[nodes[0]]
    distances = [(node != nodes[0]) + (near[node] != home) for node in nodes]
    assert distances == sorted(distances)
    assert sum(one != other for one, other in pairwise(nodes)) == 2


async def test_koordinators_network_topology_spec_gathers_a_gang_in_the_layers_of_its_tree(
    scene: Scene, set_tree: SetTree
) -> None:
    a, b, c = await scene.nodes(2, 2, 3)
    await set_tree(scene, {"r0": [a], "r1": [b, c]})
    strategies = [
        {"layer": "SpineLayer", "strategy": "PreferGather"},
        {"layer": "rack", "strategy": "MustGather"},
    ]
    spec = msgspec.json.encode({"gatherStrategy": strategies}).decode()
    marks = {"gang.scheduling.koordinator.sh/network-topology-spec": spec, "muster.dev/topology-tree": scene.name}
    six, five = (gang(name).of(size).asking(cpu=1).marked(marks) for name, size in (("six", 6), ("five", 5)))
    await scene.create(six)
    await scene.waits(six, '"rack: hard pack"')
    await scene.create(five)
    await scene.bound(five)
    assert set(scene.bound_pods(five).values()) == {b, c}
