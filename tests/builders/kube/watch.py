"""Lists and watches one kind, for tests: plain dictionaries, in order, without gaps."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from builders.wait import latency
from muster.kube.session import KubeSession, KubeUnreachable

Change = Literal["ADDED", "MODIFIED", "DELETED"]
OnChange = Callable[[Change, dict[str, Any]], None]

_CALL_SECONDS = 60.0
_RETRY_SECONDS = 0.1


async def follow_kind(session: KubeSession, path: str, on_change: OnChange, listed: asyncio.Event) -> None:
    """Call `on_change` for all objects and changes until cancelled; sets `listed` after the first list."""
    known: dict[str, dict[str, Any]] = {}
    while True:
        try:
            version = await _list(session, path, known, on_change)
            listed.set()
            await _watch(session, path, version, known, on_change)
        except (KubeUnreachable, OSError):
            await latency(_RETRY_SECONDS)


async def _list(session: KubeSession, path: str, known: dict[str, dict[str, Any]], on_change: OnChange) -> str:
    response = await session.request("GET", path, timeout_seconds=_CALL_SECONDS)
    if response.status != 200:
        raise OSError(f"list of {path}: {response.status} {response.body[:200]!r}")
    body = msgspec.json.decode(response.body)
    items = {item["metadata"]["uid"]: item for item in body["items"]}
    for uid in known.keys() - items.keys():
        on_change("DELETED", known.pop(uid))
    for uid, item in items.items():
        before = known.get(uid)
        known[uid] = item
        if before is None:
            on_change("ADDED", item)
        elif before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            on_change("MODIFIED", item)
    return str(body["metadata"]["resourceVersion"])


async def _watch(
    session: KubeSession, path: str, version: str, known: dict[str, dict[str, Any]], on_change: OnChange
) -> None:
    """Return when the server ends the watch or reports that the version is too old."""
    query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
    async with session.stream(path, query, read_timeout_seconds=3600) as (status, lines):
        if status != 200:
            return
        async for line in lines:
            step = msgspec.json.decode(line)
            kind, item = step["type"], step["object"]
            if kind == "ERROR":
                return
            if kind != "BOOKMARK":
                uid = item["metadata"]["uid"]
                if kind == "DELETED":
                    known.pop(uid, None)
                else:
                    known[uid] = item
                on_change(kind, item)
