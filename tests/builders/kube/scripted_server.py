"""A scripted API server: lists, watch events and failures are set by the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from builders.wait import WAIT_SECONDS

Object = dict[str, Any]


class ScriptedApi:
    """Serves one kind at any path. Lists return `objects`, unless a failure is due; the test writes watches.

    It serves `versions` of the kind, empty: all. `requests` are the queries of all requests, in order, `paths` where
    they went.
    """

    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.revision = 1
        self.failures: list[web.Response] = []
        self.absent = False
        self.versions: tuple[str, ...] = ()
        self.requests: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._watches: asyncio.Queue[Watch] = asyncio.Queue()
        self._open: set[Watch] = set()
        self.url = ""

    def object(self, name: str, **metadata: Any) -> Object:
        """Add an object with the next revision to lists."""
        self.revision += 1
        each = {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.revision), **metadata}}
        self.objects.append(each)
        return each

    def change(self, each: Object) -> Object:
        """Change an object: it gets the next revision."""
        self.revision += 1
        each["metadata"]["resourceVersion"] = str(self.revision)
        return each

    async def watch(self) -> "Watch":
        """Wait for the next watch."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._watches.get()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["ScriptedApi"]:
        """Listen on a free port of this machine."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            for watch in list(self._open):
                watch.end()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append(query)
        self.paths.append(request.path)
        if self.failures:
            return self.failures.pop(0)
        if self.absent or (self.versions and not any(f"/{each}/" in request.path for each in self.versions)):
            return status(404, "NotFound", "the server could not find the requested resource")
        if query.get("watch"):
            return await self._watch(request)
        first, limit = int(query.get("continue") or 0), int(query.get("limit") or len(self.objects) or 1)
        rest = first + limit if first + limit < len(self.objects) else 0
        metadata = {"resourceVersion": str(self.revision), **({"continue": str(rest)} if rest else {})}
        return web.json_response({"kind": "List", "metadata": metadata, "items": self.objects[first : first + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        watch = Watch(dict(request.query))
        self._open.add(watch)
        self._watches.put_nowait(watch)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while (data := await watch.lines.get()) is not None:
                await response.write(data)
        finally:
            self._open.discard(watch)
        if watch.broken and request.transport is not None:
            request.transport.abort()
        return response


class Watch:
    """One open watch."""

    def __init__(self, query: dict[str, str]) -> None:
        self.query = query
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.broken = False

    def say(self, kind: str, each: Object) -> None:
        """Send an event."""
        self.write(json.dumps({"type": kind, "object": each}).encode() + b"\n")

    def bookmark(self, revision: int) -> None:
        """Send a bookmark with this revision."""
        self.say("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(revision), "creationTimestamp": None}})

    def fail(self, code: int, reason: str) -> None:
        """Send an ERROR event."""
        self.say("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": f"{reason} it is"})

    def write(self, data: bytes) -> None:
        """Send arbitrary bytes."""
        self.lines.put_nowait(data)

    def end(self) -> None:
        """End the watch normally."""
        self.lines.put_nowait(None)

    def cut(self) -> None:
        """Break the connection."""
        self.broken = True
        self.lines.put_nowait(None)


def status(code: int, reason: str, message: str = "", **headers: str) -> web.Response:
    """A Status object of a failure."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(
        body, status=code, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
