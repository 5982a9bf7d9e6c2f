"""Processes are killed between a pod's labels and its bind: it has the labels that were decided, and is bound once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.faults import BINDS, Requests
from builders.e2e.sakkara_groups import RANK, SakkaraGroup, Told, following, group
from builders.e2e.world import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

LABELS = Requests("PATCH", "/pods/[^/]+")


@pytest_asyncio.fixture(loop_scope="session")
async def told(scene: Scene) -> AsyncIterator[Told]:
    async with following(scene) as told:
        yield told


async def decided(scene: Scene, gang_id: str) -> dict[str, tuple[str, str]]:
    """Node and rank by pod, as the first permit has them."""
    history = scene.cluster.records.history
    await scene.cluster.until(lambda: any(record.seats for record in history[gang_id]), f"a permit of {gang_id}")
    record = next(record for record in history[gang_id] if record.seats)
    return {pod.name: (seat.node, str(pod.rank)) for seat in record.seats for pod in seat.pods}


async def kill(scene: Scene, names: str) -> None:
    for name in names.split():
        await scene.cluster.stack.kill(name)


async def is_as_decided(scene: Scene, told: Told, workload: SakkaraGroup) -> None:
    """Every pod is where it was to be, and had its rank when it came there."""
    await scene.bound(workload)
    await told.says(workload, status="Bound")
    labels = await told.labelled(workload, status="Bound")
    pods = await decided(scene, scene.here(workload).id)
    assert scene.bound_pods(workload) == {pod: node for pod, (node, _) in pods.items()}
    ranks = {pod: rank for pod, (_, rank) in pods.items()}
    assert {pod: each[RANK] for pod, each in labels.items()} == ranks
    assert {pod: told.born[pod][RANK] for pod in ranks} == ranks


@pytest.mark.parametrize("victims", ["coordinator", "binding", "coordinator binding"])
async def test_killed_when_pods_have_labels_and_no_node_i4_i6(scene: Scene, told: Told, victims: str) -> None:
    await scene.nodes(2, 2)
    four = group("four").of(4)
    with scene.cluster.faults.hold(BINDS, let_pass=1) as held:
        await scene.create(four)
        await scene.bound(four, count=1)
        await held.until(3)
        await scene.cluster.until(lambda: all(RANK in each for each in told.labels(four).values()), "all have ranks")
        await kill(scene, victims)
        held.drop()
        await scene.cluster.stack.start()
    await is_as_decided(scene, told, four)


async def test_killed_when_some_pods_have_labels_i4_i6(scene: Scene, told: Told) -> None:
    await scene.nodes(2, 2)
    four = group("four").of(4)
    with scene.cluster.faults.hold(LABELS, let_pass=2) as held:
        await scene.create(four)
        await scene.bound(four, count=2)
        await held.until(1)
        await kill(scene, "coordinator binding")
        held.drop()
        await scene.cluster.stack.start()
    await is_as_decided(scene, told, four)


async def test_killed_before_it_could_say_that_all_are_bound(scene: Scene, told: Told) -> None:
    await scene.nodes(4)
    two = group("two").of(2)
    with scene.cluster.faults.hold(Requests("PATCH", "/configmaps/two")) as held:
        await scene.create(two)
        await scene.bound(two)
        await held.until(1)
        await kill(scene, "coordinator binding")
        held.drop()
        await scene.cluster.stack.start()
    await is_as_decided(scene, told, two)
    assert sorted(told.ranks(two).values()) == [0, 1]
