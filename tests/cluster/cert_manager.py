"""cert-manager's controllers beside the cluster, as tools/go/cert-manager builds them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cluster.real_cluster import RealCluster
from cluster.requirements import tools
from muster.localcluster.child_process import Child

_GO: Final = Path(__file__).parents[2] / "tools" / "go" / "cert-manager"
_MODULE: Final = "github.com/cert-manager/cert-manager"
_NAME: Final = "cert-manager"


@asynccontextmanager
async def running_cert_manager(cluster: RealCluster) -> AsyncIterator[None]:
    """Its CRDs exist, and its controllers run."""
    for file in sorted((await _source() / "deploy" / "crds").glob(f"{_NAME}.io_*.yaml")):
        await cluster.kubectl("apply", "--server-side", "-f", str(file))
    kinds = ("certificates", "certificaterequests", "issuers", "clusterissuers")
    names = (f"crd/{kind}.{_NAME}.io" for kind in kinds)
    await cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
    command = [str(tools() / _NAME), "--kubeconfig", str(cluster.kubeconfig)]
    child = Child(_NAME, command, cluster.directory / f"{_NAME}.log")
    await child.start()
    try:
        yield
        assert child.running, f"{_NAME} ended: see its log"
    finally:
        await child.stop()


async def _source() -> Path:
    """The source of its module, as Go has downloaded it."""
    process = await asyncio.create_subprocess_exec(
        *("go", "-C", str(_GO), "list", "-m", "-f", "{{.Dir}}", _MODULE), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"Go does not find {_MODULE}: run `make cluster-images`"
    return Path(output.decode().strip())
