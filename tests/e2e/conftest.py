"""One Muster for all end-to-end tests, with a separate world for each."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster, real_kubeconfig, running_cluster
from builders.e2e.world import World

_SHORT_TIMEOUTS = {
    "MUSTER_COORDINATOR_BIND_TIMEOUT_SECONDS": "1",
    "MUSTER_COORDINATOR_REPAIR_TIMEOUT_SECONDS": "2",
    "MUSTER_COORDINATOR_STARVATION_AFTER_SECONDS": "2",
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """All processes, without nodes; with --cluster real on the API server of KUBECONFIG."""
    kubeconfig = real_kubeconfig(request.config)
    async with running_cluster(tmp_path_factory.mktemp("cluster"), kubeconfig=kubeconfig) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def impatient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Another Muster, whose coordinator has timeouts of one or two seconds."""
    kubeconfig = real_kubeconfig(request.config)
    directory = tmp_path_factory.mktemp("impatient")
    async with running_cluster(directory, kubeconfig=kubeconfig, service_environment=_SHORT_TIMEOUTS) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Another Muster, whose device webhook is on."""
    kubeconfig = real_kubeconfig(request.config)
    directory = tmp_path_factory.mktemp("guarded")
    async with running_cluster(directory, kubeconfig=kubeconfig, device_webhook=True) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def guarded_world(guarded: Cluster) -> AsyncIterator[World]:
    """A world in the cluster whose device webhook is on."""
    async for world in _world(guarded):
        yield world


@pytest_asyncio.fixture(loop_scope="session")
async def impatient_world(impatient: Cluster) -> AsyncIterator[World]:
    """A world in the cluster with short timeouts."""
    async for world in _world(impatient):
        yield world


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: Cluster) -> AsyncIterator[World]:
    """A world for one test; every process runs when it starts."""
    async for world in _world(cluster):
        yield world


async def _world(cluster: Cluster) -> AsyncIterator[World]:
    await cluster.begin()
    world = World(cluster)
    yield world
    await cluster.stack.start()
    await world.clear()
    await cluster.invariants.check()
    await cluster.check_access()
