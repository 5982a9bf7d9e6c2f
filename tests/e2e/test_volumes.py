"""Gangs whose volumes are made only once their nodes are known: the node is chosen, told, and waited for."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.faults import BINDS, Requests
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

SELECTIONS = Requests("PATCH", "/persistentvolumeclaims/[^/]+")


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def simulated(scene: Scene) -> AsyncIterator[None]:
    scene.cluster.api_server.needs_volumes()
    yield


async def volumes_are_with_their_pods(scene: Scene, workload: Workload) -> None:
    """Every pod's volume can be used on its node."""
    bound = scene.bound_pods(workload)
    nodes = await asyncio.gather(*(scene.node_of_volume(workload, number) for number in range(workload.size)))
    assert dict(zip(bound, nodes, strict=True)) == bound


async def test_a_gang_gets_volumes_on_its_nodes_and_is_bound_then(scene: Scene) -> None:
    await scene.nodes(2, 2, 2, 2)
    a = gang("a").of(8).with_claims(await scene.storage_class(seconds="0.5"))
    with scene.cluster.faults.seen(SELECTIONS) as told, scene.cluster.faults.hold(BINDS) as held:
        await scene.create(a)
        await held.until(1)
        assert len(told) == 8, "all claims were told their nodes before any pod is bound"
        held.release()
        await scene.bound(a)
    await scene.satisfied(a)
    await volumes_are_with_their_pods(scene, a)


async def test_g37_a_node_without_room_for_volumes_is_told_and_the_pod_goes_elsewhere(scene: Scene) -> None:
    full, *others = await scene.nodes(1, 1, 1)
    a = gang("a").of(2).with_claims(await scene.storage_class(refusedNodes=full))
    await scene.create(a)
    await scene.event(a, "could not be bound", f"no room on node '{full}'")
    await scene.bound(a)
    assert sorted(scene.bound_pods(a).values()) == sorted(others)
    await volumes_are_with_their_pods(scene, a)


async def test_processes_die_while_volumes_are_made(scene: Scene) -> None:
    await scene.nodes(2, 2)
    a = gang("a").of(4).with_claims(await scene.storage_class(seconds="2"))
    with scene.cluster.faults.seen(SELECTIONS) as told:
        await scene.create(a)
        await scene.cluster.until(lambda: len(told) == 4, "all claims are told their nodes")
        await scene.cluster.stack.kill("binding")
        await scene.cluster.stack.kill("coordinator")
        await scene.cluster.stack.start()
        await scene.bound(a)
        assert len(told) == 4, "nobody chooses twice"
    await volumes_are_with_their_pods(scene, a)


async def test_a_pod_that_comes_back_goes_where_its_volume_is(scene: Scene) -> None:
    await scene.nodes(1, 1, 1)
    a = gang("a").of(2).with_claims(await scene.storage_class())
    await scene.create(a)
    await scene.bound(a)
    before = scene.bound_pods(a)
    await scene.delete_pods(a, 1)
    await scene.add_pods(a, 1)
    await scene.bound(a)
    assert scene.bound_pods(a) == before


async def test_pods_of_a_job_bring_their_own_claims(scene: Scene) -> None:
    await scene.nodes(2, 2)
    a = gang("a").of(4).with_scratch(await scene.storage_class())
    await scene.define(a)
    await scene.create_job(a, "train", 4)
    await scene.all_members_bound(a, 4)
    namespace = scene.here(a).namespace
    pods = [pod for key, pod in scene.cluster.pods.items() if key[0] == namespace]
    claims = [await scene.named_claim(a, f"{pod['metadata']['name']}-data") for pod in pods]
    assert [claim["status"]["phase"] for claim in claims] == ["Bound"] * 4
    told = [claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] for claim in claims]
    assert told == [pod["spec"]["nodeName"] for pod in pods]
