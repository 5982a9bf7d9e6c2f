"""Nodes for tests: ready, and without the taints that a real API server adds to new nodes."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.kube.session import ApiStatusError, KubeSession

_CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Machine:
    """A node to create; amounts as Kubernetes quantities."""

    name: str
    allocatable: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)


async def make_nodes(session: KubeSession, *machines: Machine) -> None:
    """Create the nodes and make them ready."""
    await asyncio.gather(*(_make(session, machine) for machine in machines))


async def untaint_nodes(session: KubeSession, *names: str) -> None:
    """Admission taints new nodes as not ready; without controllers the taint would stay."""
    await taint_nodes(session, *names, taints=None)


async def taint_nodes(session: KubeSession, *names: str, taints: list[dict[str, str]] | None) -> None:
    """Replace the taints of the nodes; None: by none."""
    patch = {"spec": {"taints": taints}}
    await asyncio.gather(
        *(_call(session, "PATCH", f"/api/v1/nodes/{name}", patch, "application/merge-patch+json") for name in names)
    )


async def remove_nodes(session: KubeSession, *names: str) -> None:
    """Delete the nodes; missing ones are skipped."""
    await asyncio.gather(
        *(session.request("DELETE", f"/api/v1/nodes/{name}", timeout_seconds=_CALL_SECONDS) for name in names)
    )


async def _make(session: KubeSession, machine: Machine) -> None:
    labels = {"kubernetes.io/hostname": machine.name, **machine.labels}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name, "labels": labels}}
    await _call(session, "POST", "/api/v1/nodes", node, "application/json")
    path = f"/api/v1/nodes/{machine.name}"
    await untaint_nodes(session, machine.name)
    conditions = [{"type": "Ready", "status": "True", "reason": "Test", "message": "made for a test"}]
    status = {"allocatable": machine.allocatable, "capacity": machine.allocatable, "conditions": conditions}
    await _call(session, "PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")


async def _call(session: KubeSession, method: Any, path: str, body: Any, content_type: str) -> None:
    response = await session.request(
        method, path, body=msgspec.json.encode(body), content_type=content_type, timeout_seconds=_CALL_SECONDS
    )
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
