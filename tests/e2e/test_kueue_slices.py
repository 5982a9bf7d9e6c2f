"""Slices of Kueue's pod sets without Kueue's topology-aware scheduling: Muster keeps each in one domain."""

from collections import Counter
from typing import Any

import pytest

from builders.e2e.world import World
from builders.gangs.dialects import DeclaredGang
from builders.gangs.manifests import Workload, gang
from muster.dialects.kueue_slices import POD_SET, SIZE, TOPOLOGY

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def racks(world: World, *sizes: int) -> str:
    """Creates racks with one node of this many CPUs each; returns the label key of racks."""
    key = f"example.com/{world.name}"
    for number, size in enumerate(sizes):
        label: Any = {key: f"r{number}"}
        await world.nodes(size, **label)
    return key


def by_rack(world: World, workload: Workload, key: str, *numbers: int) -> Counter[str]:
    """Bound pods of these numbers, or all, by rack."""
    bound, here = world.bound_pods(workload), world.here(workload)
    names = [here.pod_name(number) for number in numbers or range(here.size)]
    return Counter(world.cluster.nodes[bound[name]]["metadata"]["labels"][key] for name in names)


async def test_each_rack_gets_whole_slices(world: World) -> None:
    key = await racks(world, 6, 5)
    a = gang("a").declared_by("kueue").of(8).marked({TOPOLOGY: key, SIZE: "4"})
    await world.create(a)
    await world.bound(a)
    assert by_rack(world, a, key) == {"r0": 4, "r1": 4}


async def test_a_member_that_is_replaced_returns_to_the_rack_of_its_slice(world: World) -> None:
    key = await racks(world, 6, 5)
    a = gang("a").declared_by("kueue").of(4).marked({TOPOLOGY: key, SIZE: "4"})
    await world.create(a)
    await world.bound(a)
    [rack] = by_rack(world, a, key)
    await world.delete_pods(a, 0)
    await world.add_pods(a, 0)
    await world.bound(a)
    assert by_rack(world, a, key) == {rack: 4}


async def test_slices_that_fit_no_rack_wait(world: World) -> None:
    key = await racks(world, 6, 3)
    a = gang("a").declared_by("kueue").of(8).marked({TOPOLOGY: key, SIZE: "4"})
    await world.create(a)
    await world.waits(a, "factor(4)")
    assert not world.bound_pods(a)


async def test_a_pod_set_without_slices_starts_with_those_that_have_some(world: World) -> None:
    key = await racks(world, 7, 5)
    a = world.here(gang("a").declared_by("kueue").of(9))
    leader, *workers = a.pods()
    leader["metadata"]["labels"][POD_SET] = "leader"
    for worker in workers:
        worker["metadata"]["labels"][POD_SET] = "worker"
        worker["metadata"]["annotations"] |= {TOPOLOGY: key, SIZE: "4"}
    await world.declare(DeclaredGang(a.id, (leader, *workers), ""))
    await world.bound(a)
    assert by_rack(world, a, key, *range(1, 9)) == {"r0": 4, "r1": 4}
