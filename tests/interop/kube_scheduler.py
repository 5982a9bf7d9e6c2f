"""kube-scheduler beside Muster on one API server, as `make kubernetes` builds it, with its default plugins."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from interop.control_plane import program
from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port
from muster.localcluster.probes import wait_until_ready

SCHEDULER_NAME: Final = "default-scheduler"
"""`schedulerName` of its pods."""
_START_SECONDS: Final = 60.0
_CALL_SECONDS: Final = 5.0
_OPEN_PATHS: Final = "/healthz,/livez,/readyz,/metrics"


class KubeScheduler:
    """The process."""

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        *,
        requests_per_second: int | None = None,
        gates: Sequence[str] = (),
    ) -> None:
        """`requests_per_second`: limit of its client; None: its default, 50. `gates`: "NAME=true". Raises NotBuilt."""
        self._port = free_port()
        limit = {} if requests_per_second is None else {"qps": requests_per_second, "burst": requests_per_second}
        self._configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig.absolute()), **limit},
            "leaderElection": {"leaderElect": False},
        }
        self._file = directory / "kube-scheduler.json"
        arguments = [
            program("kube-scheduler"),
            *("--config", str(self._file)),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self._port)),
            *("--authorization-always-allow-paths", _OPEN_PATHS),
            *(("--feature-gates", ",".join(gates)) if gates else ()),
        ]
        self.child = Child("kube-scheduler", arguments, directory / "kube-scheduler.log")

    async def launch(self) -> None:
        """Start it, and do not wait until it is ready."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(msgspec.json.encode(self._configuration))
        await self.child.start()

    async def start(self) -> None:
        """Start it, and wait until it schedules. Raises ChildDied and TimeoutError."""
        await self.launch()
        async with asyncio.timeout(_START_SECONDS):
            await wait_until_ready(self.child, self._ready)

    async def stop(self) -> None:
        await self.child.stop()

    async def metrics(self) -> dict[str, float]:
        """The samples that it exposes, by name with labels. Raises OSError."""
        status, body = await self._get("/metrics")
        if b" 200 " not in status:
            raise OSError(f"/metrics of kube-scheduler: {status!r}")
        lines = (line.rpartition(" ") for line in body.decode().splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    async def _ready(self) -> bool:
        try:
            status, _ = await self._get("/readyz")
        except (OSError, TimeoutError):
            return False
        return b" 200 " in status

    async def _get(self, path: str) -> tuple[bytes, bytes]:
        """Status line and body."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it signs its certificate itself
        async with asyncio.timeout(_CALL_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=context)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return head.split(b"\r\n")[0], body


@asynccontextmanager
async def running_kube_scheduler(directory: Path, kubeconfig: Path) -> AsyncIterator[KubeScheduler]:
    """A kube-scheduler that is ready. Raises NotBuilt, ChildDied and TimeoutError."""
    scheduler = KubeScheduler(directory, kubeconfig)
    try:
        await scheduler.start()
        yield scheduler
    finally:
        await scheduler.stop()
