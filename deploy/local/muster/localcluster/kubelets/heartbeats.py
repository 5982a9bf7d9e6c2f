"""Registration and heartbeats of simulated nodes."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from muster.kube.session import KubeSession
from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.kubelets.api_calls import STRATEGIC_MERGE, Calls
from muster.localcluster.kubelets.devices.slices import publish_slices
from muster.localcluster.kubelets.simulated_nodes import SimulatedNode, node_object, node_status

_NODES: Final = "/api/v1/nodes"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_JSON: Final = "application/json"
_LEASE_SECONDS: Final = 40
_REGISTERED_AT_ONCE: Final = 16


class Heartbeats:
    """Registers nodes with their devices, and renews their leases as long as their Node objects exist."""

    def __init__(self, session: KubeSession, nodes: Sequence[SimulatedNode], renew_seconds: float) -> None:
        self._calls = Calls(session)
        self._nodes_by_name = {node.name: node for node in nodes}
        self._renew_seconds = renew_seconds
        self._uids: dict[str, str] = {}

    async def register(self) -> None:
        """Create all nodes, leases and ResourceSlices; report existing nodes as ready."""
        limit = asyncio.Semaphore(_REGISTERED_AT_ONCE)

        async def register(node: SimulatedNode) -> None:
            async with limit:
                await self._register(node)

        async with asyncio.TaskGroup() as group:
            for node in self._nodes_by_name.values():
                group.create_task(register(node))

    async def run(self, alive: Callable[[str], bool]) -> None:
        """Renew leases until cancelled, spread over the interval; `alive` tells whether a Node object exists."""
        names = list(self._nodes_by_name)
        started = time.monotonic()
        for turn in range(1, 1 << 62):
            for index, name in enumerate(names):
                if alive(name):
                    await self._renew(name)
                due = started + self._renew_seconds * (turn - 1 + (index + 1) / len(names))
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def report_ready(self, name: str) -> None:
        """Report a node as ready again after its status was changed."""
        body = msgspec.json.encode({"status": node_status(self._nodes_by_name[name], now_text())})
        await self._calls.make("PATCH", f"{_NODES}/{name}/status", body, STRATEGIC_MERGE)

    async def _register(self, node: SimulatedNode) -> None:
        body = msgspec.json.encode(node_object(node, now_text()))
        answer = await self._calls.make("POST", _NODES, body, _JSON)
        if answer.status == 409:
            await self.report_ready(node.name)
            labels = {"metadata": {"labels": node_object(node, now_text())["metadata"]["labels"]}}
            answer = await self._calls.make(
                "PATCH", f"{_NODES}/{node.name}", msgspec.json.encode(labels), STRATEGIC_MERGE
            )
        if answer.status >= 300:
            raise RuntimeError(f"node {node.name} was rejected: {answer.body[:512].decode()}")
        created = msgspec.json.decode(answer.body)
        uid = self._uids[node.name] = created["metadata"]["uid"]
        if node.cards is not None:
            await publish_slices(self._calls, node.name, uid, node.cards)
        await self._clear_taint(node.name, created["spec"].get("taints") or [])
        await self._renew(node.name)

    async def _clear_taint(self, name: str, taints: list[Any]) -> None:
        """Remove the not-ready taint of new nodes, since there may be no node lifecycle controller."""
        remaining = [taint for taint in taints if taint.get("key") != _NOT_READY]
        if len(remaining) < len(taints):
            body = msgspec.json.encode({"spec": {"taints": remaining or None}})
            await self._calls.make("PATCH", f"{_NODES}/{name}", body, STRATEGIC_MERGE)

    async def _renew(self, name: str) -> None:
        spec: dict[str, Any] = {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        body = msgspec.json.encode({"spec": spec})
        answer = await self._calls.make("PATCH", f"{_LEASES}/{name}", body, "application/merge-patch+json")
        if answer.status == 404:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._uids.get(name, "")}
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "ownerReferences": [owner] if owner["uid"] else []},
                "spec": spec | {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS},
            }
            await self._calls.make("POST", _LEASES, msgspec.json.encode(lease), _JSON)
