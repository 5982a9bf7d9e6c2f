"""A low-level client of an API server, for tests of bodies and statuses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from builders.wait import eventually

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_DEADLINE_SECONDS = 60.0


@dataclass(frozen=True)
class Reply:
    """A response of the server."""

    status: int
    body: Any
    headers: Any

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def revision(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Events:
    """The events of a watch, in order."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> Any:
        """The next event; fails when the watch ends or times out."""
        async with asyncio.timeout(_DEADLINE_SECONDS):
            line = await self.response.content.readline()
        assert line, "the watch ended"
        return msgspec.json.decode(line)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]

    async def ended(self) -> bool:
        """Assert that no further event arrives."""
        async with asyncio.timeout(_DEADLINE_SECONDS):
            try:
                return await self.response.content.read() == b""
            except aiohttp.ClientError:
                return True


class ApiClient:
    """Client of one server."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self._session = url, session

    async def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> Reply:
        content = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        sent = {"Content-Type": content_type, **headers} if content is not None else headers
        async with self._session.request(method, self.url + path, data=content, headers=sent) as response:
            received = await response.read()
            is_json = "json" in response.headers.get("Content-Type", "")
            return Reply(response.status, msgspec.json.decode(received) if is_json else received, response.headers)

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.call("GET", path, **headers)

    async def post(self, path: str, body: Any) -> Reply:
        return await self.call("POST", path, body)

    async def put(self, path: str, body: Any) -> Reply:
        return await self.call("PUT", path, body)

    async def patch(self, path: str, body: Any, content_type: str = MERGE) -> Reply:
        return await self.call("PATCH", path, body, content_type)

    async def delete(self, path: str, options: Any = None) -> Reply:
        return await self.call("DELETE", path, options)

    async def created(self, path: str, body: Any) -> Any:
        """Create an object; fails if the server rejects it."""
        reply = await self.post(path, body)
        assert reply.status == 201, reply.body
        return reply.body

    async def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(path)).body["items"]]

    async def bind(self, pod: str, node: str, **metadata: Any) -> Reply:
        binding = {"metadata": {"name": pod, **metadata}, "target": {"kind": "Node", "name": node}}
        return await self.post(f"{PODS}/{pod}/binding", binding)

    async def until(self, path: str, holds: Callable[[Reply], bool]) -> Reply:
        """Read until the condition holds; fails after a timeout."""

        async def replied() -> Reply | None:
            reply = await self.get(path)
            return reply if holds(reply) else None

        return await eventually(replied, path, seconds=_DEADLINE_SECONDS)

    async def until_gone(self, path: str) -> None:
        await self.until(path, lambda reply: reply.status == 404)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "application/json") -> AsyncIterator[Events]:
        """`path` has the query already, without watch=1."""
        joined = f"{self.url}{path}{'&' if '?' in path else '?'}watch=1"
        async with self._session.get(joined, headers={"Accept": accept}) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


@asynccontextmanager
async def api_client(url: str) -> AsyncIterator[ApiClient]:
    async with aiohttp.ClientSession(read_bufsize=2**24) as session:
        yield ApiClient(url, session)


def pod(name: str = "", *, requests: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A pod; `metadata` is merged, all other arguments go into its spec."""
    metadata = {"name": name} if name else {}
    container: dict[str, Any] = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    if requests:
        container["resources"] = {"requests": requests}
    metadata |= more.pop("metadata", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **more},
    }


def node(name: str, *, ready: bool = True, **spec: Any) -> dict[str, Any]:
    """A node without a kubelet."""
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"conditions": [condition], "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    """A ConfigMap, the simplest object."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}
