"""One Muster for all end-to-end tests, and a scene of its own for each."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster, real_kubeconfig, running_cluster
from builders.e2e.world import Scene

_HASTE = {
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
async def hasty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Another one, whose coordinator waits for nothing longer than a second or two."""
    kubeconfig = real_kubeconfig(request.config)
    directory = tmp_path_factory.mktemp("hasty")
    async with running_cluster(directory, kubeconfig=kubeconfig, service_environment=_HASTE) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def hasty_scene(hasty: Cluster) -> AsyncIterator[Scene]:
    """A part of the cluster that waits for nothing."""
    async for scene in _scene(hasty):
        yield scene


@pytest_asyncio.fixture(loop_scope="session")
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    """A part of the cluster for one test, in which every process runs at its beginning."""
    async for scene in _scene(cluster):
        yield scene


async def _scene(cluster: Cluster) -> AsyncIterator[Scene]:
    await cluster.begin()
    scene = Scene(cluster)
    yield scene
    await cluster.stack.start()
    await scene.clear()
    await cluster.invariants.check()
    await cluster.check_access()
