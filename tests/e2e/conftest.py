"""One Muster for all end-to-end tests, and a scene of its own for each."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from builders.cluster import Cluster, running_cluster
from builders.scene import Scene

_HASTE = {
    "MUSTER_COORDINATOR_BIND_TIMEOUT_SECONDS": "1",
    "MUSTER_COORDINATOR_REPAIR_TIMEOUT_SECONDS": "2",
    "MUSTER_COORDINATOR_STARVATION_AFTER_SECONDS": "2",
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """All processes, without nodes; with --cluster real on the API server of KUBECONFIG."""
    kubeconfig = _real_kubeconfig() if request.config.getoption("--cluster") == "real" else None
    async with running_cluster(tmp_path_factory.mktemp("cluster"), kubeconfig=kubeconfig) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hasty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Another one, whose coordinator waits for nothing longer than a second or two."""
    kubeconfig = _real_kubeconfig() if request.config.getoption("--cluster") == "real" else None
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
    await cluster.stack.start()
    scene = Scene(cluster)
    yield scene
    await cluster.stack.start()
    await scene.clear()
    await cluster.invariants.check()


def _real_kubeconfig() -> Path:
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not Path(kubeconfig).is_file():
        raise pytest.UsageError("--cluster real needs KUBECONFIG to name a file")
    return Path(kubeconfig)
