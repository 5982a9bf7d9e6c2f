"""Gangs of containers on the cluster, and how long each takes to start."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from builders.kube.watch import Change, follow_kind
from builders.wait import latency
from cluster.node import PAUSE
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession

JSON = dict[str, Any]

NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
MINIMUM: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
MUSTER: Final = "muster:0.1.0"
"""The image of this checkout."""
_PODS: Final = "/api/v1/namespaces/default/pods"
_CALL_SECONDS: Final = 30.0
_START_SECONDS: Final = 180.0
_EVERY_SECONDS: Final = 1.0


def pod(
    name: str,
    gang: str,
    size: int,
    *,
    command: list[str] | None = None,
    image: str = PAUSE,
    cpu: str = "10m",
    annotations: JSON | None = None,
) -> JSON:
    """A member of a gang. `annotations`: those of Koordinator that declare it, in place of the labels."""
    container: JSON = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    if command is not None:
        container["command"] = command
    declared = {"labels": {NAME: gang, MINIMUM: str(size)}} if annotations is None else {"annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **declared},
        "spec": {"schedulerName": "muster", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def job(name: str, size: int, *, scheduler: str, cpu: str, seconds: int) -> JSON:
    """A Job whose pods run at the same time; with Muster they are a gang."""
    container = {
        "name": "main",
        "image": MUSTER,
        "imagePullPolicy": "Never",
        "command": ["sleep", str(seconds)],
        "resources": {"requests": {"cpu": cpu}},
    }
    labels = {NAME: name, MINIMUM: str(size)} if scheduler == "muster" else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": size,
            "completions": size,
            "backoffLimit": 1000,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]},
            },
        },
    }


class GangStream:
    """Starts a gang of two every second, and deletes it when both pods are bound."""

    def __init__(self, session: KubeSession) -> None:
        self._session = session
        self._bound: dict[str, asyncio.Event] = {}
        self.seconds: dict[str, float] = {}
        """From the creation of a gang to its second bind."""
        self._number = 0
        self._name = f"stream-{uuid4().hex[:6]}"

    @property
    def longest(self) -> float:
        return max(self.seconds.values())

    async def run(self) -> None:
        """Start gangs until cancelled; raises TimeoutError if one does not start."""
        async with asyncio.TaskGroup() as tasks:
            listed = asyncio.Event()
            tasks.create_task(follow_kind(self._session, _PODS, self._on_pod, listed))
            await listed.wait()
            while True:
                self._number += 1
                tasks.create_task(self._one(f"{self._name}-{self._number}"))
                await latency(_EVERY_SECONDS)

    async def delete(self) -> None:
        """Delete the pods of gangs that have not started."""
        query = {"labelSelector": f"stream={self._name}"}
        await self._session.request("DELETE", _PODS, query=query, timeout_seconds=_CALL_SECONDS)

    async def _one(self, gang: str) -> None:
        names = [f"{gang}-{number}" for number in range(2)]
        for name in names:
            self._bound[name] = asyncio.Event()
        began = time.monotonic()
        for name in names:
            member = pod(name, gang, 2)
            member["metadata"]["labels"]["stream"] = self._name
            body = msgspec.json.encode(member)
            response = await self._session.request("POST", _PODS, body=body, timeout_seconds=_CALL_SECONDS)
            assert response.status == 201, response.body
        async with asyncio.timeout(_START_SECONDS):
            for name in names:
                await self._bound[name].wait()
        self.seconds[gang] = time.monotonic() - began
        for name in names:
            del self._bound[name]
            await self._session.request("DELETE", f"{_PODS}/{name}", timeout_seconds=_CALL_SECONDS)

    def _on_pod(self, change: Change, pod: JSON) -> None:
        event = self._bound.get(pod["metadata"]["name"])
        if event is not None and change != "DELETED" and pod["spec"].get("nodeName"):
            event.set()


@asynccontextmanager
async def gang_stream(kubeconfig: Path) -> AsyncIterator[GangStream]:
    """Gangs that start during the block; a gang that does not start fails it."""
    session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
    stream = GangStream(session)
    running = asyncio.create_task(stream.run())
    try:
        yield stream
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await stream.delete()
        await session.close()
