"""Registers simulated nodes, and keeps telling the API server that they are alive."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from muster.kube.session import KubeSession
from muster.localcluster.kubelets.calls import STRATEGIC_MERGE, Calls
from muster.localcluster.kubelets.shapes import NodeShape, node_object, node_status
from muster.localcluster.kubelets.times import micro_text, now_text

_NODES: Final = "/api/v1/nodes"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_JSON: Final = "application/json"
_LEASE_SECONDS: Final = 40
_REGISTERED_AT_ONCE: Final = 16


class Heartbeats:
    """Nodes come to be, and their leases are renewed as long as their Node objects exist."""

    def __init__(self, session: KubeSession, shapes: Sequence[NodeShape], renew_seconds: float) -> None:
        self._calls = Calls(session)
        self._shapes = {shape.name: shape for shape in shapes}
        self._renew_seconds = renew_seconds
        self._uids: dict[str, str] = {}

    async def register(self) -> None:
        """Create all nodes, or say that they are ready if they exist; then their leases."""
        turns = asyncio.Semaphore(_REGISTERED_AT_ONCE)

        async def one(shape: NodeShape) -> None:
            async with turns:
                await self._register(shape)

        async with asyncio.TaskGroup() as group:
            for shape in self._shapes.values():
                group.create_task(one(shape))

    async def run(self, alive: Callable[[str], bool]) -> None:
        """Renew leases for ever, each node at its own moment; `alive` says whether the Node object exists."""
        names = list(self._shapes)
        started = time.monotonic()
        for turn in range(1, 1 << 62):
            for index, name in enumerate(names):
                if alive(name):
                    await self._renew(name)
                due = started + self._renew_seconds * (turn - 1 + (index + 1) / len(names))
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def report_ready(self, name: str) -> None:
        """Say again that a node is well: somebody wrote that it is not."""
        body = msgspec.json.encode({"status": node_status(self._shapes[name], now_text())})
        await self._calls.make("PATCH", f"{_NODES}/{name}/status", body, STRATEGIC_MERGE)

    async def _register(self, shape: NodeShape) -> None:
        body = msgspec.json.encode(node_object(shape, now_text()))
        answer = await self._calls.make("POST", _NODES, body, _JSON)
        if answer.status == 409:
            await self.report_ready(shape.name)
            labels = {"metadata": {"labels": node_object(shape, now_text())["metadata"]["labels"]}}
            answer = await self._calls.make(
                "PATCH", f"{_NODES}/{shape.name}", msgspec.json.encode(labels), STRATEGIC_MERGE
            )
        if answer.status >= 300:
            raise RuntimeError(f"node {shape.name} was refused: {answer.body[:512].decode()}")
        node = msgspec.json.decode(answer.body)
        self._uids[shape.name] = node["metadata"]["uid"]
        await self._clear_taint(shape.name, node["spec"].get("taints") or [])
        await self._renew(shape.name)

    async def _clear_taint(self, name: str, taints: list[Any]) -> None:
        """API servers taint new nodes until the node lifecycle controller finds them ready; there may be none."""
        kept = [taint for taint in taints if taint.get("key") != _NOT_READY]
        if len(kept) < len(taints):
            body = msgspec.json.encode({"spec": {"taints": kept or None}})
            await self._calls.make("PATCH", f"{_NODES}/{name}", body, STRATEGIC_MERGE)

    async def _renew(self, name: str) -> None:
        spec: dict[str, Any] = {"renewTime": micro_text()}
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
