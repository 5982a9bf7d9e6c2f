"""A new API server for every test, in the test's process."""

from collections.abc import AsyncIterator

import pytest

from builders.kube.client import ApiClient, api_client
from muster.localcluster.apiserver import ApiServer, Timing

TIMING = Timing(orphaned_pod_seconds=0.2, event_ttl_seconds=3600.0)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(allow_faults=True, timing=TIMING)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with api_client(server.url) as client:
        yield client
