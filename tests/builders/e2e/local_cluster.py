"""An API server and simulated kubelets in the test's own process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.kubelets import Kubelets, SimulatedNode


@asynccontextmanager
async def running_kubelets(
    server: ApiServer, directory: Path, shapes: Sequence[SimulatedNode], *, renew_seconds: float = 10.0
) -> AsyncIterator[Kubelets]:
    """Simulated kubelets that have registered their nodes."""
    kubeconfig = directory / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
    kubelets = Kubelets(session, shapes, renew_seconds=renew_seconds)
    try:
        await kubelets.start()
        yield kubelets
    finally:
        await kubelets.stop()
        await session.close()
