"""Replicas of lifecycle that serve the quota webhook behind one address, registered with the API server."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from builders.kube.client import Reply
from builders.kube.webhook import CONFIGURATIONS
from builders.lifecycle.replicas import LifecycleCluster
from builders.net.certificates import Authority
from builders.wait import eventually
from muster.config.settings import TlsSettings
from muster.lifecycle.quota.controller import QuotaController
from muster.lifecycle.quota.webhook import PATH
from muster.lifecycle.settings import QuotaSettings
from muster.localcluster.ports import free_port

JSON = dict[str, Any]
POD_GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
PODS = "/api/v1/namespaces/default/pods"
LEDGER = "/api/v1/namespaces/default/configmaps/muster-quota.default"
GROUP_NAME = "scheduling.k8s.io/group-name"


class QuotaCluster:
    """An API server with the quota webhook, and its replicas."""

    def __init__(self, rig: LifecycleCluster, directory: Path) -> None:
        self.rig, self.api = rig, rig.api
        self.authority = Authority(directory / "quota")
        self.tls: TlsSettings = self.authority.issue("webhook")
        self._replicas: dict[str, AsyncExitStack] = {}

    @asynccontextmanager
    async def guarded(self, replicas: int = 1, *, policy: str = "Fail", faulty: bool = False) -> AsyncIterator[None]:
        """Runs this many replicas behind the webhook within the context."""
        ports = [free_port() for _ in range(replicas)]
        async with AsyncExitStack() as stack:
            for index, port in enumerate(ports):
                settings = QuotaSettings(
                    listen=f"127.0.0.1:{port}",
                    certificate_file=self.tls.certificate_file,
                    key_file=self.tls.key_file,
                )
                own = self._replicas[f"r{index}"] = await stack.enter_async_context(AsyncExitStack())
                replica = self.rig.replica(f"r{index}", (QuotaController,), faulty=faulty, quota=settings)
                await own.enter_async_context(replica)
            balanced = await stack.enter_async_context(balancing(ports))
            await self.ready(balanced)
            await self.register(f"https://127.0.0.1:{balanced}{PATH}", policy)
            yield

    async def stop(self, replica: str) -> None:
        """Stops one replica; the remaining ones answer."""
        await self._replicas[replica].aclose()

    async def register(self, url: str, policy: str) -> None:
        """Registers the webhook with the API server."""
        webhook: JSON = {
            "name": "quota.muster.dev",
            "clientConfig": {"url": url, "caBundle": self.ca_bundle},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": policy,
            "timeoutSeconds": 5,
        }
        await self.api.created(CONFIGURATIONS, {"metadata": {"name": "muster-quota"}, "webhooks": [webhook]})

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self.authority.certificate.read_bytes()).decode()

    async def ready(self, port: int) -> None:
        """Waits until a ready replica listens on the port."""

        async def answers() -> bool:
            return await https_status(f"https://127.0.0.1:{port}/ready") == 200

        await eventually(answers, f"port {port} is ready", seconds=20)

    # -- users

    async def quota(self, name: str = "team", **hard: str) -> None:
        """Creates a quota and waits until it is enforced."""
        await self.api.created(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard}})
        await self.api.until(f"{QUOTAS}/{name}", lambda reply: "used" in (reply.body.get("status") or {}))

    async def group(self, name: str, *, path: str = POD_GROUPS, members: int = 2, **total: str) -> JSON:
        field = "totalResources" if path == POD_GROUPS else "minResources"
        body = {"metadata": {"name": name}, "spec": {"minMember": members, field: total}}
        created: JSON = await self.api.created(path, body)
        return created

    async def wait_for_reason(self, name: str, reason: str, *, path: str = POD_GROUPS) -> str:
        """Waits until a group's condition has the reason; returns its message."""
        reply = await self.api.until(f"{path}/{name}", lambda reply: condition(reply).get("reason") == reason)
        return str(condition(reply)["message"])

    async def create(self, name: str, *, of: str = "", **requests: str) -> Reply:
        return await self.api.post(PODS, quota_pod(name, of=of, **requests))

    async def statuses(self, names: Sequence[str], *, of: str = "", **requests: str) -> list[int]:
        """Creates pods concurrently; returns the HTTP statuses."""
        replies = await asyncio.gather(*(self.create(name, of=of, **requests) for name in names))
        return [reply.status for reply in replies]


def quota_pod(name: str, *, of: str = "", **requests: str) -> JSON:
    """Returns a pod, of a kube-batch group if one is named."""
    metadata: JSON = {"name": name}
    if of:
        metadata["annotations"] = {GROUP_NAME: of}
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def condition(reply: Reply) -> JSON:
    """Returns the condition QuotaReserved of a PodGroup."""
    conditions = (reply.body.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "QuotaReserved"), {})


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
