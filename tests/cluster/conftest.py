"""One cluster with one release of the chart for all tests of this directory."""

import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from builders.deploy.helm import CHART, NAMESPACE, RELEASE
from cluster.real_cluster import RealCluster, running_cluster
from cluster.release import Release
from cluster.requirements import missing

IMAGES = Path(sys.prefix) / "cluster-images"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RealCluster]:
    """Skips where no cluster can run, and in `make test`: it takes minutes and the whole machine."""
    if request.config.getoption("--cluster") != "containers":
        pytest.skip("`make cluster-test` runs the tests on a cluster with containers")
    if reason := missing():
        pytest.skip(f"no cluster here: {reason}")
    async with running_cluster(tmp_path_factory.mktemp("cluster"), IMAGES) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def release(cluster: RealCluster) -> AsyncIterator[Release]:
    """Muster is installed and ready."""
    began = time.monotonic()
    await cluster.helm("install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace")
    release = Release(cluster, 0.0)
    await release.until_ready()
    release.ready_seconds = time.monotonic() - began
    yield release
    print(f"\nready after {release.ready_seconds:.0f} s; longest start of a gang of two in s: {release.figures}")
