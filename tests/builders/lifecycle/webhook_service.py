"""Replicas of lifecycle that serve a webhook behind one address, registered with the API server."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from builders.kube.webhook import CONFIGURATIONS
from builders.lifecycle.replicas import LifecycleCluster
from builders.net.certificates import Authority
from builders.wait import eventually
from muster.config.settings import TlsSettings
from muster.lifecycle.controller import Controller, ControllerContext
from muster.lifecycle.settings import DeviceSettings, QuotaSettings
from muster.localcluster.ports import free_port
from muster.localcluster.webhooks import WebhookKind

JSON = dict[str, Any]


class WebhookCluster:
    """An API server with one webhook of lifecycle, and its replicas."""

    def __init__(
        self,
        rig: LifecycleCluster,
        directory: Path,
        kind: WebhookKind,
        controller: Callable[[ControllerContext], Controller],
        settings: type[QuotaSettings | DeviceSettings],
    ) -> None:
        self.rig, self.api, self._kind, self._controller, self._settings = rig, rig.api, kind, controller, settings
        self.authority = Authority(directory / kind.name)
        self.tls: TlsSettings = self.authority.issue("webhook")
        self._replicas: dict[str, AsyncExitStack] = {}

    @asynccontextmanager
    async def guarded(self, replicas: int = 1, *, policy: str = "Fail", faulty: bool = False) -> AsyncIterator[str]:
        """Runs this many replicas behind the webhook within the context; yields its URL."""
        ports = [free_port() for _ in range(replicas)]
        async with AsyncExitStack() as stack:
            for index, port in enumerate(ports):
                settings = self._settings(
                    listen=f"127.0.0.1:{port}",
                    certificate_file=self.tls.certificate_file,
                    key_file=self.tls.key_file,
                )
                own = self._replicas[f"r{index}"] = await stack.enter_async_context(AsyncExitStack())
                given: Mapping[str, Any] = {self._kind.name: settings}
                replica = self.rig.replica(f"r{index}", (self._controller,), faulty=faulty, **given)
                await own.enter_async_context(replica)
            balanced = await stack.enter_async_context(balancing(ports))
            await self.ready(balanced)
            url = f"https://127.0.0.1:{balanced}{self._kind.path}"
            await self.register(url, policy)
            yield url

    async def stop(self, replica: str) -> None:
        """Stops one replica; the remaining ones answer."""
        await self._replicas[replica].aclose()

    async def register(self, url: str, policy: str) -> None:
        """Registers the webhook with the API server."""
        webhook: JSON = {
            "name": f"{self._kind.name}.muster.dev",
            "clientConfig": {"url": url, "caBundle": self.ca_bundle},
            "rules": [self._kind.rule],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": policy,
            "timeoutSeconds": 5,
        }
        await self.api.created(
            CONFIGURATIONS, {"metadata": {"name": f"muster-{self._kind.name}"}, "webhooks": [webhook]}
        )

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self.authority.certificate.read_bytes()).decode()

    async def ready(self, port: int) -> None:
        """Waits until a ready replica listens on the port."""

        async def answers() -> bool:
            return await https_status(f"https://127.0.0.1:{port}/ready") == 200

        await eventually(answers, f"port {port} is ready", seconds=20)


async def https_status(url: str) -> int:
    """Returns the HTTP status of a GET without verifying the certificate; 0: no response."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            return answer.status
    except aiohttp.ClientError:
        return 0


@asynccontextmanager
async def balancing(ports: Sequence[int]) -> AsyncIterator[int]:
    """Balances connections over these ports; yields the balancer's port."""
    connections = 0
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            answers, upstream = await asyncio.open_connection("127.0.0.1", ports[connections % len(ports)])
        except OSError:
            writer.close()
            return
        for pumped in (pump(reader, upstream), pump(answers, writer)):
            task = asyncio.create_task(pumped)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
