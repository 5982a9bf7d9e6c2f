"""Waits for the simulated nodes."""

import asyncio
from typing import Any

import msgspec

from muster.kube.session import KubeSession

_CALL_SECONDS = 10.0
_POLL_SECONDS = 0.1


async def nodes_ready(session: KubeSession, count: int, *, timeout_seconds: float) -> None:
    """Return when at least `count` nodes are ready. Raises TimeoutError."""
    async with asyncio.timeout(timeout_seconds):
        while await _ready(session) < count:  # noqa: ASYNC110 (another process creates them)
            await asyncio.sleep(_POLL_SECONDS)


async def _ready(session: KubeSession) -> int:
    response = await session.request("GET", "/api/v1/nodes", timeout_seconds=_CALL_SECONDS)
    if response.status != 200:
        return 0
    return sum(map(_is_ready, msgspec.json.decode(response.body)["items"]))


def _is_ready(node: Any) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
