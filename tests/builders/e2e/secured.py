"""A Muster with TLS and etcd users, as seen by users, operators and unauthorized clients."""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from builders.gangs.manifests import Workload
from builders.kube.watch import follow_kind
from muster.config.settings import KubeSettings, TlsSettings
from muster.kube.session import KubeSession
from muster.localcluster.manifests import Manifest, apply_manifests
from muster.localcluster.security import Security
from muster.localcluster.stack import Stack
from muster.localcluster.stack_options import StackOptions
from muster.rpc.channel import open_channel

WAIT_SECONDS = 60.0
_CALL_SECONDS = 60.0
_SHORTEST_SECRET = 12
_TOKEN = re.compile(r"token: *(\S+)")


class Secured:
    """The processes, and the pods that are bound."""

    def __init__(self, stack: Stack, security: Security, session: KubeSession) -> None:
        self.stack, self.security, self._session = stack, security, session
        self._nodes: dict[str, str] = {}
        self._news = asyncio.Condition()
        self._following: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        listed = asyncio.Event()
        self._following = asyncio.create_task(follow_kind(self._session, "/api/v1/pods", self._on_pod, listed))
        await asyncio.wait_for(listed.wait(), _CALL_SECONDS)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def _on_pod(self, change: str, pod: dict[str, Any]) -> None:
        if node := pod["spec"].get("nodeName"):
            self._nodes[pod["metadata"]["name"]] = node
            self._told = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def start(self, gang: Workload) -> None:
        """Create its pods; returns when all of them are bound."""
        await apply_manifests(self._session, [Manifest(pod) for pod in gang.pods()])
        names = {gang.pod_name(number) for number in range(gang.size)}
        async with asyncio.timeout(WAIT_SECONDS), self._news:
            await self._news.wait_for(lambda: names <= self._nodes.keys())

    # -- calls

    async def answer(self, service: str, tls: TlsSettings) -> grpc.StatusCode:
        """The response or status that a caller with these certificates gets from a service."""
        channel = open_channel(self.stack.addresses[service], tls)
        async with channel:
            try:
                stub = health_pb2_grpc.HealthStub(channel)
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=_CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    async def muster(self, *arguments: str, environment: dict[str, str]) -> tuple[int, str]:
        """Run the command line; returns its exit code and output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muster.cli", *arguments),
            env={**os.environ, "COLUMNS": "400", **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await asyncio.wait_for(process.communicate(), WAIT_SECONDS))[0].decode()
        return process.returncode or 0, output

    # -- data that others than the owner of the files can read

    def secrets(self) -> dict[str, str]:
        """Every secret of the cluster with a name for it: passwords, tokens, each line of each private key."""
        found = {}
        for file in self.stack.directory.rglob("*"):
            if file.suffix == ".key":
                lines = [line for line in file.read_text().splitlines() if not line.startswith("-----")]
                found.update({f"{file.name} line {number}": line for number, line in enumerate(lines)})
            elif file.name.endswith("password"):
                found[file.name] = file.read_text().strip()
            elif "kubeconfig" in file.name:
                found.update({f"{file} token": token.strip("\"'") for token in _TOKEN.findall(file.read_text())})
        return {name: secret for name, secret in found.items() if len(secret) >= _SHORTEST_SECRET}

    def visible(self) -> dict[str, str]:
        """All text that others can read: logs, and the arguments and environment of every process."""
        seen = {str(log): log.read_text(errors="replace") for log in (self.stack.directory / "logs").glob("*")}
        for name, child in self.stack.children.items():
            for process in (psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)):
                seen[f"arguments of {name}, {process.pid}"] = "\0".join(process.cmdline())
                environment = "\0".join(f"{key}={value}" for key, value in process.environ().items())
                seen[f"environment of {name}, {process.pid}"] = environment
        return seen


@contextlib.asynccontextmanager
async def secured_cluster(directory: Path) -> AsyncIterator[Secured]:
    """A secured cluster with nodes, debug logs, and the quota webhook."""
    options = StackOptions(
        directory=directory, nodes=8, secured=True, console=True, quota=True, durable=False, log_level="debug"
    )
    stack = Stack(options)
    assert stack.security is not None
    try:
        await stack.start(timeout_seconds=120)
        session = await KubeSession.connect(KubeSettings(kubeconfig=stack.kubeconfig))
        secured = Secured(stack, stack.security, session)
        try:
            await secured.follow()
            yield secured
        finally:
            await secured.close()
            await session.close()
    finally:
        await stack.stop()
