"""An embedded API server for each test, and calls to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.kube.calls import KubeCalls
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.server import ApiServer


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[KubeSettings]:
    server = ApiServer(allow_faults=True)
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    yield KubeSettings(kubeconfig=tmp_path / "kubeconfig")
    await server.stop()


@pytest.fixture
async def kube(config: KubeSettings) -> AsyncIterator[KubeCalls]:
    session = await KubeSession.connect(config)
    calls = KubeCalls(session)
    await calls.create("Namespace", {"metadata": {"name": "ml"}})
    yield calls
    await session.close()
