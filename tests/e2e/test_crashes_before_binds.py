"""Processes are killed between a pod's labels and its bind: it keeps the permitted labels and is bound once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.faults import BINDS, Requests
from builders.e2e.sakkara_groups import RANK, ObservedGroups, following
from builders.e2e.world import World
from builders.gangs.sakkara_manifests import SakkaraGroup, group

pytestmark = pytest.mark.asyncio(loop_scope="session")

LABELS = Requests("PATCH", "/pods/[^/]+")


@pytest_asyncio.fixture(loop_scope="session")
async def observed(world: World) -> AsyncIterator[ObservedGroups]:
    async with following(world) as observed:
        yield observed


async def decided(world: World, gang_id: str) -> dict[str, tuple[str, str]]:
    """Node and rank by pod in the first permit."""
    history = world.cluster.records.history
    await world.cluster.until(lambda: any(record.seats for record in history[gang_id]), f"a permit of {gang_id}")
    record = next(record for record in history[gang_id] if record.seats)
    return {pod.name: (seat.node, str(pod.rank)) for seat in record.seats for pod in seat.pods}


async def kill(world: World, names: str) -> None:
    for name in names.split():
        await world.cluster.stack.kill(name)


async def is_as_decided(world: World, observed: ObservedGroups, workload: SakkaraGroup) -> None:
    """Check that every pod is on its permitted node and had its rank when it was bound."""
    await world.bound(workload)
    await observed.wait_for_data(workload, status="Bound")
    labels = await observed.wait_for_labels(workload, status="Bound")
    pods = await decided(world, world.here(workload).id)
    assert world.bound_pods(workload) == {pod: node for pod, (node, _) in pods.items()}
    ranks = {pod: rank for pod, (_, rank) in pods.items()}
    assert {pod: each[RANK] for pod, each in labels.items()} == ranks
    assert {pod: observed.first_labels[pod][RANK] for pod in ranks} == ranks


@pytest.mark.parametrize("victims", ["coordinator", "binding", "coordinator binding"])
async def test_coordinator_killed_when_pods_have_labels_but_no_node_i4_i6(
    world: World, observed: ObservedGroups, victims: str
) -> None:
    await world.nodes(2, 2)
    four = group("four").of(4)
    with world.cluster.faults.hold(BINDS, let_pass=1) as held:
        await world.create(four)
        await world.bound(four, count=1)
        await held.until(3)
        await world.cluster.until(
            lambda: all(RANK in each for each in observed.labels(four).values()), "all have ranks"
        )
        await kill(world, victims)
        held.drop()
        await world.cluster.stack.start()
    await is_as_decided(world, observed, four)


async def test_coordinator_killed_when_some_pods_have_labels_i4_i6(world: World, observed: ObservedGroups) -> None:
    await world.nodes(2, 2)
    four = group("four").of(4)
    with world.cluster.faults.hold(LABELS, let_pass=2) as held:
        await world.create(four)
        await world.bound(four, count=2)
        await held.until(1)
        await kill(world, "coordinator binding")
        held.drop()
        await world.cluster.stack.start()
    await is_as_decided(world, observed, four)


async def test_binding_killed_before_it_reported_all_pods_bound(world: World, observed: ObservedGroups) -> None:
    await world.nodes(4)
    two = group("two").of(2)
    with world.cluster.faults.hold(Requests("PATCH", "/configmaps/two")) as held:
        await world.create(two)
        await world.bound(two)
        await held.until(1)
        await kill(world, "coordinator binding")
        held.drop()
        await world.cluster.stack.start()
    await is_as_decided(world, observed, two)
    assert sorted(observed.ranks(two).values()) == [0, 1]
